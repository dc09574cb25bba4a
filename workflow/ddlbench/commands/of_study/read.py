"""`ddlbench read`: the study's programs read again, where their files say something else than they
were read by.
"""

from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.commands.of_study import NO_ARGUMENTS
from ddlbench.core import layout

PLACE = 10
HELP = "read programs' output again, after a fix; no training"
ARGUMENTS = NO_ARGUMENTS


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.run import program

    code, lines = 0, []
    for run, job in call.settings.plan.runs.items():
        folder = Path(layout.run(run))
        if job.spec.kind != "program" or not folder.is_dir():
            continue
        came = program.read_again(job.spec, folder)
        if came:
            lines.append(f"{run}: {came}")
            code |= not came.startswith("read")
    call.show(lines or ["there is nothing to read again"], [])
    return code
