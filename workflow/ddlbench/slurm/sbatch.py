"""What a job asks of SLURM, as Snakemake's plugin hands it to sbatch. Pure."""

import shlex
from typing import Protocol

from ddlbench.core.formatting import count_of
from ddlbench.settings.machine import Machine

# How long before a job's limit SLURM sends SIGUSR1 to its ranks [s]; it may be a minute earlier.
# Not with `B:`, which sends it to the batch script's shell alone, and ends the job there and then.
WARNING_S = 120


class Ranks(Protocol):
    """The ranks of a job: how many are started where, and by `adapter` whose variables they get.

    A RunSpec, or `preflight.promise.PreflightRanks`.
    """

    @property
    def adapter(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def workers_per_node(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def timed(self) -> bool: ...
    @property
    def profiled(self) -> bool: ...
    @property
    def bandwidth_mbit(self) -> int | None: ...


def job_resources(
    spec: Ranks, machine: Machine, minutes: int, account: str | None
) -> dict[str, str | int | None]:
    """Return what Snakemake asks of SLURM for a run; `asks` is for people who plan.

    The keys are those of snakemake-executor-plugin-slurm. `mpi` keeps it from wrapping the job in
    `srun -n1`, where our own srun would wait forever for the cores that the outer one holds; for
    one task the plugin takes only an empty `mpi`. `tasks_per_gpu=0` stops it from multiplying tasks
    by GPUs. What the plugin has no key for is in `slurm_extra`.
    """
    gpus = spec.workers if machine.device == "cuda" else 0
    counts = (
        f"{count_of(spec.nodes, 'node')}, {count_of(spec.workers, 'task')}, {count_of(gpus, 'GPU')}"
    )
    partition = machine.partition(spec.nodes, minutes)
    assert partition is not None  # make_plan refused runs that no partition holds
    return {
        "asks": f"{counts}, limit {minutes} min",
        "nodes": spec.nodes,
        "tasks": spec.workers,
        "tasks_per_gpu": 0,
        "cpus_per_task": machine.cores_per_worker,
        "mpi": "srun" if spec.workers > 1 else "",
        "gres": f"gpu:{spec.workers_per_node}" if gpus else None,
        "mem_mb": (machine.memory_mb_per_worker or 0)
        * spec.workers_per_node,  # of each node; 0: nothing is said
        "runtime": minutes,
        "slurm_partition": partition.name,
        "slurm_account": account,
        **_nodes(machine),
        **_comment(machine),
        "slurm_extra": _for_shell(
            [
                f"--ntasks-per-node={spec.workers_per_node}",
                f"--signal=USR1@{WARNING_S}",
                # Another job on its nodes would be measured too, and a node may have more than the
                # machine's file says.
                *(["--exclusive"] if spec.timed else []),
                *machine.slurm_flags,
                *(machine.profiled_flags if spec.profiled else ()),
                *_excluded(machine),
            ]
        ),
    }


def node_resources(machine: Machine, account: str | None) -> dict[str, str | int | None]:
    """Return what Snakemake requests for a job that trains nothing, such as `prepare`: one node.

    The default, where the machine's file does not describe such jobs: no GPUs, and the time limit
    of a partition for runs.
    """
    partition = machine.partition(1)
    if machine.launcher != "slurm" or partition is None:
        return {}
    excluded = {"slurm_extra": _for_shell(_excluded(machine))} if machine.exclude_nodes else {}
    return {
        **({} if machine.data_partition else _nodes(machine)),
        **_comment(machine),
        "slurm_partition": machine.data_partition or partition.name,
        "slurm_account": account,
        "runtime": machine.data_minutes or partition.max_minutes,
        # As for runs: else the plugin would ask for a task per GPU.
        **({"gres": machine.data_gres, "tasks_per_gpu": 0} if machine.data_gres else {}),
        **excluded,
    }


def _nodes(machine: Machine) -> dict[str, str | int | None]:
    """Return the SLURM plugin's keys for which nodes and which queue to use; the plugin quotes them
    itself.
    """
    keys = {"qos": machine.qos, "constraint": machine.constraint}
    return {name: value for name, value in keys.items() if value is not None}


def _comment(machine: Machine) -> dict[str, str | int | None]:
    """Return the site's text for a job's comment, which `patches/slurm_plugin.py` sets before the
    plugin's own.
    """
    return {"site_comment": machine.comment} if machine.comment else {}


def _for_shell(flags: list[str]) -> str:
    """Quote flags for `slurm_extra`, which the plugin hands to a shell as it stands.

    It also takes any `-J` in it, as in `--reservation=team-Jan`, for a flag of its own, and refuses
    the job: so empty quotes stand behind each hyphen of a value.
    """
    pairs = (flag.partition("=") for flag in flags)
    return " ".join(
        name + at + (shlex.quote(value).replace("-", "-''") if at else "")
        for name, at, value in pairs
    )


def _excluded(machine: Machine) -> list[str]:
    """Return sbatch's option that keeps a job off nodes; an empty list without any."""
    return [f"--exclude={','.join(machine.exclude_nodes)}"] if machine.exclude_nodes else []
