"""Whether a step makes the host wait for the device: then the GPU idles while the host prepares the next one."""

from collections.abc import Iterator, Mapping

from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import Bench, each
from ddlbench.core import registry
from ddlbench.core.spec import RunSpec

LIMIT_S = 240


def runs(bench: Bench) -> dict[str, RunSpec]:
    """Each framework, and fp16 with its two ways to scale losses: torch's, and the one for DeepSpeed."""
    specs = {name: bench.spec(name, epochs=1) for name in registry.members("frameworks")}
    return specs | {f"{name}, fp16": bench.spec(name, "fp16", epochs=1) for name in ("ddp", "deepspeed")}


def check(bench: Bench) -> Iterator[Row]:
    """One row per run."""
    from ddlbench.commands.gpucheck._ranks import COUNTED, SYNCS

    def count(what: str, spec: RunSpec) -> Row:
        counts = bench.train(spec, "count", "count").said(SYNCS, {})
        # What CUDA's watch notices has the other reads in it.
        total = max(counts.get("noticed by CUDA's watch", 0), counts.get("value of a tensor read", 0))
        total += counts.get("torch.cuda.synchronize", 0)
        return judge(what, spec, total, COUNTED, counts)

    yield from each(bench, runs(bench), count)


def judge(what: str, spec: RunSpec, total: int, steps: int, counts: Mapping[str, int]) -> Row:
    """`total` waits in so many steps; `counts` says of which kinds.

    On a CPU, optimizers are not fused: there the loss scaler of fp16 reads whether a gradient overflowed.
    """
    expected = int(spec.device == "cpu" and spec.recipe.precision == "fp16")
    counted = ", ".join(f"{kind} {number}x" for kind, number in counts.items() if number)
    compared = f"expected: {expected}" + (f"; in {steps} steps: {counted}" if counted else "")
    return Row(what, judged(total == expected * steps), compared, total / steps, "waits/step")
