"""`ddlbench failures`: what failed jobs left, whatever else is done: a table too."""

from pathlib import Path

from ddlbench.commands.call import MOST, Call, older
from ddlbench.commands.of_study import ALL, JSON
from ddlbench.core import layout

PLACE = 4
HELP = "what went wrong so far: which run, which rank, why"
ARGUMENTS = JSON | ALL


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.analysis import failures, refusals, tables

    planned = call.settings.plan
    rows = failures.failures(planned.folders())
    folder = Path(layout.tables(planned.home))
    # Records are checked when tables are made: this is what was refused then.
    answer = [
        f"{failures.counted(rows)}: {folder}/failures.csv",
        *failures.lines(rows, None if call.all else MOST),
    ]
    answer = [*older(planned, folder / "refused.csv"), *answer]
    call.show(refusals.lines(refusals.read(folder)), rows, answer=answer)
    tables.write("failures", rows, folder)
    return 0
