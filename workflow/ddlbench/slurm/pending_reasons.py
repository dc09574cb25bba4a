"""Why a job waits in the queue, by SLURM's reason, and what to do where it will not start before a
person acts. Pure.
"""

import re

# Reasons for which a job does not start until a person does something (`squeue --format=%r`).
HOPELESS = {
    "BadConstraints": "no node is what it asks for",
    "DependencyNeverSatisfied": "the job that it waits for has failed",
    "InvalidAccount": "its account is not valid any more",
    "InvalidQOS": "its QOS is not valid any more",
    "AccountNotAllowed": "its account may not use the partition",
    "QOSNotAllowed": "its QOS may not use the partition",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives",
    "PartitionTimeLimit": "it asks for more time than the partition gives",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "QOSUsageThreshold": "its account has used too much for this QOS",
}
# The names of limits of an account and of a QOS, such as AssocGrpCPUMinutesLimit: those that do not
# end by themselves, and those that end when other jobs do. `RunMinutes` count what running jobs may
# still use.
_USED_UP = re.compile(r"(?:Assoc|QOS)Grp(?:\w*(?<!Run)Minutes\w*|WallLimit)")
_TOO_LARGE = re.compile(
    r"(?:Assoc|QOS)(?:Max\w*Per(?:Job|Node)\w*|Min\w+)|(?:QOS|Association)TimeLimit"
)
_SHARED = re.compile(r"(?:Assoc|QOS)(?:Grp|Max)(?!Jobs|SubmitJob)\w+")


def advice(job: str, reason: str) -> str:
    """Return what a job waits for and what to do, if a person has to act; else ""."""
    if "held" in reason.lower():
        who = "its administrator" if reason == "JobHeldAdmin" else f"scontrol release {job}"
        return f"is held ({reason}) and will not start; to release it: {who}; to give it up: scancel {job}"
    why = HOPELESS.get(reason)
    if _USED_UP.fullmatch(reason):
        why = "the time budget of its account or QOS is used up; ask for more"
    elif _TOO_LARGE.fullmatch(reason):
        why = "it asks for more, or less, than its account or QOS allows for one job; change the request"
    return f"will not start ({reason}): {why}; to give it up: scancel {job}" if why else ""


def shared_limit(reason: str) -> str:
    """Return a message about a job that waits for other jobs of its account or QOS; "" if it waits
    for something else.
    """
    if not _SHARED.fullmatch(reason):
        return ""
    limit = "sacctmgr show qos" if reason.startswith("QOS") else "sacctmgr show assoc user=$USER"
    return (
        f"waits for other jobs to end ({reason}), and never starts if it alone asks for more than"
        f" that limit: {limit}"
    )


def maintenance(reason: str) -> str:
    """Return a message about a job that waits for a maintenance; "" if it waits for something else.

    SLURM writes `_` for a space in some releases.
    """
    if "maintenance" not in reason.lower():
        return ""
    why = f"could not end before a maintenance begins, and waits for its end ({reason.replace('_', ' ')})"
    return f"{why}: scontrol show reservation; a job with a shorter limit (max_minutes) may start before"
