"""Run + machine -> command line. Pure, so that job scripts are tested as values; `ddlbench.run`
executes it.

Ranks of every framework are started alike: by `run/local.py` on one machine, by `srun` on SLURM
(`slurm/srun.py`), where `place.py` tells each rank who it is. `run/namespaces.py` starts ranks on
one machine with a cable between them.
"""

import shlex
from dataclasses import replace

from ddlbench.core import registry
from ddlbench.settings.machine import Machine
from ddlbench.slurm.sbatch import Ranks, job_resources
from ddlbench.slurm.srun import srun

PROGRAM = ("python", "-m", "ddlbench.train")
# Stands for the value of a variable that might be a secret. Command lines end up in records, logs
# and Snakemake's memory, and any user of the machine can list them: `run/job.py` puts the values
# into the ranks' environment.
HIDDEN = "..."
# A machine's own variables whose values are shown all the same: threads, memory, instruction sets,
# network, GPUs. They explain a speed.
SHOWN = (
    "OMP_",
    "MKL_",
    "KMP_",
    "MALLOC_",
    "ONEDNN_",
    "ATEN_",
    "GLOO_",
    "NCCL_",
    "UCX_",
    "CUDA_",
    "SLURM_CPU_BIND",
)


def command(spec: Ranks, machine: Machine, program: tuple[str, ...] = PROGRAM) -> list[str]:
    """Return the argv that starts all ranks of a run; `program` is what each rank executes (begins
    with `python`). Values of the machine's variables that might be secrets are HIDDEN.
    """
    settings = [f"{name}={value}" for name, value in environment(spec, hide(machine)).items()]
    return ["env", *settings, *launcher(spec, machine, program)]


def hide(machine: Machine) -> Machine:
    """Return the machine with HIDDEN in place of values that might be secrets: all but those of
    SHOWN variables.
    """
    if all(name.startswith(SHOWN) for name, _ in machine.environment):
        return machine  # a plan of thousands of runs calls this for each run
    shown = (
        (name, value if name.startswith(SHOWN) else HIDDEN) for name, value in machine.environment
    )
    return replace(machine, environment=tuple(shown))


def environment(spec: Ranks, machine: Machine) -> dict[str, str]:
    """Return the variables that every rank gets: one compute thread per core it owns, the machine's
    own, the framework's.
    """
    threads = str(machine.cores_per_worker if machine.device == "cpu" else 1)
    # On CPUs a step's tensors come from malloc: glibc would hand their pages back and fault them in
    # again each step.
    keep = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **(keep if machine.device == "cpu" else {}),
        **dict(machine.environment),
        **host_suffix(machine),
        **registry.member("frameworks", spec.adapter).environment(spec, machine),
    }


def host_suffix(machine: Machine) -> dict[str, str]:
    """Return the variable by which ranks of srun find each other (`slurm/step.py`); none where the
    machine's file has none.
    """
    return {"DDLBENCH_HOST_SUFFIX": machine.host_suffix} if machine.host_suffix else {}


def resources(
    spec: Ranks,
    machine: Machine,
    minutes: int,
    account: str | None,
    program: tuple[str, ...] = PROGRAM,
) -> dict[str, str | int | None]:
    """Return what Snakemake requests from the machine for a run; `launch` is for the rule's
    command.
    """
    launch: dict[str, str | int | None] = {"launch": shlex.join(command(spec, machine, program))}
    return launch | (
        job_resources(spec, machine, minutes, account) if machine.launcher == "slurm" else {}
    )


def launcher(spec: Ranks, machine: Machine, program: tuple[str, ...]) -> list[str]:
    """Return the words that start a program as ranks: processes of this machine, `srun`, or network
    namespaces.
    """
    if machine.launcher == "local":
        start = ["python", "-m", "ddlbench.run.local", f"--workers={spec.workers}"]
        return [*machine.container, *start, *program]
    if machine.launcher == "namespaces":
        rate = [f"--mbit={spec.bandwidth_mbit}"] if spec.bandwidth_mbit else []
        return ["python", "-m", "ddlbench.run.namespaces", f"--nodes={spec.nodes}", *rate, *program]
    return srun(spec, machine, (*machine.container, *program))
