"""How fast a model trains that nobody has measured here: a first guess from its operations, as wide
as such a guess is.

    rate = rate of a known model x (the known model's operations / this model's)^SLOPE

SLOPE and SPREAD were fitted to timm's training benchmark
(github.com/huggingface/pytorch-image-models, aa4b5850,
results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv): images per second of one RTX 3090, of 661
models whose operations benchmark-infer-amp-nhwc-pt210-cu121-rtx3090.csv has. Models with half the
operations are 1.6 times, not twice, as fast, and of 95 % of all pairs of models one is within a
factor of 5.8 of what the other says. Below FEWEST operations the benchmark has no model, and a step
costs what it costs. A smaller picture saves at best its share of the operations, at worst nothing.

What is known: records of other models or data on this machine; else its `images_per_s`; else KNOWN,
one model on one device of the kind, which is widened by OTHER_DEVICE.
"""

from collections.abc import Callable, Mapping
from functools import cache
from statistics import geometric_mean

from ddlbench.analysis.published_operations import read_published
from ddlbench.core import registry
from ddlbench.settings.machine import Machine

SLOPE = 0.7
SPREAD = 5.8
OTHER_DEVICE = 3.0  # no measurement
FEWEST = {"cuda": 6e7, "cpu": 0.0}  # of a forward pass
# (model, pixels on a side): images per second of one device. That of a GPU is timm's, as above;
# that of a core is of study frameworks on an AMD EPYC (docs/studies.md).
KNOWN = {"cuda": {("resnet50", 224): 1218.0}, "cpu": {("resnet8_half", 32): 1324.0}}
# Of our own models, by PyTorch's FlopCounterMode, as `train/models.py` counts: a forward pass with
# 10 classes.
OWN = {("lenet", 32): 1.77e6, ("lenet5", 32): 1.30e6, ("resnet8_half", 32): 6.34e6}

Model = tuple[str, int]  # its name, pixels on a side of its pictures


@cache
def _counted() -> dict[str, list[tuple[int, float]]]:
    """Return (pixels on a side, operations of a forward pass) by model."""
    table: dict[str, list[tuple[int, float]]] = {}
    for (model, size), flops in (
        {model: flops for model, (flops, _) in read_published().items()} | OWN
    ).items():
        table.setdefault(model, []).append((size, flops))
    return table


def operations(model: Model) -> tuple[float, float] | None:
    """Return the operations of a forward pass over one picture, and those over a picture of the
    size at which they were counted: they grow with the area. None if they were never counted.
    """
    name, size = model
    counted = _counted().get(name)
    if counted is None:
        return None
    of_size, flops = min(counted, key=lambda pair: abs(pair[0] - size))
    return flops * (size / of_size) ** 2, flops


def rate(
    model: Model, machine: Machine, measured: Mapping[Model, float]
) -> tuple[float, float, float, str] | None:
    """Guess a model's rate: (lowest, likely, highest images per second of one worker; basis).

    None if its operations were never counted. `measured` are rates of other models on this machine.
    """
    counted = operations(model)
    if counted is None:
        return None
    pairs, basis, wider = _with_operations(measured), "records of other models or data", 1.0
    if not pairs:
        in_file = {_model(name): value for name, value in machine.images_per_s}
        pairs, basis = _with_operations(in_file), "the machine's images_per_s of other models"
    if not pairs:
        pairs, wider = _with_operations(KNOWN[machine.device]), OTHER_DEVICE
        ((name, _),) = KNOWN[machine.device]
        basis = f"{name} on another {'GPU' if machine.device == 'cuda' else 'core'}"
    by_size = [
        geometric_mean(
            rate * (flops / max(of_own, FEWEST[machine.device])) ** SLOPE for rate, flops in pairs
        )
        for of_own in counted
    ]
    spread = SPREAD * wider
    return min(by_size) / spread, by_size[0], max(by_size) * spread, f"operations, beside {basis}"


def limit_minutes(
    model: Model,
    machine: Machine,
    nodes: int,
    attempt: int,
    work_s: Callable[[float], float],
    guess_by: float = 1.0,
) -> int:
    """Return the time limit [min] of a job whose work takes `work_s(rate)` seconds: 30 min and 1.5
    times that, within the queue's.

    The rate is the machine's `images_per_s`, else the lowest of a first guess (times `guess_by`,
    not 1.5); without either it is all that a queue gives. A job that hits the limit is submitted
    again (profile: retries), and each attempt gets as much again.
    """
    images_per_s, wider = machine.rate(*model), 1.5
    if images_per_s is None and (guess := rate(model, machine, {})):
        images_per_s, wider = guess[0], guess_by
    if images_per_s is None:
        return machine.limit_minutes(nodes)
    return machine.limit_minutes(nodes, attempt * round(30 + wider * work_s(images_per_s) / 60))


def _with_operations(rates: Mapping[Model, float]) -> list[tuple[float, float]]:
    """Return (rate, operations) of those models whose operations are known."""
    return [(value, counts[0]) for model, value in rates.items() if (counts := operations(model))]


def _model(name: str) -> Model:
    """Split a key of `images_per_s`: `resnet50@32`, or a name alone."""
    model, _, size = name.partition("@")
    return model, int(size) if size else 32 if model in registry.SMALL_MODELS else 224
