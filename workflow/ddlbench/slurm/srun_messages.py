"""What srun and SLURM's daemons say of a step's end in the log that they write into: which task,
where and how.

On SLURM ranks are no children of their supervisor, and one that is killed leaves no note. srun
names it: `srun: error: node1: task 0: Killed`. Tasks are ranks. `watch.py` asks.
"""

import os
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20  # of the log's end, where SLURM's messages are


@dataclass(frozen=True)
class End:
    """The reason why a step ended: `cause` in words that tables can count.

    Rank and host are None where no task is named.
    """

    cause: str
    message: str
    rank: int | None = None
    host: str | None = None


def log_position() -> tuple[Path, int] | None:
    """Return the file that receives the errors of this process and of srun, and its current size.
    None if the errors do not go into a file.
    """
    try:
        at = os.fstat(2)
        return (
            (Path("/proc/self/fd/2").readlink(), at.st_size) if stat.S_ISREG(at.st_mode) else None
        )
    except OSError:
        return None


def written_since(position: tuple[Path, int] | None) -> str:
    """Return what was written into the log since `log_position`; "" where that cannot be known."""
    if position is None:
        return ""
    path, start = position
    try:
        with path.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - MOST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


_DAEMON = r"^(?:slurmstepd|slurmd)(?:-(?P<host>\S+?))?: (?:error: )?"
_TASK = re.compile(
    r"^srun: error: (?P<hosts>[^\s:]+): tasks? (?P<tasks>[\d,\[\]-]+): (?P<how>.+?)\s*$", re.M
)
_MEMORY = re.compile(
    _DAEMON + r"(?P<what>.*(?:oom[-_]kill|Out Of Memory|exceeded .*memory limit).*?)\s*$", re.M
)
_CANCELLED = re.compile(
    r"^(?:slurmstepd|slurmd)\S*: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+(?P<why>.*?)\*\*\*",
    re.M,
)
_EXECVE = re.compile(_DAEMON + r"execve\(\): (?P<what>.+?)\s*$", re.M)
_CHDIR = re.compile(
    _DAEMON + r"couldn't chdir to [`'](?P<folder>.+?)': (?P<why>.+?): going to ", re.M
)
_NODE = re.compile(r"^srun: error: Node failure on (?P<host>\S+)", re.M)
_LAUNCH = re.compile(
    r"^srun: error: (?P<what>(?:Unable to |Application launch |Task launch |Invalid |Job |Requested ).+?)\s*$",
    re.M,
)


def end(text: str, workers: int, innocent: Collection[int] = ()) -> End | None:
    """Return the cause that ended the step of `workers` tasks whose srun wrote `text`, or None if
    `text` does not contain it. SLURM's own reasons (a lost node, memory, a limit) come before their
    effects on tasks. `innocent` are ranks that ended only because they had lost another one.
    """
    if node := _NODE.search(text):
        return End("node failed", "the node failed", host=node["host"])
    task = _first_task(text, workers, innocent)
    rank, host = (task.rank, task.host) if task else (None, None)
    if missing := _EXECVE.search(text):
        return End(
            "launcher failed",
            f"cannot be started: {missing['what']}",
            rank,
            host or missing["host"],
        )
    if blind := _CHDIR.search(text):
        advice = "put the project where all nodes see it, or name the node in exclude_nodes"
        return End(
            "launcher failed",
            f"does not see {blind['folder']} ({blind['why']}): {advice}",
            rank,
            blind["host"],
        )
    if memory := _MEMORY.search(text):
        return End(
            "out of memory",
            f"was killed for memory: {memory['what']}" if task else memory["what"],
            rank,
            host or memory["host"],
        )
    cancelled = _CANCELLED.search(text)
    if cancelled:
        why = " ".join(cancelled["why"].split()).lower()
        # srun cancels a step too when a task has ended badly, and names that task first.
        if why or task is None or cancelled.start() < _TASK.search(text).start():  # type: ignore[union-attr]
            return End("cancelled", " ".join(filter(None, ["SLURM cancelled the step", why])))
    if task:
        return task
    launch = _LAUNCH.search(text)
    return End("launcher failed", launch["what"]) if launch else None


def _first_task(text: str, workers: int, innocent: Collection[int]) -> End | None:
    """Return the end of the first task that srun names. srun ends the other tasks after it
    (`--kill-on-bad-exit`).
    """
    for line in _TASK.finditer(text):
        numbers = expand(line["tasks"])
        blamed = [number for number in numbers if number not in innocent]
        if numbers and not blamed:
            continue
        rank = blamed[0] if blamed and blamed[0] < workers else None
        host = None if "[" in line["hosts"] or "," in line["hosts"] else line["hosts"]
        how = line["how"][0].lower() + line["how"][1:]
        if how == "out Of Memory":
            return End("out of memory", "was killed for memory, by the system", rank, host)
        if how.startswith("exited with"):
            return End("exited", how, rank, host)
        return End("killed", f"was killed ({line['how']})", rank, host)
    return None


def expand(numbers: str) -> list[int]:
    """Expand SLURM's list of numbers: `0-2,5` and `[0-2,5]` are 0, 1, 2 and 5."""
    every: list[int] = []
    for part in numbers.strip("[]").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            every += range(int(first), int(last if last.isdigit() else first) + 1)
    return every
