"""One run under the profiler: it leaves kernels of the device, and their shares can be made."""

from collections.abc import Iterator

from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import Bench

LIMIT_S = 180


def check(bench: Bench) -> Iterator[Row]:
    """The kernels by time on the device; on a CPU its operators."""
    record = bench.train(bench.spec(profiled=True, timed=False))
    if record.kernels is None:
        yield Row("kernels", judged(False), "the run left no kernels.parquet")
        return
    on = "cpu" if bench.tiny else "device"
    own = record.kernels[(record.kernels["on"] == on) & ~record.kernels["annotation"]]
    top = own.sort_values("self_s", ascending=False).head(3)
    most = "; ".join(f"{row['name'][:40]} {row['self_s']:.3f} s" for _, row in top.iterrows())
    yield Row(f"kernels on {on}", judged(len(own) >= 10), f"expected: 10 kinds or more; {most}", len(own), "kinds")
    busy = float(own["self_s"].sum())
    yield Row("their time", judged(busy > 0), "expected: more than none", busy, "s")
