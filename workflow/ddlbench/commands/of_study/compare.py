"""`ddlbench compare`: the new side's runs beside the old one's: a table and a page too."""

from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.commands.of_study import JSON
from ddlbench.core import layout
from ddlbench.core.columns import write_csv
from ddlbench.settings.config import ConfigError

PLACE = 13
HELP = "the same runs on two machines, in two folders, or kept"
ARGUMENTS = JSON | {
    "before": {"help": "the old side: a machine with records in results, or a folder of runs"},
    "after": {"help": "the new side, likewise"},
}


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.analysis import before_after
    from ddlbench.show.page import compared

    before, after = names = call.options.before, call.options.after
    if before == after:
        raise ConfigError(
            f"after: {after!r} is also the value of before; allowed: another machine, or another"
            " folder of runs"
        )
    sides, refused = [], []
    for key, name in zip(("before", "after"), names, strict=True):
        runs, some = before_after.side(name, layout.RESULTS)
        if not runs:
            allowed = (
                "has no successful timed run; allowed: a machine that has some, a folder of runs"
            )
            raise ConfigError("; ".join([f"{key}: {name!r} {allowed}", *some]))
        sides.append(runs)
        refused += some
    rows, table = before_after.rows(*sides), Path(layout.comparison(before, after))
    lines = [
        *before_after.shared_records(*sides),
        *(f"differs: {line}" for line in before_after.differences(*sides)),
    ]
    lines += [*before_after.lines(rows), *refused]
    if not rows:
        lines.append(
            "no run is on both sides: pairs are runs whose ids differ in nothing but their machine's"
            " name"
        )
    page = table.with_suffix(".html")
    call.show([*lines, f"one row per run, host and part: {table}; the page: {page}"], rows)
    write_csv(rows, before_after.COLUMNS, table)
    folders = {name: [run.folder for run in runs] for name, runs in zip(names, sides, strict=True)}
    compared.write(page, folders, rows, lines)
    return 0
