"""A machine file to begin with: what SLURM and the network say on a login node, and `SET` where
only a person knows.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddlbench.commands.new import checked, filled, free
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.slurm import interfaces as network
from ddlbench.slurm import sinfo, squeue
from ddlbench.slurm.interfaces import Interface
from ddlbench.slurm.sinfo import Queue

SHOW = ("scontrol", "--oneliner", "show")


def write(name: str, config: Path) -> Path:
    """Write config/machines/<name>.yaml from SLURM's answers. Raises ConfigError, of one line."""
    path = free(config / "machines" / f"{name}.yaml", name)
    printed = sinfo.ask(sinfo.SINFO)
    shown, nodes = (squeue.printed(*SHOW, what) for what in ("partition", "node"))
    site = sinfo.config(squeue.printed("scontrol", "show", "config"))
    queues = sinfo.queues(printed, shown, nodes, site)
    if not queues:
        raise ConfigError(
            "sinfo names no partition here that is open: ask on a login node of the cluster"
        )
    interfaces = network.interfaces(squeue.printed("ip", "-brief", "address"))
    return checked(path, text(queues, site, interfaces), lambda: load_machine(name, path.parent))


def text(queues: Sequence[Queue], site: Mapping[str, str], interfaces: Sequence[Interface]) -> str:
    """Return the text of the machine file.

    The first queue says what a node is; queues of other devices are left out. The fastest
    interface, if one is the fastest, is the first.
    """
    first = queues[0]
    node = first.node
    cores = node.cores or node.cpus
    workers = node.gpus or cores
    return filled(
        "machine",
        needs_account="associations" in site.get("AccountingStorageEnforce", ""),
        keeps_accounts=not site.get("AccountingStorageType", "x").endswith("none"),
        first=first,
        node=node,
        workers=workers,
        share=max(1, cores // workers),
        memory=_memory(first, workers, site),
        queues=[
            (queue, _notes(queue)) for queue in queues if (queue.node.gpus > 0) == (node.gpus > 0)
        ],
        interfaces=interfaces,
    )


def _notes(queue: Queue) -> list[str]:
    """Return notes about a partition."""
    notes = [f"{queue.others} of its nodes are of another kind"] if queue.others else []
    return notes + (
        [f"its jobs may have to give way (PreemptMode={queue.gives_way})"]
        if queue.gives_way
        else []
    )


def _memory(queue: Queue, workers: int, site: Mapping[str, str]) -> str:
    """Return the value of `memory_mb_per_worker`: all of a node, if SLURM counts memory and gives
    jobs only a part of it by default.
    """
    node_mb = queue.node.memory_mb
    counts = "MEMORY" in site.get("SelectTypeParameters", "").upper()
    if site and not counts:
        return (
            "null  # SLURM does not count memory here (SelectTypeParameters): a job has all memory"
            " of its nodes"
        )
    default = queue.default_memory
    if counts and default and not default.endswith("UNLIMITED") and node_mb:
        return (
            f"{node_mb // workers}  # a node's {node_mb} MB over workers; jobs that do not ask get"
            f" {default}"
        )
    if counts and default:
        return f"null  # jobs that do not ask get {default}: all of a node"
    return "null  # SET if jobs must ask for memory: scontrol show config | grep DefMem"
