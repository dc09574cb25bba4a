"""What ranks write of made-up epochs and steps; without pandas, for processes that stand in for
ranks.
"""

from ddlbench.core.rank_log import RankLog
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import StepRow

# Data wait, forward, backward, communication and optimizer of one step [s], in the first epoch and
# after, by rank.
SLOW = ((1.0, 1.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 1.0, 1.0))
FAST = ((0.1, 0.1, 0.1, 0.1, 0.1), (0.1, 0.2, 0.2, 0.2, 0.1))
VALIDATION_S = 1.5


def log_epochs(
    log: RankLog, spec: RunSpec, images: int, slower: float = 1.0, began_ms: int = 1_000
) -> int:
    """Write what a run's log says from its start to its last validation, and return when that ended
    [ms].

    Steps take `slower` times as long.
    """
    at_ms, steps = began_ms, images // spec.global_batch
    log.mllog.start("run_start", None, None, time_ms=at_ms)
    for epoch in range(spec.epochs):
        number = {"epoch_num": epoch + 1}
        log.mllog.start("epoch_start", None, number, time_ms=at_ms)
        parts = (FAST if epoch else SLOW)[: spec.workers]
        at_ms += round(1e3 * slower * steps * max(map(sum, parts)))
        log.mllog.end("epoch_stop", None, number, time_ms=at_ms)
        log.mllog.start("eval_start", None, number, time_ms=at_ms)
        log.event("eval_accuracy", 0.5 / (epoch + 1), **number)
        log.event(
            "tracked_stats",
            {"loss": 1.0, "correct": 2, "correct_top5": max(2, 3 - epoch), "seen": 4},
            **number,
        )
        at_ms += round(1e3 * VALIDATION_S)
        log.mllog.end("eval_stop", None, number, time_ms=at_ms)
    return at_ms


def step_rows(spec: RunSpec, images: int, rank: int, slower: float = 1.0) -> list[StepRow]:
    """Return the rows of a rank's steps, as `log_epochs` gives them their time."""
    rows, end_s, steps = [], 0.0, images // spec.global_batch
    for step in range(spec.epochs * steps):
        parts = [slower * part for part in (SLOW if step < steps else FAST)[rank % 2]]
        rate, loss = 0.1 * (step + 1), 1.0 + step
        end_s += sum(parts) + VALIDATION_S * (step % steps == 0 and step > 0)
        rows.append(
            StepRow(step // steps, step, rank, spec.batch_per_worker, rate, loss, *parts, end_s)
        )
    return rows
