"""The srun that starts a run's ranks within its job: one task per worker. Pure."""

from ddlbench.settings.machine import Machine
from ddlbench.slurm.sbatch import Ranks


def srun(spec: Ranks, machine: Machine, program: tuple[str, ...]) -> list[str]:
    """Return the argv that starts all ranks of a run within its job: one task per worker."""
    # Every count is given explicitly: inside a job SLURM_NTASKS is not always what was asked for,
    # and srun then starts fewer ranks without an error.
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
