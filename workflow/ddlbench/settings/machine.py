"""Where runs happen: `config/machines/<name>.yaml` as a frozen value; `launch.py` makes commands of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddlbench.core import beats, registry
from ddlbench.core.recipe import key
from ddlbench.settings import slurm_flags
from ddlbench.settings.config import CONFIG, NAMED, ConfigError, check, complain, expand, one_of
from ddlbench.settings.keys import schema_of, value_of
from ddlbench.settings.reading import read_yaml

LINE = r"^[^\x00-\x1f\x7f]+$"  # any text without control characters
QUEUE_ONLY = ("exclude_nodes", "slurm_flags", "qos", "constraint", "data_partition", "data_minutes", "data_gres")
CABLE = "veth0"  # what launcher namespaces calls the cable, on both ends


@dataclass(frozen=True)
class Partition:
    """A queue of a SLURM machine."""

    name: str = field(metadata=key("Its name, as in `sbatch --partition`.", pattern=NAMED))
    max_nodes: int = field(metadata=key("The most nodes a job may have there.", minimum=1))
    max_minutes: int = field(metadata=key("The longest a job may run there [min].", minimum=1))


@dataclass(frozen=True)
class Preflight:
    """What the preflight does beside what it always does."""

    nodes: str | None = field(
        default=None,
        metadata=key(
            "Nodes that are screened: put under load for some seconds per device, and compared with each other. `all` "
            "is as many as one run may use. A node that fails keeps training from starting. null screens none; then at "
            "most two nodes meet.",
            type=["integer", "string", "null"],
            minimum=1,
            pattern="^all$",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine. A key is declared here and nowhere else: schema and `config/README.md` follow."""

    name: str
    launcher: str = field(
        metadata=key(
            "Who starts the ranks. local is each framework's own launcher on this machine; slurm is srun; namespaces "
            "gives each of two ranks on this machine a network of its own, with a cable between them whose bandwidth a "
            "study sets (`bandwidths_mbit`). That needs root and iproute2.",
            enum=["local", "slurm", "namespaces"],
        )
    )
    device: str = field(metadata=key("What one worker computes on.", enum=["cpu", "cuda"]))
    device_name: str = field(
        metadata=key('What a worker is called on axes and in texts, for example "NVIDIA A100 (40 GB)".')
    )
    gpu_name: str | None = field(
        default=None,
        metadata=key(
            'A part of every GPU\'s name, as `nvidia-smi -L` prints it, for example "A100-SXM4-40GB". The preflight '
            "refuses another kind. null expects none.",
            minLength=1,
        ),
    )
    nodes: int = field(default=1, metadata=key("Nodes that one run may use; 1 with launcher local.", minimum=1))
    workers_per_node: int = field(
        metadata=key(
            "Workers that fill a node (its GPUs, or the cores to use). null is all cores, with launcher local only.",
            type=["integer", "null"],
            minimum=1,
            default=None,
        )
    )
    cores_per_worker: int = field(
        default=1, metadata=key("Cores each rank gets. On CPU machines also its compute threads.", minimum=1)
    )
    loader_threads: int = field(
        default=1,
        metadata=key(
            "Worker processes (native, torchvision) or threads (DALI, spdl) of each rank's data loader.", minimum=1
        ),
    )
    memory_mb_per_worker: int | None = field(
        default=None,
        metadata=key(
            "Memory that the queue is asked for, for each worker [MB]. null asks for none and gets the queue's "
            "default.",
            minimum=1,
        ),
    )
    data: str = field(
        default="results/data",
        metadata=key(
            "Folder of the prepared data sets. `~`, `$NAME`, `${NAME}` and `${NAME:-default}` mean what they mean in "
            "a shell; a variable that is not set and has no default is refused.",
            minLength=1,
        ),
    )
    partitions: tuple[Partition, ...] = field(
        default=(),
        metadata=key(
            "SLURM partitions, the preferred first; their keys are below. A run goes to the first with enough nodes "
            "and minutes for it."
        ),
    )
    preflight: Preflight = field(
        default=Preflight(),
        metadata=key("What the preflight does beside what it always does; its keys are below.", default={}),
    )
    exclude_nodes: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "Nodes that no job may get, by SLURM's names for them; with launcher slurm only. The preflight lists those "
            "that failed.",
            items={"pattern": NAMED},
        ),
    )
    data_partition: str | None = field(
        default=None,
        metadata=key(
            "SLURM partition for jobs that train nothing (prepare, verify), for example one without GPUs. null is one "
            "of `partitions`.",
            pattern=NAMED,
        ),
    )
    data_minutes: int | None = field(
        default=None,
        metadata=key(
            "Time limit of such a job [min]. Preparing goes on where it was stopped. null is the partition's longest; "
            "jobs with a shorter limit often start earlier.",
            minimum=1,
        ),
    )
    data_gres: str | None = field(
        default=None,
        metadata=key(
            "What such a job asks for as --gres, where a GPU partition refuses jobs that ask for no GPU. null asks for "
            "none.",
            pattern="^[a-zA-Z0-9_]+(:[a-zA-Z0-9_.]+)?(:[0-9]+)?$",
        ),
    )
    slurm_flags: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "Further flags of sbatch and srun, for every job that trains, in their long form. `--hint=nomultithread` "
            "gives ranks whole cores where --cpus-per-task counts hardware threads. Refused is what another key says, "
            f"or what would break a run: {', '.join(sorted(slurm_flags.REFUSED))}.",
            items={"pattern": slurm_flags.PATTERN},
        ),
    )
    qos: str | None = field(
        default=None,
        metadata=key(
            "Quality of service of every job outside data_partition, as in `sbatch --qos`. null asks for none.",
            pattern=LINE,
        ),
    )
    constraint: str | None = field(
        default=None,
        metadata=key(
            "Features that nodes must have, for every job outside data_partition, as in `sbatch --constraint`: "
            "`a100&nvlink`. null asks for none.",
            pattern=LINE,
        ),
    )
    modules: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "Environment modules that every job loads, in this order. Empty where the Python at hand has all.",
            items={"pattern": "^[A-Za-z0-9][A-Za-z0-9._+/-]*$"},
        ),
    )
    environment: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=key(
            "Environment variables of every rank, for example NCCL's.",
            propertyNames={"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            additionalProperties={"type": ["string", "integer"]},
        ),
    )
    silent_s: float = field(
        default=beats.SILENT_S,
        metadata=key(
            "Silence after which a rank has stopped answering and its run is ended [s]; on many nodes a little more. "
            "Time in which the file system of `results/` takes no writes does not count.",
            minimum=4 * beats.BEAT_S,
        ),
    )
    grace_s: float = field(
        default=beats.GRACE_S,
        metadata=key("Time that ranks get to write a checkpoint when they are told to stop [s].", minimum=1),
    )
    start_patience_s: int = field(
        default=120,
        metadata=key(
            "How long ranks wait for each other when they start, and in every collective [s]; but not less than twice "
            "the time after which a silent rank is noticed. Who does not come until then is named, and the run ended. "
            "More where the first `import torch` from a shared file system takes longer on some nodes than on others, "
            "or where the file system stands still for longer.",
            minimum=30,
        ),
    )
    host_suffix: str = field(
        default="",
        metadata=key(
            'What to append to a node\'s name to get its name on the fast network ("i" on JUWELS).',
            pattern="^[A-Za-z0-9._-]*$",
        ),
    )
    images_per_s: tuple[tuple[str, float], ...] = field(
        default=(),
        metadata=key(
            "Training images per second of one worker on a full node, by model: of pictures of 224 pixels, or of the "
            "size that the name gives, `resnet50@32` (lenet and resnet8_half: of any size). A first guess, for queue "
            "limits and for the plan as long as there are no records.",
            additionalProperties={"exclusiveMinimum": 0},
        ),
    )
    peak_tflops_per_worker: tuple[tuple[str, float], ...] = field(
        default=(),
        metadata=key(
            "Peak of one worker by its data sheet, by precision [10^12 floating-point operations a second, without "
            "sparsity]. `mfu` in the table of runs is the share of it that a run reached; null without it.",
            propertyNames={"enum": ["fp32", "tf32", "bf16", "fp16"]},
            additionalProperties={"exclusiveMinimum": 0},
        ),
    )
    cores_per_node_billed: int | None = field(
        default=None,
        metadata=key(
            "Core hours that are billed for an hour of one node, where nodes are billed whole; null where they are "
            "not, and the plan leaves core hours out.",
            minimum=1,
        ),
    )
    budget_unit: str = field(
        default="GPU hours",
        metadata=key(
            "What the centre gives to projects: the unit of the request in an application for compute time. Core hours "
            "need cores_per_node_billed, EFLOP budget_tflops_per_worker; a GPU hour is one of a worker.",
            enum=["core hours", "GPU hours", "node hours", "EFLOP"],
        ),
    )
    budget_tflops_per_worker: float | None = field(
        default=None,
        metadata=key(
            "Peak of one worker that the centre counts with [10^12 floating-point operations a second], for "
            "budget_unit EFLOP: peak x time, as GCS asks for on JUWELS (jards.gauss-centre.eu); usually the "
            "double-precision peak of its data sheet.",
            exclusiveMinimum=0,
        ),
    )
    price_per_gpu_hour: float | None = field(
        default=None,
        metadata=key(
            "What an hour of one worker costs, in `currency`. null where it is not sold: the plan then has no price.",
            minimum=0,
        ),
    )
    currency: str | None = field(default=None, metadata=key("Of the price, such as EUR.", pattern="^[A-Za-z]+$"))
    node_hours_between_interruptions: float | None = field(
        default=None,
        metadata=key(
            "Mean time between interruptions of one node [h], such as failures and spot interruptions. A run's is this "
            "divided by its nodes. null is unknown: table `costs` then has no loss by interruptions.",
            exclusiveMinimum=0,
        ),
    )
    interruptions_source: str | None = field(
        default=None, metadata=key("Where node_hours_between_interruptions is from; both or none.", minLength=1)
    )
    power_per_worker_w: float | None = field(
        default=None,
        metadata=key(
            "Power of one busy worker [W], such as its GPU's design power; for the plan's energy as long as no record "
            "has measured it. null is unknown.",
            exclusiveMinimum=0,
        ),
    )
    power_per_node_w: float | None = field(
        default=None,
        metadata=key(
            "Power of the rest of a busy node [W]. null is unknown. The plan has energy only if both powers are given.",
            minimum=0,
        ),
    )
    pue: float | None = field(
        default=None,
        metadata=key(
            "Site energy divided by computer energy (power usage effectiveness), by which the plan's energy is "
            "multiplied. null is unknown; the plan's energy is then that of the computers alone.",
            minimum=1,
        ),
    )

    @property
    def workers(self) -> int:
        """The most workers that one run can have."""
        return self.nodes * self.workers_per_node

    def rate(self, model: str, image_size: int) -> float | None:
        """Images per second of one worker by `images_per_s`, for pictures of this size; None if nothing is said of it.

        A rate of one size says little of another: operations grow with the area, and a GPU with little to do waits.
        """
        known = dict(self.images_per_s)
        usual = image_size == 224 or model in registry.SMALL_MODELS
        return known.get(f"{model}@{image_size}", known.get(model) if usual else None)

    def partition(self, nodes: int, minutes: int | None = None) -> Partition | None:
        """The first partition with room for so many nodes and minutes, else the one that gives them most minutes.

        None if none holds so many nodes. `minutes` is None where nobody knows how long it will take.
        """
        wide = [p for p in self.partitions if nodes <= p.max_nodes]
        enough = (p for p in wide if minutes is not None and minutes <= p.max_minutes)
        return next(enough, max(wide, key=lambda p: p.max_minutes, default=None))

    def limit_minutes(self, nodes: int, guess: int | None = None) -> int:
        """The run time limit of a job that is guessed to take so long, within its partition's limit; a day without one.

        Without a guess it is all that a partition gives.
        """
        partition = self.partition(nodes, guess)
        longest = partition.max_minutes if partition else 24 * 60
        return longest if guess is None else min(longest, guess)


SCHEMA = schema_of(Machine)


def load_machine(name: str, folder: Path = CONFIG / "machines") -> Machine:
    """The machine of that name. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data = check(read_yaml(path), SCHEMA, path)
    if data["launcher"] == "slurm":
        _check_slurm(data, path)
    if data["budget_unit"] == "core hours" and data["cores_per_node_billed"] is None:
        raise complain(
            path, "budget_unit", "core hours", "allowed: GPU hours, node hours, or name cores_per_node_billed"
        )
    if data["budget_unit"] == "EFLOP" and data["budget_tflops_per_worker"] is None:
        allowed = "allowed: core hours, GPU hours, node hours, or name budget_tflops_per_worker"
        raise complain(path, "budget_unit", "EFLOP", allowed)
    if (data["price_per_gpu_hour"] is None) != (data["currency"] is None):
        raise complain(path, "currency", data["currency"], "allowed: one with price_per_gpu_hour, none without")
    if (data["node_hours_between_interruptions"] is None) != (data["interruptions_source"] is None):
        given = data["interruptions_source"]
        allowed = "allowed: one with node_hours_between_interruptions, none without"
        raise complain(path, "interruptions_source", given, allowed)
    for queue_only in QUEUE_ONLY:
        if data["launcher"] != "slurm" and data[queue_only]:
            raise complain(path, queue_only, data[queue_only], f"allowed: none, because launcher is {data['launcher']}")
    _check_screened(data, path)
    if data["launcher"] == "local" and data["nodes"] != 1:
        raise complain(path, "nodes", data["nodes"], "allowed: 1, because launcher is local")
    if data["launcher"] == "namespaces":
        _check_namespaces(data, path)
    for name_and_size in data["images_per_s"]:
        model, at, size = name_and_size.partition("@")
        if at and not (size.isascii() and size.isdigit() and size[0] != "0"):
            raise complain(path, f"images_per_s.{name_and_size}", size, "allowed after @: the pixels of a side, as 32")
        if registry.models() != registry.OWN_MODELS and model not in registry.models():
            raise ConfigError(f"{path}: images_per_s.{model}: unknown model; {one_of(registry.models(), model)}")
    data["workers_per_node"] = data["workers_per_node"] or len(os.sched_getaffinity(0))
    data["data"] = expand(data["data"], path, "data")
    if set("{}") & set(data["data"]):  # to Snakemake they are wildcards
        raise complain(path, "data", data["data"], "allowed: a path without braces")
    return value_of(Machine, data, name=name)


def _check_namespaces(data: dict[str, Any], path: Path) -> None:
    """Raises ConfigError unless two nodes with a CPU rank each are asked for; names the cable in `environment`."""
    for name, only in (("nodes", 2), ("workers_per_node", 1), ("device", "cpu")):
        if data[name] != only:
            raise complain(path, name, data[name], f"allowed: {only}, because launcher is namespaces")
    if "GLOO_SOCKET_IFNAME" in data["environment"]:
        given = data["environment"]["GLOO_SOCKET_IFNAME"]
        raise complain(path, "environment.GLOO_SOCKET_IFNAME", given, "allowed: left out; launcher namespaces sets it")
    data["environment"] = {**data["environment"], "GLOO_SOCKET_IFNAME": CABLE}


def _check_screened(data: dict[str, Any], path: Path) -> None:
    """Raises ConfigError if more nodes are to be screened than a job can have."""
    screened = data["preflight"]["nodes"]
    most = max((partition["max_nodes"] for partition in data["partitions"]), default=1)
    if isinstance(screened, int) and screened > most:
        raise complain(path, "preflight.nodes", screened, f"allowed: all, null, or a number up to {most}")


def _check_slurm(data: dict[str, Any], path: Path) -> None:
    """Raises ConfigError without a partition, or `workers_per_node`, or if no partition holds so many nodes."""
    if not data["partitions"]:
        raise ConfigError(f"{path}: partitions: is missing; a machine with launcher slurm needs at least one")
    if data["workers_per_node"] is None:  # the cores of a login node say nothing
        raise ConfigError(f"{path}: workers_per_node: is missing; a machine with launcher slurm needs it")
    largest = max(partition["max_nodes"] for partition in data["partitions"])
    if data["nodes"] > largest:
        allowed = f"allowed: at most {largest}, the most that one of its partitions holds"
        raise complain(path, "nodes", data["nodes"], allowed)
    for number, flag in enumerate(data["slurm_flags"]):
        if why := slurm_flags.refused(flag):
            raise complain(path, f"slurm_flags.{number}", flag, why)
