"""What may stand in a machine's `slurm_flags`: long flags that sbatch and srun both take and that nothing else says.

SLURM reads its flags by getopt: `--arr=1-9` is `--array=1-9`, because no other flag begins so. A flag is refused if it
is one of REFUSED, or the beginning of one. Short flags are refused altogether (`PATTERN`): several of them may hide in
one word. Sources: sbatch(1) and srun(1) of SLURM 22.05 and 24.05; `validation.py` of Snakemake's SLURM plugin 2.8.0.
"""

# Any value, but for control characters: whoever hands a flag to a shell quotes it.
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
    "key workers_per_node and the study's workers stand for it": "nodes ntasks ntasks-per-node ntasks-per-core "
    "ntasks-per-gpu ntasks-per-socket tasks-per-node gres gpus gpus-per-node gpus-per-socket gpus-per-task "
    "tres-per-task tres-per-job",
    "ddlbench sets time limits, from images_per_s and partitions": "time time-min signal",
    "ddlbench asks for nodes alone, or not, run by run": "exclusive oversubscribe share overcommit",
    "it would keep a run with a lost node alive": "no-kill kill-on-bad-exit",
    "Snakemake's SLURM plugin says it, or must not be told it": "array job-name output error input open-mode parsable "
    "quiet verbose wait wrap export export-file chdir workdir clusters ignore-pbs",
    "the profile says it (slurm-requeue)": "requeue no-requeue",
    "jobs would never start": "hold test-only help usage version no-allocate",
    "srun does not know it": "get-user-env uid gid batch",
    "sbatch does not know it; variables of srun, such as SLURM_MPI_TYPE and SLURM_CPU_BIND, go into environment": "mpi "
    "cpu-bind label unbuffered pty multi-prog prolog epilog task-prolog task-epilog preserve-env relative threads "
    "overlap exact whole interactive",
}
REFUSED = {flag: reason for reason, flags in _BY_REASON.items() for flag in flags.split()}


def refused(flag: str) -> str | None:
    """Why a flag that matches PATTERN must not stand there, as the end of a sentence; None if it may."""
    name = flag.removeprefix("--").partition("=")[0]
    if name in REFUSED:
        return REFUSED[name]
    meant = [flag for flag in REFUSED if flag.startswith(name)]
    return f"it is short for --{meant[0]}: {REFUSED[meant[0]]}" if meant else None
