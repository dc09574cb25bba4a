"""`ddlbench plan`: what the study's runs will take and cost: `plan.csv`, one row per run, and
`plan.txt`.
"""

from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.commands.of_study import ALL, JSON
from ddlbench.core import layout

PLACE = 1
HELP = "hours, energy, price and disk before anything starts; what is stale, and why"
ARGUMENTS = JSON | ALL


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.plan import bill, estimate, printed, reads, rounds, stale

    config, images, planned = call.settings
    rows = bill.rows(
        planned, images, layout.RESULTS, stale.metadata_of(planned.runs), stale.COMMAND
    )
    folder, sources = Path(layout.tables(planned.home)), config["data"]["sources"]
    # Obstacles to the runs are printed first.
    answer = reads.remarks(planned, sources, [row.run for row in rows if row.state != stale.DONE])
    answer += printed.answer(planned, rows, config["max_gpu_hours"])
    if planned.study.until:
        every, _ = reads.plan_of(config, all_repeats=True)
        looks = rounds.read(Path(layout.rounds(planned.home)))
        answer += printed.cost_until_decided(
            planned, rows, bill.rows(every, images, layout.RESULTS), looks
        )
    records = estimate.read_all(Path(layout.runs()))
    answer += printed.detectable_difference(
        planned, estimate.spread(records.values(), planned.machine.name)
    )
    lines = printed.lines(planned, rows, reads.forms(planned, sources))
    lines.append(f"One row per run: {folder}/plan.csv")
    changed = any(row.state == stale.STALE for row in rows)
    call.show(lines, [vars(row) for row in rows], answer=answer, stale=changed)
    bill.write(rows, "\n".join([*answer, *lines]) + "\n", folder)
    return 0
