"""What a worker holds of a model under the stages of ZeRO: weights, gradients and the optimizer's
state.

Source: Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models, SC20, section 5 (arXiv:1910.02054): with P parameters on N workers, 2 bytes each for weights
and gradients in fp16 and K for the optimizer's state (12 for Adam with fp32 copies) a worker holds
(2+2+K)P; with stage 1 (2+2)P + KP/N, with stage 2 2P + (2+K)P/N, with stage 3 (2+2+K)P/N. Runs here
keep weights and gradients in fp32: 4 bytes each, and K is 4 for SGD with momentum, 8 for Adam.
"""

from ddlbench.core.recipe import numbers_kept

NUMBER_BYTES = 4
STAGES = (0, 1, 2, 3)


def held_bytes(
    parameters: float,
    stage: int,
    workers: int,
    optimizer_bytes: float,
    number_bytes: float = NUMBER_BYTES,
) -> float:
    """Return the bytes on one worker; `optimizer_bytes` is K, and a weight and a gradient have
    `number_bytes` each.

    Raises ValueError for another stage than 0, 1, 2 or 3.
    """
    if stage not in STAGES:
        raise ValueError(f"stage {stage}: allowed: {', '.join(map(str, STAGES))}")
    weights = parameters * number_bytes * _share(stage, 3, workers)
    state = parameters * optimizer_bytes * _share(stage, 1, workers)
    return weights + gradients_bytes(parameters, stage, workers, number_bytes) + state


def gradients_bytes(
    parameters: float, stage: int, workers: int, number_bytes: float = NUMBER_BYTES
) -> float:
    """Return the bytes of the gradients that one worker keeps for its update; FSDP is as stage 3.

    Buffers that they are sent from are not in it. Autocast leaves weights and gradients in fp32 in
    every precision.
    """
    return parameters * number_bytes * _share(stage, 2, workers)


def _share(stage: int, first: int, workers: int) -> float:
    """Return the worker's share of what is sharded from stage `first` on."""
    return 1.0 if stage < first else 1 / workers


def optimizer_bytes(optimizer: str, momentum: float = 0.9) -> float:
    """Return K of a recipe's optimizer [bytes per parameter]."""
    return float(numbers_kept(optimizer, momentum) * NUMBER_BYTES)
