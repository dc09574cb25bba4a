"""Run + machine -> command line. Pure, so that job scripts are tested as values; `ddlbench.run` executes it.

On one machine each framework starts its ranks by its own launcher; on SLURM every framework starts by `srun`, one
task per worker, and `place.py` tells each rank who it is. `run/namespaces.py` starts ranks on one machine with a cable
between them.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Protocol

from ddlbench.core import registry
from ddlbench.core.plural import count_of
from ddlbench.settings.machine import Machine

# How long before a job's limit SLURM sends SIGUSR1 to its ranks [s]; it may be a minute earlier. Not with `B:`, which
# sends it to the batch script's shell alone, and ends the job there and then.
WARNING_S = 120
PROGRAM = ("python", "-m", "ddlbench.train")
# Stands for the value of a variable that might be a secret. Command lines end up in records, logs and Snakemake's
# memory, and any user of the machine can list them: `run/environment.py` puts the values into the ranks' environment.
HIDDEN = "..."
# A machine's own variables whose values are shown all the same: threads, memory, instruction sets, network, GPUs. They
# explain a speed.
SHOWN = ("OMP_", "MKL_", "KMP_", "MALLOC_", "ONEDNN_", "ATEN_", "GLOO_", "NCCL_", "UCX_", "CUDA_")


class Ranks(Protocol):
    """How many are started, and whose launcher starts them on one machine: a RunSpec, or `preflight.Trial`."""

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
    def bandwidth_mbit(self) -> int | None: ...


def command(spec: Ranks, machine: Machine, program: tuple[str, ...] = PROGRAM) -> list[str]:
    """The argv that starts all ranks of a run; `program` is what each rank executes (begins with `python`).

    Values of the machine's variables that might be secrets are HIDDEN.
    """
    settings = [f"{name}={value}" for name, value in environment(spec, hide(machine)).items()]
    return ["env", *settings, *_launcher(spec, machine, program)]


def hide(machine: Machine) -> Machine:
    """The machine with HIDDEN in place of values that might be secrets: all but those of SHOWN variables."""
    if all(name.startswith(SHOWN) for name, _ in machine.environment):
        return machine  # a plan of thousands of runs asks for each of them
    shown = ((name, value if name.startswith(SHOWN) else HIDDEN) for name, value in machine.environment)
    return replace(machine, environment=tuple(shown))


def environment(spec: Ranks, machine: Machine) -> dict[str, str]:
    """Variables that every rank gets: one compute thread per core it owns, the machine's own, the framework's."""
    threads = str(machine.cores_per_worker if machine.device == "cpu" else 1)
    # On CPUs a step's tensors come from malloc: glibc would hand their pages back and fault them in again each step.
    keep = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **(keep if machine.device == "cpu" else {}),
        **dict(machine.environment),
        **({"DDLBENCH_HOST_SUFFIX": machine.host_suffix} if machine.host_suffix else {}),
        **registry.member("frameworks", spec.adapter).environment(spec, machine),
    }


def resources(
    spec: Ranks, machine: Machine, minutes: int, account: str | None, program: tuple[str, ...] = PROGRAM
) -> dict[str, str | int | None]:
    """What Snakemake asks of the machine for a run; `launch` is for the rule's command, `asks` for people who plan.

    The keys are those of snakemake-executor-plugin-slurm. `mpi` keeps it from wrapping the job in `srun -n1`, where our
    own srun would wait forever for the cores that the outer one holds; for one task the plugin takes only an empty
    `mpi`. `tasks_per_gpu=0` stops it from multiplying tasks by GPUs. What it has no key for is in `slurm_extra`.
    """
    launch: dict[str, str | int | None] = {"launch": shlex.join(command(spec, machine, program))}
    if machine.launcher != "slurm":
        return launch
    gpus = spec.workers if machine.device == "cuda" else 0
    counts = f"{count_of(spec.nodes, 'node')}, {count_of(spec.workers, 'task')}, {count_of(gpus, 'GPU')}"
    partition = machine.partition(spec.nodes, minutes)
    assert partition is not None  # make_plan refused runs that no partition holds
    return launch | {
        "asks": f"{counts}, limit {minutes} min",
        "nodes": spec.nodes,
        "tasks": spec.workers,
        "tasks_per_gpu": 0,
        "cpus_per_task": machine.cores_per_worker,
        "mpi": "srun" if spec.workers > 1 else "",
        "gres": f"gpu:{spec.workers_per_node}" if gpus else None,
        "mem_mb": (machine.memory_mb_per_worker or 0) * spec.workers_per_node,  # of each node; 0: nothing is said
        "runtime": minutes,
        "slurm_partition": partition.name,
        "slurm_account": account,
        **_nodes(machine),
        "slurm_extra": _for_shell(
            [
                f"--ntasks-per-node={spec.workers_per_node}",
                f"--signal=USR1@{WARNING_S}",
                # Another job on its nodes would be measured too, and a node may have more than the machine's file says.
                *(["--exclusive"] if spec.timed else []),
                *machine.slurm_flags,
                *_excluded(machine),
            ]
        ),
    }


def node_resources(machine: Machine, account: str | None) -> dict[str, str | int | None]:
    """What Snakemake asks for a job that trains nothing, such as `prepare`: one node.

    Where the machine's file says nothing of such jobs: without GPUs, for as long as a partition for runs gives it.
    """
    partition = machine.partition(1)
    if machine.launcher != "slurm" or partition is None:
        return {}
    excluded = {"slurm_extra": _for_shell(_excluded(machine))} if machine.exclude_nodes else {}
    return {
        **({} if machine.data_partition else _nodes(machine)),
        "slurm_partition": machine.data_partition or partition.name,
        "slurm_account": account,
        "runtime": machine.data_minutes or partition.max_minutes,
        # As for runs: else the plugin would ask for a task per GPU.
        **({"gres": machine.data_gres, "tasks_per_gpu": 0} if machine.data_gres else {}),
        **excluded,
    }


def _nodes(machine: Machine) -> dict[str, str | int | None]:
    """The SLURM plugin's keys for which nodes and which queue it is to be; it quotes them itself."""
    said = {"qos": machine.qos, "constraint": machine.constraint}
    return {name: value for name, value in said.items() if value is not None}


def _for_shell(flags: list[str]) -> str:
    """Flags for `slurm_extra`, which the plugin hands to a shell as it stands.

    It also takes any `-J` in it, as in `--reservation=team-Jan`, for a flag of its own, and refuses the job: so empty
    quotes stand behind each hyphen of a value.
    """
    pairs = (flag.partition("=") for flag in flags)
    return " ".join(name + at + (shlex.quote(value).replace("-", "-''") if at else "") for name, at, value in pairs)


def workers_taken(spec: Ranks, machine: Machine) -> int:
    """Workers that this job blocks: its own, or all of its nodes' if it is timed."""
    return spec.nodes * machine.workers_per_node if spec.timed else spec.workers


def _excluded(machine: Machine) -> list[str]:
    """sbatch's option that keeps a job off nodes; none without any."""
    return [f"--exclude={','.join(machine.exclude_nodes)}"] if machine.exclude_nodes else []


def _launcher(spec: Ranks, machine: Machine, program: tuple[str, ...]) -> list[str]:
    if machine.launcher == "local":
        argv: list[str] = registry.member("frameworks", spec.adapter).local_launcher(spec, program)
        return argv
    if machine.launcher == "namespaces":
        rate = [f"--mbit={spec.bandwidth_mbit}"] if spec.bandwidth_mbit else []
        return ["python", "-m", "ddlbench.run.namespaces", f"--nodes={spec.nodes}", *rate, *program]
    # Every count is said: inside a job SLURM_NTASKS is not always what was asked for, and srun then starts fewer
    # ranks without an error.
    argv = [
        "srun",
        f"--nodes={spec.nodes}",
        f"--ntasks={spec.workers}",
        f"--ntasks-per-node={spec.workers_per_node}",
        f"--cpus-per-task={machine.cores_per_worker}",
        "--kill-on-bad-exit=1",
        *machine.slurm_flags,
    ]
    if machine.device == "cuda":
        argv.append(f"--gres=gpu:{spec.workers_per_node}")
    return [*argv, *program]
