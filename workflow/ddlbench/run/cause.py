"""Why a run failed, from the notes of its ranks and from what was seen of them: rules in a list,
the first one wins.
"""

import re
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core import notes
from ddlbench.run.watch import WatchResult
from ddlbench.slurm import srun_messages

# PyTorch's watchdog ends a process that waited in NCCL, without a note.
WATCHDOG = re.compile(r"\[Rank (\d+)\] Watchdog caught collective operation timeout")
OWN_REASONS = (
    "node failed",
    "out of memory",
    "cancelled",
)  # SLURM's own: others wait in vain for whom it has ended
AS_LONG = "for as long as ranks wait (start_timeout_s in the machine's file)"


@dataclass(frozen=True)
class Facts:
    """What is known of a failed run: what each rank said of itself, and of its failure, and what
    was seen of them.
    """

    workers: int
    seen: WatchResult
    ranks: Mapping[int, dict[str, Any]]
    failures: Mapping[int, dict[str, Any]]
    to_blame: list[int]  # ranks that failed, but for those that lost another one
    ended: srun_messages.End | None  # what srun says that ended its step


@dataclass(frozen=True)
class Cause:
    """What caused a failure; `rank` is None if no rank is to blame. `host` is taken where the
    rank's note has none.
    """

    cause: str
    message: str
    rank: int | None = None
    host: str | None = None
    says_host: bool = True  # in the message


def diagnose(folder: Path, workers: int, seen: WatchResult) -> dict[str, Any]:
    """Return what caused a failure: {cause, rank, host, message}. Rank and host are None if no rank
    is to blame.
    """
    ranks, failures = notes.read(folder, "rank"), notes.read(folder, "failure")
    to_blame = [rank for rank in failures if failures[rank]["cause"] != "lost another rank"]
    ended = srun_messages.end(seen.printed, workers, failures.keys() - to_blame)
    facts = Facts(workers, seen, ranks, failures, to_blame, ended)
    found = next(cause for rule in RULES if (cause := rule(facts)) is not None)
    host = (ranks.get(found.rank, {}).get("host") if found.rank is not None else None) or found.host
    message = found.message
    message += f" (on {host})" if host and found.says_host else ""
    message += f"; {seen.unended}" if seen.unended else ""
    return {"cause": found.cause, "rank": found.rank, "host": host, "message": message}


def data_are_damaged(facts: Facts) -> Cause | None:
    """Blame the data, which are damaged: the ranks were not started."""
    damaged = facts.seen.damaged
    if not damaged:
        return None
    more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
    message = f"data damaged: {damaged[0]}{more}; ddlbench verify reads all of them"
    return Cause("data damaged", message, host=socket.gethostname(), says_host=False)


def a_rank_stopped_answering(facts: Facts) -> Cause | None:
    """Blame a rank that stopped sending heartbeats, and gave no reason."""
    silent = {rank: why for rank, why in facts.seen.silent.items() if rank not in facts.failures}
    for rank, why in silent.items():
        return Cause("stopped answering", f"rank {rank} {why}", rank)
    return None


def a_rank_failed(facts: Facts) -> Cause | None:
    """Blame the first rank that said why it failed. A loss that is no number spoils the weights of
    all ranks by the next step, and all say so at once: there the first step decides.
    """
    failures = facts.failures
    first = min(facts.to_blame, key=lambda rank: failures[rank]["time"], default=None)
    if first is None:
        return None
    steps = {
        rank: failures[rank]["step"]
        for rank in facts.to_blame
        if failures[rank].get("step") is not None
    }
    if first in steps:
        first = min(steps, key=lambda rank: steps[rank])
    cause = failures[first]["cause"]
    return Cause(cause, f"rank {first}: {cause}: {failures[first]['message']}", first)


def ranks_did_not_come(facts: Facts) -> Cause | None:
    """Blame ranks that others waited for in a collective, in vain; unless they were told to stop,
    or SLURM says what it did to them.
    """
    absent = _absent(facts)
    if (
        absent is None
        or facts.seen.signal is not None
        or (facts.ended and facts.ended.cause in OWN_REASONS)
    ):
        return None
    who = (
        f"{'rank' if len(absent) == 1 else 'ranks'} {', '.join(map(str, absent))} did not reach a"
        " collective"
    )
    message = f"{who if absent else 'all ranks waited for each other in a collective'} {AS_LONG}"
    return Cause("stopped answering", message, next(iter(absent), None))


def srun_says_why(facts: Facts) -> Cause | None:
    """Blame SLURM or its launcher, which ended the step. Consequences of a signal that requested us
    to stop are not a cause.
    """
    ended = facts.ended
    if ended is None or (
        facts.seen.signal is not None and ended.cause not in ("cancelled", "node failed")
    ):
        return None
    message = ended.message if ended.rank is None else f"rank {ended.rank} {ended.message}"
    return Cause(ended.cause, message, ended.rank, ended.host)


def told_to_stop(facts: Facts) -> Cause | None:
    """Blame a signal that requested us to stop; the ranks did not end with a checkpoint."""
    number = facts.seen.signal
    return (
        None
        if number is None
        else Cause("ended by a signal", f"signal {signal.Signals(number).name}")
    )


def a_rank_was_killed(facts: Facts) -> Cause | None:
    """Blame a rank that is gone and left no note."""
    workers, seen, failures = facts.workers, facts.seen, facts.failures
    quiet = [rank for rank in seen.gone if rank not in failures]
    if workers == 1 and facts.ranks and not failures and seen.code:
        quiet = [0]  # its launcher may end before we look again
    if not quiet and not (failures and len(failures) < workers):
        return None
    rank = quiet[0] if quiet else min(set(range(workers)) - failures.keys())
    how = "for memory, by the system" if seen.out_of_memory else "without an error message"
    return Cause(
        "out of memory" if seen.out_of_memory else "killed", f"rank {rank} was killed {how}", rank
    )


def the_launcher_failed(facts: Facts) -> Cause:
    """Blame the launcher: nothing else is known."""
    return Cause("launcher failed", f"the launcher ended with exit code {facts.seen.code}")


# In this order: what is further up caused what is further down.
RULES: list[Callable[[Facts], Cause | None]] = [
    data_are_damaged,
    a_rank_stopped_answering,
    a_rank_failed,
    ranks_did_not_come,
    srun_says_why,
    told_to_stop,
    a_rank_was_killed,
    the_launcher_failed,
]


def _absent(facts: Facts) -> list[int] | None:
    """Return ranks that others waited for in a collective until their timeout ended; None if none
    waited so long.
    """
    waited = {
        rank
        for rank, failure in facts.failures.items()
        if "timed out waiting" in failure["message"].lower()
    }
    waited |= {int(rank) for rank in WATCHDOG.findall(facts.seen.printed)}
    # The others that left a note were there, too: they lost those that gave up first.
    return sorted(set(range(facts.workers)) - waited - facts.failures.keys()) if waited else None
