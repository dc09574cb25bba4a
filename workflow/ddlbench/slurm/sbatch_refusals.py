"""Why sbatch did not take a job, whether it may take it later, and what to do."""

import getpass
import re

from ddlbench.slurm.squeue import printed

# sbatch's words where a user, an account or a QOS has as many jobs in the queue as it may have, and
# where the controller is not there. It may take the job later.
_LATER = re.compile(
    r"\b(?:Assoc|QOS)\w*SubmitJob\w*|Unable to contact slurm controller \(connect failure\)"
)


def later(refusal: str) -> str | None:
    """Return the reason, from the plugin's message, why SLURM refused a job that it may accept
    later. None if it will never accept the job.
    """
    why = _LATER.search(refusal.split("sbatch call:")[0])
    return why[0] if why else None


# What to do about a job that sbatch refuses, by words of SLURM's sentence.
_TODO = {
    "invalid partition": "partitions: name, in the machine's file: one of those that `sinfo -s`"
    " shows",
    "time limit is invalid": "partitions: max_minutes, in the machine's file: at most what `sinfo"
    " -o '%P %l'` shows",
    "node count": "nodes and partitions: max_nodes, in the machine's file: at most what `sinfo -s`"
    " shows",
    "feature": "constraint, in the machine's file: of those that `sinfo -o '%P %f'` shows",
    "memory": "memory_mb_per_worker, in the machine's file: times workers_per_node "
    "at most what `sinfo -o '%P %m'` shows",
    "generic resource": "workers_per_node, in the machine's file: at most what `sinfo -o '%P %G'`"
    " shows",
    "node configuration": "no node is all that workers_per_node, cores_per_worker,"
    " memory_mb_per_worker and constraint of the machine's file ask for",
    "account": "account: one of `sacctmgr show assoc user=$USER format=account,partition,qos`",
    "qos": "qos, in the machine's file: one of `sacctmgr show assoc user=$USER"
    " format=account,partition,qos`",
}
OTHER_TODO = "what jobs ask for stands in the machine's file"


def refusal(message: str) -> str:
    """Format SLURM's refusal of a job on one line, with what to do.

    `said` is the plugin's message.
    """
    text = message.split("    sbatch call:")[0]
    lines = re.findall(r"sbatch: (?:error: )?(.+?)['.\s]*$", text, re.M) or [" ".join(text.split())]
    sentence = "; ".join(dict.fromkeys(lines))
    todo = next((todo for words, todo in _TODO.items() if words in sentence.lower()), OTHER_TODO)
    return f"SLURM did not take the job: {sentence}; {todo}"


def is_own_limit(refusal: str) -> bool:
    """Tell whether this limit counts the user's own jobs only: with none in the queue, SLURM will
    never take one.
    """
    return refusal.endswith(("AssocMaxSubmitJobLimit", "PerUserLimit"))


def most_jobs(reason: str) -> str:
    """Return the value of a limit on submitted jobs (`4`, or `4 or 9` where it differs by account
    or QOS); "" if SLURM does not say it.
    """
    if "Submit" not in reason:
        return ""
    each = (
        "PerAccount" if "PerAccount" in reason else "PerUser" if reason.startswith("QOSMax") else ""
    )
    group, user = "Grp" in reason, f"user={getpass.getuser()}"
    limit = f"{'Grp' if group else 'Max'}SubmitJobs{each}"
    whose = ["qos"] if reason.startswith("QOS") else ["assoc"] if group else ["assoc", user]
    answer = printed("sacctmgr", "--noheader", "--parsable2", "show", *whose, f"format={limit}")
    return " or ".join(
        map(str, sorted({int(number) for number in answer.split() if number.isdigit()}))
    )
