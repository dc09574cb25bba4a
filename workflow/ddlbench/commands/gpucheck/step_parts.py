"""Whether the parts of steps, which are timed on the device, add up to the time that passed on the host."""

from collections.abc import Iterator

from ddlbench.analysis.record import Record
from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import Bench
from ddlbench.core.record import STEP_PARTS

LIMIT_S = 120
TOLERANCE = 0.01


def check(bench: Bench) -> Iterator[Row]:
    """One row, of the epochs after the first."""
    # An epoch of some seconds: at its end rows are written, which is in no step (14 ms on two busy cores).
    size, batch = (96, 200) if bench.tiny else (448, 50)
    record = bench.train(bench.spec(recipe={"image_size": size}, global_batch=batch), "step-parts")
    parts, wall = sums(record)
    off = parts / wall - 1
    compared = f"steps' parts {parts:.3f} s, host {wall:.3f} s; expected: at most {TOLERANCE:.0%} apart"
    yield Row("sum of step parts", judged(abs(off) <= TOLERANCE), compared, 100 * off, "%")


def sums(record: Record) -> tuple[float, float]:
    """Seconds of all parts of steps, and of their epochs by the log; of epochs after the first."""
    steps = record.steps[record.steps["epoch"] > 0]
    at: dict[str, dict[int, float]] = {"epoch_start": {}, "epoch_stop": {}}
    for event in record.events:
        if event.key in at:
            at[event.key][event.metadata["epoch_num"]] = event.time_s
    wall = sum(at["epoch_stop"][n] - at["epoch_start"][n] for n in at["epoch_stop"] if n > 1)
    return float(steps[[*STEP_PARTS]].sum().sum()), wall
