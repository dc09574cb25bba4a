"""Run + machine -> command line. Pure, so that job scripts are tested as values; `run.py` executes it.

On one machine each framework starts its ranks by its own launcher; on SLURM every framework starts by `srun`, one
task a worker, and `ranks.py` tells each rank who it is.
"""

from __future__ import annotations

from ddlbench import registry
from ddlbench.machine import Machine
from ddlbench.spec import RunSpec

PROGRAM = ("python", "-m", "ddlbench.train")


def command(spec: RunSpec, machine: Machine, program: tuple[str, ...] = PROGRAM) -> list[str]:
    """The argv that starts all ranks of a run; `program` is what each rank executes (begins with `python`)."""
    settings = [f"{name}={value}" for name, value in environment(spec, machine).items()]
    return ["env", *settings, *_launcher(spec, machine, program)]


def environment(spec: RunSpec, machine: Machine) -> dict[str, str]:
    """Variables that every rank gets: one compute thread a core it owns, the machine's own, the framework's."""
    threads = str(machine.cores_per_worker if machine.device == "cpu" else 1)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **dict(machine.environment),
        **registry.member("frameworks", spec.framework).environment(spec, machine),
    }


def _launcher(spec: RunSpec, machine: Machine, program: tuple[str, ...]) -> list[str]:
    if machine.launcher == "local":
        argv: list[str] = registry.member("frameworks", spec.framework).local_launcher(spec.workers, program)
        return argv
    # Every count is said: inside a job SLURM_NTASKS is not always what was asked for, and srun then starts fewer
    # ranks without an error.
    argv = [
        "srun",
        f"--nodes={spec.nodes}",
        f"--ntasks={spec.workers}",
        f"--ntasks-per-node={spec.workers_per_node}",
        f"--cpus-per-task={machine.cores_per_worker}",
        "--kill-on-bad-exit=1",
    ]
    if machine.device == "cuda":
        argv.append(f"--gres=gpu:{spec.workers_per_node}")
    return [*argv, *program]


def torchrun(workers: int, program: tuple[str, ...]) -> list[str]:
    """PyTorch's launcher on one machine, with a free port of its own; for every framework on torch.distributed."""
    assert program[:1] == ("python",), program
    return ["python", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", *program[1:]]
