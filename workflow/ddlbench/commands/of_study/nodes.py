"""`ddlbench nodes`: each host of the machine beside the others, from its records of any study: a
table too.
"""

from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.commands.of_study import JSON
from ddlbench.core import layout
from ddlbench.core.columns import write_csv

PLACE = 9
HELP = "find slow hosts, from all records of the machine"
ARGUMENTS = JSON


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.analysis import slow_nodes

    machine = call.settings.plan.machine
    found, runs, refused = slow_nodes.records(machine.name, Path(layout.runs()))
    rows, table = slow_nodes.rows(found), Path(layout.nodes(machine.name))
    counted = (
        f"{runs} runs of {machine.name} on two hosts or more, one row per host and part: {table}"
    )
    call.show([*slow_nodes.lines(rows), counted, *refused], rows)
    write_csv(rows, slow_nodes.COLUMNS, table)
    return 0
