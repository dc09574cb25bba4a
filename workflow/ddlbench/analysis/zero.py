"""What a worker holds of a model under the stages of ZeRO: weights, gradients and the optimizer's state.

Source: Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC20, section 5
(arXiv:1910.02054): with P parameters on N workers, 2 bytes each for weights and gradients in fp16 and K for the
optimizer's state (12 for Adam with fp32 copies) a worker holds (2+2+K)P; with stage 1 (2+2)P + KP/N, with stage 2
2P + (2+K)P/N, with stage 3 (2+2+K)P/N. Runs here keep weights and gradients in fp32: 4 bytes each, and K is 4 for SGD
with momentum, 8 for Adam.
"""

from ddlbench.core.recipe import numbers_kept

NUMBER_BYTES = 4
STAGES = (0, 1, 2, 3)


def held_bytes(
    parameters: float, stage: int, workers: int, optimizer_bytes: float, number_bytes: float = NUMBER_BYTES
) -> float:
    """Bytes on one worker; `optimizer_bytes` is K, and a weight and a gradient have `number_bytes` each.

    Raises ValueError for another stage than 0, 1, 2 or 3.
    """
    if stage not in STAGES:
        raise ValueError(f"stage {stage}: allowed: {', '.join(map(str, STAGES))}")
    shares = [1 if stage < first else 1 / workers for first in (3, 2, 1)]
    kinds = (number_bytes, number_bytes, optimizer_bytes)
    return parameters * sum(size * share for size, share in zip(kinds, shares, strict=True))


def optimizer_bytes(optimizer: str, momentum: float = 0.9) -> float:
    """K of a recipe's optimizer [bytes per parameter]."""
    return float(numbers_kept(optimizer, momentum) * NUMBER_BYTES)
