"""A machine file to begin with: what SLURM and the network say on a login node, and `SET` where only a person knows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddlbench.commands.new import checked, free
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.slurm import cluster, queue
from ddlbench.slurm.cluster import Interface, Queue

SHOW = ("scontrol", "--oneliner", "show")


def write(name: str, config: Path) -> Path:
    """Write config/machines/<name>.yaml from what SLURM says here. Raises ConfigError, of one line."""
    path = free(config / "machines" / f"{name}.yaml", name)
    sinfo = cluster.ask(cluster.SINFO)
    partitions, nodes = (queue.printed(*SHOW, what) for what in ("partition", "node"))
    site = cluster.config(queue.printed("scontrol", "show", "config"))
    queues = cluster.queues(sinfo, partitions, nodes, site)
    if not queues:
        raise ConfigError("sinfo names no partition here that is open: ask on a login node of the cluster")
    interfaces = cluster.interfaces(queue.printed("ip", "-brief", "address"))
    return checked(path, text(queues, site, interfaces), lambda: load_machine(name, path.parent))


def text(queues: Sequence[Queue], site: Mapping[str, str], interfaces: Sequence[Interface]) -> str:
    """The file. The first queue says what a node is; queues of other devices are left out."""
    first = queues[0]
    node = first.node
    cores = node.cores or node.cpus
    workers = node.gpus or cores
    share = max(1, cores // workers)
    threads = node.threads is not None and node.threads > 1
    partitions = [
        f"  - {{name: {queue.name}, max_nodes: {queue.nodes}, max_minutes: {queue.minutes}}}" + _notes(queue)
        for queue in queues
        if (queue.node.gpus > 0) == (node.gpus > 0)
    ]
    whole = f"GPUs of a node: {node.gres}" if node.gpus else "cores of a node"
    of_cores = (
        f"{cores} cores of a node" if node.cores else f"{cores} CPUs of a node by sinfo, perhaps hardware threads,"
    )
    flags = "[--hint=nomultithread]" if threads else "[]"
    return f"""\
# Made from what sinfo, scontrol and ip said on a login node. SET marks what they do not know; config/README.md explains
# all keys, docs/clusters.md what comes next.{_accounts(site)}
launcher: slurm
device: {"cuda" if node.gpus else "cpu"}
device_name: {node.kind or ("GPU" if node.gpus else "CPU core")}   # SET: what axes and texts call a worker
gpu_name: null              # SET: part of what `nvidia-smi -L` calls a GPU; the preflight refuses another kind

nodes: {first.nodes}                    # SET: the most nodes that one run may use
workers_per_node: {workers}         # {whole}
cores_per_worker: {share}         # {of_cores} over workers
loader_threads: {share}           # SET: at most cores_per_worker
slurm_flags: {flags}{"  # a core has " + str(node.threads) + " hardware threads here" if threads else ""}
{_memory(first, workers, site)}

data: ${{SCRATCH:-results}}/ddlbench  # SET: a file system that all nodes see and that is fast

partitions:                 # by sinfo, those with most nodes first; SET the order to your liking
{chr(10).join(partitions)}

modules: []                 # SET if the software comes from modules, in the order of loading

{_environment(interfaces)}
images_per_s: {{}}            # SET when you have measured: then the queue gets a limit near the run's length
price_per_gpu_hour: null    # SET for the plan, as far as you know it, with its currency
currency: null
"""


def _notes(queue: Queue) -> str:
    """What to know of a partition, as a comment."""
    notes = [f"{queue.others} of its nodes are of another kind"] if queue.others else []
    notes += [f"its jobs may have to give way (PreemptMode={queue.gives_way})"] if queue.gives_way else []
    return f"  # {'; '.join(notes)}" if notes else ""


def _accounts(site: Mapping[str, str]) -> str:
    """What to know of accounts before a job is submitted, as comment lines after a line."""
    said = ""
    if "associations" in site.get("AccountingStorageEnforce", ""):
        said += (
            "\n# Jobs need an account: --config account=..., one of `sacctmgr -n show assoc user=$USER format=account`."
        )
    if site.get("AccountingStorageType", "x").endswith("none"):
        said += (
            "\n# SLURM keeps no accounts here: states of jobs come from squeue, and nothing is said of jobs long gone."
        )
    return said


def _memory(queue: Queue, workers: int, site: Mapping[str, str]) -> str:
    """`memory_mb_per_worker`: all of a node if SLURM counts memory and gives jobs that do not ask a part of it."""
    name, ours = "memory_mb_per_worker", queue.node.memory_mb
    counts = "MEMORY" in site.get("SelectTypeParameters", "").upper()
    if site and not counts:
        return f"{name}: null  # SLURM does not count memory here (SelectTypeParameters): a job has all of its nodes'"
    default = queue.default_memory
    if counts and default and not default.endswith("UNLIMITED") and ours:
        return f"{name}: {ours // workers}  # a node's {ours} MB over workers; jobs that do not ask get {default}"
    if counts and default:
        return f"{name}: null  # jobs that do not ask get {default}: all of a node"
    return f"{name}: null  # SET if jobs must ask for memory: scontrol show config | grep DefMem"


def _environment(interfaces: Sequence[Interface]) -> str:
    """The interface that ranks meet on: the fastest here, if one is the fastest; the others as comments."""
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    known = [f"#   {one.name}: {_kind(one)}" for one in interfaces]
    if not interfaces:
        return (
            "environment: {}             # SET on more than one node: the interface that ranks meet on, see slurm.yaml"
        )
    lines = [
        "environment:                # SET: the fastest interface of this login node; nodes may name theirs otherwise"
    ]
    lines += [f"  {name}: {interfaces[0].name}" for name in names]
    return "\n".join([*lines, *known])


def _kind(one: Interface) -> str:
    speed = f"{one.mbit_per_s} Mbit/s" if one.mbit_per_s else "its speed is not known"
    return f"InfiniBand, {speed}" if one.infiniband else speed
