"""`ddlbench status`: one screen about the study while it runs."""

from dataclasses import asdict
from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.commands.of_study import ALL, JSON
from ddlbench.core import layout

PLACE = 3
HELP = "while it runs: done, running, waiting, failed, expected end"
ARGUMENTS = JSON | ALL


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.commands import status as screen
    from ddlbench.plan import bill

    config, images, planned = call.settings
    rows = bill.rows(planned, images, layout.RESULTS)
    states, trouble = screen.now(planned, rows, layout.RESULTS, Path.cwd())
    lines = screen.lines(planned, rows, states, layout.RESULTS, config["max_gpu_hours"], trouble)
    done = {"state": "done", "since": None, "words": "", "reason": ""}
    each = [
        {"run": row.run} | (asdict(states[row.run]) if row.run in states else done) for row in rows
    ]
    first = 4 if trouble else 3
    call.show(lines[first:], {"runs": each, "squeue": trouble}, answer=lines[:first])
    return 0
