"""SLURM's partitions, read from `sinfo` on a login node: their nodes, their limits, the site's
defaults.

`sinfo` has to answer. `scontrol` tells more, and what it does not tell stays None. Commands are
asked through `ask`, everything else here is a pure function of their output.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddlbench.settings.config import ConfigError

SINFO = ("sinfo", "--noheader", "--exact", "--format=%R|%D|%l|%c|%G")
YEAR_MINUTES = 365 * 24 * 60  # for a queue without a limit


@dataclass(frozen=True)
class Node:
    """A node by its name, or the most frequent kind of node of a partition.

    `gres` are SLURM's words for generic resources. `cpus` are those that SLURM counts and jobs may
    have; the rest is None where it is unknown. `cores` are physical ones, `threads` the hardware
    threads of each; `memory_mb` is what jobs may get [MiB].
    """

    gres: str
    cpus: int
    cores: int | None = None
    threads: int | None = None
    memory_mb: int | None = None
    name: str = ""

    @property
    def gpus(self) -> int:
        """Return the number of GPUs: `gpu:a100:4(S:0-1)` -> 4, `gpu:2080Ti:8` -> 8, of MIG
        `gpu:3g.20gb:8` -> 8.
        """
        return sum(count for _, count in self._gpu_types())

    @property
    def kind(self) -> str | None:
        """Return what SLURM calls its GPUs, `a100`; None where it gives them no name."""
        return next((name for name, _ in self._gpu_types() if name), None)

    def _gpu_types(self) -> list[tuple[str | None, int]]:
        """Return the types of its GPUs, each with how many there are. The last part is the count, a
        number alone.
        """
        words = [entry.split(":") for entry in re.sub(r"\([^)]*\)", "", self.gres).split(",")]
        found = [
            (word[1] if len(word) > 2 else None, word[-1])
            for word in words
            if word[0] == "gpu" and len(word) > 1
        ]
        return [(name, int(count)) for name, count in found if count.isdigit()]


@dataclass(frozen=True)
class Queue:
    """A partition: the most nodes and minutes of a job, its nodes, how many of these are of another
    kind. `default_memory` is the memory of a job that requests none, in SLURM's form; None where it
    is unknown. `gives_way` is SLURM's word for what happens to a job when another job wants its
    nodes; "" if nothing does.
    """

    name: str
    nodes: int
    minutes: int
    node: Node
    others: int = 0
    default_memory: str | None = None
    gives_way: str = ""


def ask(command: Sequence[str]) -> str:
    """Run a command and return its output. Raises ConfigError, of one line."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True, errors="replace"
        ).stdout
    except FileNotFoundError:
        raise ConfigError(
            f"{command[0]} is not installed here: run this on a login node of the cluster; for a"
            " machine without a queue copy config/machines/workstation.yaml"
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{command[0]} does not answer, try again later: {error}") from None


def fields(text: str) -> list[dict[str, str]]:
    """Parse what `scontrol --oneliner show` prints: one dict per line, of `Name=value`.

    The first of a name counts: behind the facts, a line may end in what somebody wrote as a reason.
    """
    lines = (re.findall(r"(?:^|\s)([A-Za-z]\w*)=(\S*)", line) for line in text.splitlines())
    return [dict(reversed(pairs)) for pairs in lines if pairs]


def config(text: str) -> dict[str, str]:
    """Parse what `scontrol show config` prints, `Name = value` per line."""
    return {
        name: value.strip() for name, value in re.findall(r"^([A-Za-z]\w*) *=([^\n]*)$", text, re.M)
    }


def queues(
    sinfo: str, partitions: str = "", nodes: str = "", site: Mapping[str, str] | None = None
) -> list[Queue]:
    """Return the partitions in the output of `SINFO`: with GPUs first, preemptible ones last, large
    before small. `partitions` and `nodes` are the output of `scontrol --oneliner show` about these.
    Closed partitions are left out.
    """
    facts = {line["PartitionName"]: line for line in fields(partitions) if "PartitionName" in line}
    members: dict[str, list[Node]] = {}
    for line in fields(nodes):
        if node := _node(line):
            for partition in line.get("Partitions", "").split(","):
                members.setdefault(partition, []).append(node)
    queues_by_name: dict[str, Queue] = {}
    rows = [line.split("|") for line in sinfo.splitlines()]
    # sinfo has one row per kind of node in a partition. The largest row stands for the partition.
    for row in sorted(
        (row for row in rows if len(row) == 5 and row[1].isdigit()), key=lambda row: -int(row[1])
    ):
        name, count, limit, cpus, gres = (part.strip() for part in row)
        partition_facts = facts.get(name, {})
        if name in queues_by_name or partition_facts.get("State", "UP") != "UP":
            continue
        kinds = Counter(members.get(name, ()))
        node, same_kind = (
            kinds.most_common(1)[0] if kinds else (Node(gres, leading_number(cpus) or 1), 0)
        )
        total = max(int(count), kinds.total())
        most_nodes = min(total, leading_number(partition_facts.get("MaxNodes", "")) or total)
        memory = _default_memory(partition_facts, site or {})
        mode = partition_facts.get(
            "PreemptMode", "OFF"
        )  # of no meaning where the site does not preempt
        preempt_mode = (
            ""
            if (site or {}).get("PreemptType", "preempt/none") == "preempt/none" or mode == "OFF"
            else mode
        )
        queues_by_name[name] = Queue(
            name, most_nodes, minutes(limit), node, kinds.total() - same_kind, memory, preempt_mode
        )
    return sorted(
        queues_by_name.values(),
        key=lambda queue: (queue.node.gpus == 0, bool(queue.gives_way), -queue.nodes, queue.name),
    )


def _default_memory(*facts: Mapping[str, str]) -> str | None:
    """Return the memory of a job that requests none. The partition's setting precedes the site's.
    None where neither is set.
    """
    names = ("DefMemPerNode", "DefMemPerCPU")
    words = [f"{name}={place[name]}" for place in facts for name in names if name in place]
    return next(
        (word for word in words if not word.endswith("UNLIMITED")), words[0] if words else None
    )


def _node(facts: Mapping[str, str]) -> Node | None:
    """Parse a node from the output of `scontrol show node`. None if the text describes no node."""
    cpus, sockets, cores = (
        leading_number(facts.get(name, "")) for name in ("CPUTot", "Sockets", "CoresPerSocket")
    )
    if not cpus:
        return None
    memory = leading_number(facts.get("RealMemory", ""))
    memory = memory - (leading_number(facts.get("MemSpecLimit", "")) or 0) if memory else None
    gres = facts.get("Gres", "(null)")
    real = sockets * cores if sockets and cores else None
    return Node(gres, cpus, real, leading_number(facts.get("ThreadsPerCore", "")), memory)


def leading_number(text: str) -> int | None:
    """Return the number that a text begins with: `96+` -> 96; None for `UNLIMITED` and for 0."""
    match = re.match(r"\d+", text)
    return int(match[0]) or None if match else None


def minutes(limit: str) -> int:
    """Convert SLURM's time, `1-00:00:00` or `30:00`, to minutes; a year for none."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if not match:
        return YEAR_MINUTES
    days, hours, mins, _ = (int(part or 0) for part in match.groups())
    return max(1, (days * 24 + hours) * 60 + mins)
