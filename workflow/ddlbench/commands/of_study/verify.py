"""`ddlbench verify`: whether prepared data are whole: those of the study, or in the folders that
are named.
"""

import os
from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.core import files

PLACE = 8
HELP = "read all prepared data again; on a cluster in a job: srun -c 8 ddlbench verify ..."
ARGUMENTS = {
    "folders": {
        "type": Path,
        "nargs": "*",
        "help": "of prepared forms; default: all of the study",
    },
    "--processes": {"type": int, "default": len(os.sched_getaffinity(0)), "help": "that read"},
}


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.data.crew import CrewError
    from ddlbench.data.verify import verify

    folders = call.options.folders
    if not folders:
        folders = sorted(
            {Path(job.manifest).parent for job in call.settings.plan.runs.values() if job.manifest}
        )
    try:
        problems = verify(folders, call.options.processes)
    except CrewError as error:
        problems = [files.printable(error)]
    print(*problems, sep="\n", end="\n" * bool(problems))
    if problems and not call.options.folders:
        again = [str(folder / "manifest.json") for folder in folders]
        print(f"To prepare them again: {call.snakemake('--force', *again, '--')}")
    return 1 if problems else 0
