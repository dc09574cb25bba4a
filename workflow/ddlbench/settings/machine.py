"""Where runs happen: `config/machines/<name>.yaml` as a frozen value; `launch.py` makes commands of
it.
"""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ddlbench.core import heartbeats, registry
from ddlbench.settings.config import CONFIG, ConfigError, complain, expand, one_of, read_yaml
from ddlbench.settings.keys import Keys, Name, Nullable, Positive, key, mapping, value_of
from ddlbench.settings.own_models import is_own

LINE = r"^[^\x00-\x1f\x7f]+$"  # any text without control characters
QUEUE_ONLY = (
    *("exclude_nodes", "slurm_flags", "profiled_flags", "qos", "constraint", "comment"),
    *("data_partition", "data_minutes", "data_gres", "partitions"),
)
IMAGE = re.compile(
    r"(?P<file>.+\.sif)|.+@sha256:(?P<digest>[0-9a-f]{64})"
)  # what a container is made from
CABLE = "veth0"  # what launcher namespaces calls the cable, on both ends
Variable = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


# What may stand in `slurm_flags`: long flags that sbatch and srun both take and that nothing else
# says. SLURM reads its flags by getopt: `--arr=1-9` is `--array=1-9`, because no other flag begins
# so. Short flags are refused altogether: several of them may hide in one word. Sources: sbatch(1)
# and srun(1) of SLURM 22.05 and 24.05; `validation.py` of Snakemake's SLURM plugin 2.8.0. Any
# value, but for control characters: whoever hands a flag to a shell quotes it.
PATTERN = r"^--[a-z][a-z0-9-]*(=[^\x00-\x1f\x7f]*)?$"
_BY_REASON = {
    "key qos stands for it": "qos",
    "key constraint stands for it": "constraint prefer cluster-constraint",
    "key comment stands for it": "comment",
    "key partitions stands for it": "partition",
    "key exclude_nodes stands for it": "exclude",
    "key memory_mb_per_worker stands for it": "mem mem-per-cpu mem-per-gpu",
    "key cores_per_worker stands for it": "cpus-per-task cpus-per-gpu",
    "--config account=... stands for it": "account",
    "key workers_per_node and the study's workers stand for it": (
        "nodes ntasks ntasks-per-node ntasks-per-core ntasks-per-gpu ntasks-per-socket"
        " tasks-per-node gres gpus gpus-per-node gpus-per-socket gpus-per-task tres-per-task"
        " tres-per-job"
    ),
    "ddlbench sets time limits, from images_per_s and partitions": "time time-min signal",
    "ddlbench asks for nodes alone, or not, run by run": "exclusive oversubscribe share overcommit",
    "it would keep a run with a lost node alive": "no-kill kill-on-bad-exit",
    "Snakemake's SLURM plugin says it, or must not be told it": (
        "array job-name output error input open-mode parsable "
        "quiet verbose wait wrap export export-file chdir workdir clusters ignore-pbs"
    ),
    "the profile says it (slurm-requeue)": "requeue no-requeue",
    "jobs would never start": "hold test-only help usage version no-allocate",
    "srun does not know it": "get-user-env uid gid batch",
    "sbatch does not know it; variables of srun, such as SLURM_MPI_TYPE and SLURM_CPU_BIND, go into environment": (
        "mpi cpu-bind label unbuffered pty multi-prog prolog epilog task-prolog task-epilog"
        " preserve-env relative threads overlap exact whole interactive"
    ),
}
REFUSED = {flag: reason for reason, flags in _BY_REASON.items() for flag in flags.split()}


@dataclass(frozen=True)
class Partition(Keys):
    name: Name = key("Its name, as in `sbatch --partition`.")
    max_nodes: int = key("The most nodes a job may have there.", minimum=1)
    max_minutes: int = key("The longest a job may run there [min].", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Machine(Keys):
    """A machine where runs happen.

    A key is declared here and nowhere else: schema and `config/README.md` follow.
    """

    name: str
    launcher: str = key(
        "Launcher of the ranks. local starts them as processes of this machine; slurm is"
        " srun; namespaces gives each of two ranks on this machine a network of its own, with a"
        " cable between them whose bandwidth a study sets (`bandwidths_mbit`). That needs root and"
        " iproute2.",
        enum=["local", "slurm", "namespaces"],
    )
    device: str = key("Device of one worker.", enum=["cpu", "cuda"])
    device_name: str = key(
        'What a worker is called on axes and in texts, for example "NVIDIA A100 (40 GB)".'
    )
    gpu_name: str | None = key(
        'A part of every GPU\'s name, as `nvidia-smi -L` prints it, for example "A100-SXM4-40GB".'
        " The preflight refuses other GPUs. null accepts any.",
        None,
        minLength=1,
    )
    nodes: int = key(
        "Largest number of nodes that one run may use; 1 with launcher local.", 1, minimum=1
    )
    workers_per_node: Annotated[int, Nullable] = key(
        "Workers that fill a node (its GPUs, or the cores to use). null is all cores, with launcher"
        " local only.",
        None,
        minimum=1,
    )
    cores_per_worker: int = key(
        "Cores each rank gets. On CPU machines also its compute threads.", 1, minimum=1
    )
    loader_threads: int = key(
        "Worker processes (native, torchvision) or threads (DALI, spdl) of each rank's loader.",
        1,
        minimum=1,
    )
    memory_mb_per_worker: int | None = key(
        "Memory that the queue is asked for, for each worker [MB]. null asks for none and gets the"
        " queue's default.",
        None,
        minimum=1,
    )
    data: str = key(
        "Folder of the prepared data sets. `~`, `$NAME`, `${NAME}` and `${NAME:-default}` mean what"
        " they mean in a shell; a variable that is not set and has no default is refused.",
        "results/data",
        minLength=1,
    )
    partitions: tuple[Partition, ...] = key(
        "SLURM partitions, the preferred first; their keys are below. A run goes to the first with"
        " enough nodes and minutes for it.",
        (),
    )
    node_check: str | None = key(
        "A command that checks the health of a node, such as `dcgmi diag -r 1`. The preflight runs"
        " it once on each of its nodes, where ranks run; if it fails, training does not start, and"
        " the error has the last lines of what it printed. It is split into words as a shell does,"
        " and no shell runs it; `bash -c '...'` is one. null: no check.",
        None,
        pattern=LINE,
    )
    node_check_timeout_s: int = key(
        "Timeout of that command, after which it is ended and has failed [s].",
        60,
        minimum=1,
        maximum=3600,
    )
    exclude_nodes: tuple[Name, ...] = key(
        "Nodes to exclude from all jobs, by SLURM's names for them; with launcher slurm only.", ()
    )
    data_partition: Name | None = key(
        "SLURM partition for jobs that train nothing (prepare, verify), for example one without"
        " GPUs. null is one of `partitions`.",
        None,
    )
    data_minutes: int | None = key(
        "Time limit of such a job [min]. A preparation that is stopped starts again from the"
        " beginning. null is the partition's longest; jobs with a shorter limit often start"
        " earlier.",
        None,
        minimum=1,
    )
    data_gres: str | None = key(
        "What such a job asks for as --gres, where a GPU partition refuses jobs that ask for no"
        " GPU. null asks for none.",
        None,
        pattern="^[a-zA-Z0-9_]+(:[a-zA-Z0-9_.]+)?(:[0-9]+)?$",
    )
    slurm_flags: tuple[Annotated[str, Field(pattern=PATTERN)], ...] = key(
        "Further flags of sbatch and srun for every training job, in their long form."
        " `--hint=nomultithread` gives ranks whole cores where --cpus-per-task counts hardware"
        " threads. Refused are flags that another key sets, or that would break a run:"
        f" {', '.join(sorted(REFUSED))}.",
        (),
    )
    profiled_flags: tuple[Annotated[str, Field(pattern=PATTERN)], ...] = key(
        "Such flags of sbatch for `profiled` runs alone, for example `--disable-dcgm` where the"
        " site's own monitoring holds the GPU's counters.",
        (),
    )
    comment: str | None = key(
        "Comment that the site requires in `sbatch --comment`, for every job. It stands before what"
        " Snakemake writes there, by which ddlbench knows its jobs.",
        None,
        pattern=LINE,
    )
    qos: str | None = key(
        "Quality of service of every job outside data_partition, as in `sbatch --qos`. null asks"
        " for none.",
        None,
        pattern=LINE,
    )
    constraint: str | None = key(
        "Features that nodes must have, for every job outside data_partition, as in `sbatch"
        " --constraint`: `a100&nvlink`. null asks for none.",
        None,
        pattern=LINE,
    )
    modules: tuple[Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._+/-]*$")], ...] = key(
        "Environment modules that every job loads, in this order. Empty if Python and all libraries"
        " are there without modules.",
        (),
    )
    container: tuple[Annotated[str, Field(pattern=LINE)], ...] = key(
        "Words put before Python in the command of each rank, if its software is in a container:"
        " `[apptainer, exec, --nv, ~/ddlbench.sif]`, built from `envs/ddlbench.def`. With launcher"
        " local it stands before the command that starts the ranks. One word names the image, a file"
        " `*.sif` or `<name>@sha256:<digest>`; records have its digest. Expanded as `data` is. Plan, tables"
        " and figures run outside the container. Empty: no container.",
        (),
    )
    environment: Annotated[tuple[tuple[str, str], ...], mapping(int | str, Variable)] = key(
        "Environment variables of every rank, for example NCCL's.", ()
    )
    silent_s: float = key(
        "Heartbeat timeout: a run is ended if one of its ranks is silent for this long [s]; on many"
        " nodes a little longer. Time in which the file system of `results/` takes no writes does"
        " not count.",
        heartbeats.SILENT_S,
        minimum=4 * heartbeats.HEARTBEAT_S,
    )
    grace_s: float = key(
        "Time that ranks get for a checkpoint when told to stop [s].", heartbeats.GRACE_S, minimum=1
    )
    start_timeout_s: int = key(
        "Timeout of ranks that wait for each other, at the start and in every collective [s]; at"
        " least twice the heartbeat timeout. A rank that is missing by then is named, and the run"
        " is ended. Increase it where the first `import torch` from a shared file system takes"
        " longer on some nodes than on others, or where the file system stands still for longer.",
        120,
        minimum=30,
    )
    host_suffix: str = key(
        'What to append to a node\'s name to get its name on the fast network ("i" on JUWELS).',
        "",
        pattern="^[A-Za-z0-9._-]*$",
    )
    images_per_s: Annotated[tuple[tuple[str, float], ...], mapping(Positive)] = key(
        "Training images per second of one worker on a full node, by model: of pictures of 224"
        " pixels, or of the size that the name gives, `resnet50@32` (lenet and resnet8_half: of any"
        " size). A first guess, for queue limits and for the plan as long as there are no records.",
        (),
    )
    peak_tflops_per_worker: Annotated[
        tuple[tuple[str, float], ...], mapping(Positive, Literal["fp32", "tf32", "bf16", "fp16"])
    ] = key(
        "Peak of one worker by its data sheet, by precision [10^12 floating-point operations a"
        " second, without sparsity]. `mfu` in the table of runs is the share of it that a run"
        " reached; null without it.",
        (),
    )
    cores_per_node_billed: int | None = key(
        "Core hours that are billed for an hour of one node, where nodes are billed whole; null"
        " where they are not, and the plan leaves core hours out.",
        None,
        minimum=1,
    )
    budget_unit: str = key(
        "What the centre gives to projects: the unit of the request in an application for compute"
        " time (`ddlbench export --to application`). Core hours need cores_per_node_billed, EFLOP"
        " budget_tflops_per_worker. GPU hours and EFLOP count all workers that nobody else can use"
        " meanwhile: those of a timed run's nodes.",
        "GPU hours",
        enum=["core hours", "GPU hours", "node hours", "EFLOP"],
    )
    budget_tflops_per_worker: float | None = key(
        "Peak of one worker that the centre counts with [10^12 floating-point operations a second],"
        " for budget_unit EFLOP: peak x time, as GCS asks for on JUWELS (jards.gauss-centre.eu);"
        " usually the double-precision peak of its data sheet.",
        None,
        exclusiveMinimum=0,
    )
    price_per_gpu_hour: float | None = key(
        "What an hour of one worker costs, in `currency`. A timed run pays for all workers of its"
        " nodes, and so does any run where cores_per_node_billed is given. null where it is not"
        " sold: the plan then has no price.",
        None,
        minimum=0,
    )
    currency: str | None = key("Currency of the price, such as EUR.", None, pattern="^[A-Za-z]+$")
    node_hours_between_interruptions: float | None = key(
        "Mean time between interruptions of one node [h], such as failures and spot interruptions."
        " For a run it is divided by its number of nodes. null is unknown: table `costs` then has"
        " no loss by interruptions.",
        None,
        exclusiveMinimum=0,
    )
    interruptions_source: str | None = key(
        "The source of that number; give both or neither.", None, minLength=1
    )
    power_per_worker_w: float | None = key(
        "Power of one busy worker [W], such as its GPU's design power; for the plan's energy as"
        " long as no record has measured it. null is unknown.",
        None,
        exclusiveMinimum=0,
    )
    power_per_node_w: float | None = key(
        "Power of the rest of a busy node [W]. null is unknown. The plan has energy only if both"
        " powers are given.",
        None,
        minimum=0,
    )
    pue: float | None = key(
        "Site energy divided by computer energy (power usage effectiveness), by which energies of"
        " the plan, of answers and of predictions are multiplied; table runs has what the computers"
        " measured. null is unknown; all energies are then those of the computers alone.",
        None,
        minimum=1,
    )

    @property
    def workers(self) -> int:
        """Return the most workers that one run can have."""
        return self.nodes * self.workers_per_node

    def rate(self, model: str, image_size: int) -> float | None:
        """Return the images per second of one worker from `images_per_s`, for pictures of this
        size; None if the file gives none. A rate at one size is little evidence for another size:
        operations grow with the area, and a GPU with little to do waits.
        """
        rates = dict(self.images_per_s)
        usual = image_size == 224 or model in registry.SMALL_MODELS
        return rates.get(f"{model}@{image_size}", rates.get(model) if usual else None)

    def partition(self, nodes: int, minutes: int | None = None) -> Partition | None:
        """Return the first partition that allows this number of nodes and minutes; else, of those
        with enough nodes, the one that allows the most minutes. None if no partition has enough
        nodes. `minutes` is None where the duration is unknown.
        """
        wide = [p for p in self.partitions if nodes <= p.max_nodes]
        enough = (p for p in wide if minutes is not None and minutes <= p.max_minutes)
        return next(enough, max(wide, key=lambda p: p.max_minutes, default=None))

    def limit_minutes(self, nodes: int, guess: int | None = None) -> int:
        """Return the run time limit of a job that is guessed to take so long, within its
        partition's limit; a day without one. Without a guess it is all that a partition gives.
        """
        partition = self.partition(nodes, guess)
        longest = partition.max_minutes if partition else 24 * 60
        return longest if guess is None else min(longest, guess)


def load_machine(name: str, folder: Path = CONFIG / "machines") -> Machine:
    """Load the machine of that name. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    machine = value_of(Machine, read_yaml(path), path, name=name)
    if machine.launcher == "slurm":
        _check_slurm(machine, path)
    for key_, wrong, allowed in _rules(machine):
        if wrong:
            raise complain(path, key_, getattr(machine, key_), allowed)
    if machine.node_check is not None:
        try:
            words = shlex.split(machine.node_check)
        except ValueError:  # a quotation that does not end
            words = []
        if not words:
            allowed = "allowed: a command and its arguments, with every quotation closed"
            raise complain(path, "node_check", machine.node_check, allowed)
    for name_and_size, _ in machine.images_per_s:
        model, at, size = name_and_size.partition("@")
        if at and not (size.isascii() and size.isdigit() and size[0] != "0"):
            raise complain(
                path,
                f"images_per_s.{name_and_size}",
                size,
                "allowed after @: the pixels of a side, such as 32",
            )
        if (
            not is_own(model)
            and registry.models() != registry.OWN_MODELS
            and model not in registry.models()
        ):
            raise ConfigError(
                f"{path}: images_per_s.{model}: unknown model; {one_of(registry.models(), model)}"
            )
    variables = {variable: str(value) for variable, value in machine.environment}
    if machine.launcher == "namespaces":
        if "GLOO_SOCKET_IFNAME" in variables:
            allowed = "allowed: left out; launcher namespaces sets it"
            raise complain(
                path, "environment.GLOO_SOCKET_IFNAME", variables["GLOO_SOCKET_IFNAME"], allowed
            )
        variables["GLOO_SOCKET_IFNAME"] = CABLE
    data = expand(machine.data, path, "data")
    if set("{}") & set(data):
        raise complain(
            path,
            "data",
            data,
            "allowed: a path without braces, which Snakemake takes for wildcards",
        )
    container = tuple(
        expand(word, path, f"container.{number}") for number, word in enumerate(machine.container)
    )
    if container and sum(bool(IMAGE.fullmatch(word)) for word in container) != 1:
        allowed = (
            "allowed: words of which one names the image: a file *.sif, or <name>@sha256:<64 hex"
            " digits>"
        )
        raise complain(path, "container", list(container), allowed)
    cores, variables_ = (
        machine.workers_per_node or len(os.sched_getaffinity(0)),
        tuple(sorted(variables.items())),
    )
    return replace(
        machine, workers_per_node=cores, data=data, container=container, environment=variables_
    )


def _rules(machine: Machine) -> Iterator[tuple[str, bool, str]]:
    """Yield (key, whether its value conflicts with those of other keys, what is allowed
    instead).
    """
    launcher = machine.launcher
    only: dict[str, dict[str, Any]] = {
        "local": {"nodes": 1},
        "namespaces": {"nodes": 2, "workers_per_node": 1, "device": "cpu", "container": ()},
        "slurm": {},
    }
    uncounted = launcher == "local" and machine.device == "cuda" and not machine.workers_per_node
    yield "workers_per_node", uncounted, "allowed: the number of its GPUs"
    core_hours, eflop = machine.budget_unit == "core hours", machine.budget_unit == "EFLOP"
    unbilled = core_hours and machine.cores_per_node_billed is None
    unknown = eflop and machine.budget_tflops_per_worker is None
    yield "budget_unit", unbilled, "allowed: GPU hours, node hours, or name cores_per_node_billed"
    yield (
        "budget_unit",
        unknown,
        "allowed: core hours, GPU hours, node hours, or name budget_tflops_per_worker",
    )
    pairs = {
        "currency": "price_per_gpu_hour",
        "interruptions_source": "node_hours_between_interruptions",
    }
    for name, other in pairs.items():
        alone = (getattr(machine, name) is None) != (getattr(machine, other) is None)
        yield name, alone, f"allowed: one with {other}, none without"
    for name in QUEUE_ONLY:
        is_set = launcher != "slurm" and bool(getattr(machine, name))
        yield name, is_set, f"allowed: none, because launcher is {launcher}"
    for name, value in only[launcher].items():
        yield (
            name,
            getattr(machine, name) != value,
            f"allowed: {value}, because launcher is {launcher}",
        )


def _check_slurm(machine: Machine, path: Path) -> None:
    """Raise ConfigError without a partition, or `workers_per_node`, or if no partition holds so
    many nodes.
    """
    for name, needs in (
        ("partitions", "at least one"),
        ("workers_per_node", "it"),
    ):  # the cores of a login node are no evidence
        if not getattr(machine, name):
            raise ConfigError(
                f"{path}: {name}: is missing; a machine with launcher slurm needs {needs}"
            )
    largest = max(partition.max_nodes for partition in machine.partitions)
    if machine.nodes > largest:
        allowed = f"allowed: at most {largest}, the most that one of its partitions holds"
        raise complain(path, "nodes", machine.nodes, allowed)
    for name in ("slurm_flags", "profiled_flags"):
        for number, flag in enumerate(getattr(machine, name)):
            if why := refused(flag):
                raise complain(path, f"{name}.{number}", flag, why)


def refused(flag: str) -> str | None:
    """Return why a flag that matches PATTERN must not stand there, as the end of a sentence; None
    if it may.
    """
    name = flag.removeprefix("--").partition("=")[0]
    if name in REFUSED:
        return REFUSED[name]
    meant = [flag for flag in REFUSED if flag.startswith(name)]
    return f"it is short for --{meant[0]}: {REFUSED[meant[0]]}" if meant else None
