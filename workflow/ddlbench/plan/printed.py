"""The plan as people read it, from the rows of `bill.py`: a table that fits a screen, and the rest
in words.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ddlbench.core import kinds, registry
from ddlbench.core.formatting import amount, count_of, duration, total, two_digits
from ddlbench.core.registry import OWN
from ddlbench.plan import rounds
from ddlbench.plan.bill import counted, gpu_hours, most_gpu_hours
from ddlbench.plan.estimate import GUESSED, MEASURED, PREDICTED
from ddlbench.plan.reads import PlannedForm
from ddlbench.plan.stale import DONE, STALE
from ddlbench.plan.values import Plan, Row

MOST_ROWS = 40  # that are printed
USUAL = 0.01  # by which runs vary on a quiet machine (docs/measurements/statistics.md)


def answer(plan: Plan, table: Sequence[Row], limit: float | None) -> list[str]:
    """Summarise how many runs are left, how long they take one after another, and what they
    cost.
    """
    todo = [row for row in table if row.state != DONE]
    name = f"{plan.study.name} on {plan.machine.name}"
    if not todo:
        return [f"{name}: {counted(table)}, all done; nothing is left to run."]
    known = [row for row in todo if row.wall_s is not None]
    text = [f"{name}: {len(todo)} of {counted(table)} to be made{_how_long(known, len(todo))}."]
    if known:
        costs = [f"{total(row.gpu_hours for row in known)} GPU hours"]
        costs += (
            [f"{total(row.price for row in known)} {known[0].currency}"]
            if known[0].price is not None
            else []
        )
        guessed = sum(row.estimate_by == GUESSED for row in known)
        text.append(f"{', '.join(costs)}; {guessed} of {len(known)} times are guessed.")
    text += _unknown(plan, [row for row in todo if row.wall_s is None])
    if limit is not None:
        hours, unknown = most_gpu_hours(todo)
        verdict = (
            "WOULD BE EXCEEDED: nothing will be started"
            if hours > limit
            else "CANNOT BE CHECKED: nothing will be started"
            if unknown
            else "will not be exceeded"
        )
        text.append(f"max_gpu_hours {amount(limit)} {verdict}")
    return text


def _how_long(known: Sequence[Row], runs: int) -> str:
    """Describe how long runs take one after another, of which the time of some may be unknown."""
    if not known:
        return "; how long they take is not known yet"
    wall, low, high = (
        total((getattr(row, f"wall_s{end}") for row in known), duration)
        for end in ("", "_low", "_high")
    )
    took = f"in {wall} one after another ({low} to {high})"
    rest = runs - len(known)
    return f": {len(known)} {took}, {rest} of unknown length" if rest else f", {took}"


def _unknown(plan: Plan, unknown: Sequence[Row]) -> list[str]:
    """Describe of which runs nobody knows how long they take, why, and what would make it
    known.
    """
    text = []
    for own in (False, True):
        rows = [row for row in unknown if (row.loader == OWN) is own]
        if not rows:
            continue
        names = ", ".join(sorted({row.model for row in rows}))
        most = [row.gpu_hours_high for row in rows if row.gpu_hours_high is not None]
        ends = "their queues' limits or stop_after" if own else "their queues' limits"
        most_hours = (
            f" (at most {amount(sum(most))} GPU hours, {ends})" if len(most) == len(rows) else ""
        )
        why = (
            "no run with these settings has ended yet. The first run of each setting"
            f" ({_settings(plan, rows)} runs) makes it known."
            if own
            else f"there is no record of {names}, no images_per_s in machine {plan.machine.name},"
            " and its operations were never counted. A first run of it makes it known, images_per_s"
            " a guess."
        )
        text.append(f"Not known yet: the time of {counted(rows)} of {names}{most_hours}: {why}")
    return text


def _settings(plan: Plan, rows: Sequence[Row]) -> int:
    """Return how many settings rows have, which differ in more than the repeat."""
    specs = [plan.runs[row.run].spec for row in rows]
    return len({replace(spec, repeat=1).id for spec in specs})


def detectable_difference(plan: Plan, spread: tuple[float, int] | None) -> list[str]:
    """Describe the smallest difference that the study's repeats can show on this machine, whose
    runs vary by `spread` (`estimate.spread`).
    """
    from ddlbench.analysis import (
        over_settings,
        significance,
    )  # they import numpy, which a plan need not wait for

    until, of_blocks = (
        plan.study.until,
        [block.repeats for block in plan.study.blocks if block.timed],
    )
    if not of_blocks:
        return []
    deviation, settings = spread or (USUAL, 0)
    one_of = over_settings.LOOKS[len(rounds.looks(until))] if until else 1.0
    text = []
    for repeats in (until.at_least, until.at_most) if until else (max(of_blocks),):
        ratio = significance.detectable_ratio(repeats, deviation, one_of)
        each = f"{repeats} repeat{'s' * (repeats > 1)}"
        less = (
            f"{each} {'are' if repeats > 1 else 'is'} too few to show any difference within one"
            " setting"
        )
        text.append(less if ratio is None else f"{each} show a difference of {_difference(ratio)}")
    whose = f"runs here vary by {two_digits(100 * deviation)} % ({count_of(settings, 'setting')})"
    if not settings:
        whose = f"if runs vary by {two_digits(100 * deviation)} %: none here was repeated yet"
    more = "Over several settings together, smaller differences show."
    return [f"{', '.join(text)}; {whose}. {more}"]


def _difference(ratio: float) -> str:
    return f"{two_digits(100 * ratio - 100)} %" if ratio < 2 else f"{two_digits(ratio)} times"


def cost_until_decided(
    plan: Plan, table: Sequence[Row], with_all_repeats: Sequence[Row], looks: Sequence[rounds.Look]
) -> list[str]:
    """Describe the range of costs of a study with `until: decided`; nothing for other studies.

    `table` has the jobs of the plan, `with_all_repeats` those with all repeats that there may be.
    """
    limits = plan.study.until
    if limits is None:
        return []
    further = {*plan.further}
    at_least = [row for row in table if row.run not in further]
    at_most = _gpu_hours(with_all_repeats)
    at_most += f", or {amount(limits.gpu_hours)} (gpu_hours)" if limits.gpu_hours else ""
    text = f"until decided: at least {counted(at_least)}, {_gpu_hours(at_least)}"
    return [
        f"{text}; at most {counted(with_all_repeats)}, {at_most}.",
        *rounds.last_look_lines(looks, limits),
    ]


def _gpu_hours(rows: Sequence[Row]) -> str:
    hours = [row.gpu_hours for row in rows]
    return f"{total(hours)} GPU hours" if any(h is not None for h in hours) else "hours not known"


def lines(plan: Plan, table: Sequence[Row], forms: Sequence[PlannedForm]) -> list[str]:
    """Return the lines to print: a table that fits a screen, and the rest in words."""
    todo = [row for row in table if row.state != DONE]
    text = [f"{plan.study.name} on {plan.machine.name}: {plan.study.title}", ""]
    pairs = {(row.block, row.workers) for row in table}
    if len(pairs) <= MOST_ROWS:
        text += _grouped(table, ("block", "workers"), lambda row: (row.block, row.workers))
    else:  # too many to be read: the sums over each of the two
        text += [*_grouped(table, ("block",), lambda row: (row.block,)), ""]
        text += _grouped(table, ("workers",), lambda row: (row.workers,))
    text += [
        "",
        "Hours, energy and price are those of runs that are to be made; wall time is one run's.",
    ]
    if plan.left_out:
        counts = ", ".join(map(str, plan.left_out))
        text.append(
            f"Left out: runs of {counts} workers; machine {plan.machine.name} has"
            f" {plan.machine.workers}."
        )
    text.append("Order: at random, seeded with the study's name; column place of plan.csv.")
    text += _words(plan, table, todo)
    text += _disk(todo, forms)
    text += _stale(table)
    return text


# Column -> what it says of a group's rows, the first half of all, the second of those that are to
# be made. A column is left out if nobody knows any of it; the words below the table say which.
COLUMNS: dict[str, Callable[[Sequence[Row]], str]] = {
    "runs": lambda table: str(len(table)),
    "done": lambda table: str(sum(row.state == DONE for row in table)),
    "stale": lambda table: str(sum(row.state == STALE for row in table)),
    "nodes": lambda table: _span([row.nodes for row in table], amount),
    "wall_per_run": lambda table: _span(_todo(table, "wall_s"), duration),
    "at_least-at_most": lambda table: _span(
        _todo(table, "wall_s_low") + _todo(table, "wall_s_high"), duration
    ),
    "gpu_hours": lambda table: total(_todo(table, "gpu_hours")),
    "low-high": lambda table: "-".join(
        dict.fromkeys(total(_todo(table, f"gpu_hours_{end}")) for end in ("low", "high"))
    ),
    "core_hours": lambda table: total(_todo(table, "core_hours")),
    "energy_kwh": lambda table: total(_todo(table, "energy_kwh")),
    "price": lambda table: total(_todo(table, "price")),
}
# What a column is made of, where it has another name.
FIELDS = {"wall_per_run": "wall_s", "at_least-at_most": "wall_s_low", "low-high": "gpu_hours_low"}


def _grouped(
    table: Sequence[Row], names: Sequence[str], key: Callable[[Row], tuple[Any, ...]]
) -> list[str]:
    """Format one line per group and one for all of them, in columns."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in table:
        groups.setdefault(key(row), []).append(row)
    if names == ("workers",):
        groups = dict(sorted(groups.items()))
    columns = [
        c for c in COLUMNS if any(getattr(row, FIELDS.get(c, c), 0) is not None for row in table)
    ]
    sold = f"price_{table[0].currency}"
    first = list(groups.items())[:MOST_ROWS]
    cells = [[*names, *(sold if column == "price" else column for column in columns)]]
    cells += [
        [*map(str, group), *(COLUMNS[column](rows) for column in columns)] for group, rows in first
    ]
    if len(groups) > len(first):
        cells.append([f"... {len(groups) - len(first)} more", *[""] * (len(cells[0]) - 1)])
    cells.append(
        ["total", *[""] * (len(names) - 1), *(COLUMNS[column](table) for column in columns)]
    )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    text_columns = sum(name != "workers" for name in names)
    return [
        "  ".join(
            cell.ljust(w) if i < text_columns else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]


def _todo(table: Sequence[Row], column: str) -> list[float | None]:
    """Return a column's values of the runs that are to be made."""
    return [getattr(row, column) for row in table if row.state != DONE]


def _span(values: Sequence[float | None], say: Callable[[float], str]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "?" if values else ""
    return "-".join(dict.fromkeys((say(min(numbers)), say(max(numbers)))))


def _words(plan: Plan, table: Sequence[Row], todo: Sequence[Row]) -> list[str]:
    done = [row for row in table if row.state == DONE]
    text = []
    others = [rule for rule in kinds.non_training() if any(row.rule == rule.name for row in table)]
    text += [f"{counted(table)}: rows `{rule.table}` are {rule.table} jobs." for rule in others]
    if done:
        text.append(f"Done: {counted(done)}, which took {amount(gpu_hours(done)[0])} GPU hours.")
    walls = [row.wall_s for row in todo if row.wall_s is not None]
    if walls:
        of = "All" if len(walls) == len(todo) else f"{len(walls)} of {len(todo)}"
        text.append(
            f"Longest run: {duration(max(walls))}. {of} one after another: {duration(sum(walls))}."
        )
    how = {
        MEASURED: "measured: runs like them, with as many workers, are done",
        PREDICTED: "predicted from runs with other numbers of workers (docs/prediction.md)",
        GUESSED: (
            "guessed, from runs of other kinds, images_per_s or operations, and published"
            " efficiencies"
        ),
    }
    for by, words in how.items():
        if rows := [row for row in todo if row.estimate_by == by and kinds.trains(row.rule)]:
            low, hours, high = (
                total([getattr(row, f"gpu_hours{end}") for row in rows])
                for end in ("_low", "", "_high")
            )
            text.append(f"{hours} GPU hours ({low} to {high}) of {len(rows)} runs are {words}.")
    for rule in others:
        if basis := sorted({row.estimate for row in todo if row.rule == rule.name}):
            text.append(f"Hours of {'s'.join(rule.noun)} by: {', '.join(basis)}.")
    measured = [row for row in table if row.epochs < row.of_epochs]
    if measured:
        full = sorted({f"{row.epochs} of {row.of_epochs}" for row in measured})
        text.append(
            f"{len(measured)} runs train {', '.join(full)} epochs only; tables extrapolate to the"
            " full run."
        )
    if any(row.energy_kwh is not None for row in todo):
        pue = (
            "cooling included"
            if plan.machine.pue
            else "without cooling: the machine's pue is unknown"
        )
        drawn = "at the power that runs like them drew"
        if not all(row.energy_measured for row in todo):
            drawn = (
                "in part at design power"
                if any(row.energy_measured for row in todo)
                else "at design power"
            )
        text.append(f"Energy {drawn}, {pue}.")
    columns = {
        "core_hours": "cores_per_node_billed",
        "energy_kwh": "power_per_worker_w and power_per_node_w",
    }
    columns["price"] = "price_per_gpu_hour"
    for column, key in columns.items():
        if todo and walls and all(getattr(row, column) is None for row in todo):
            text.append(f"No {column}: {key} of machine {plan.machine.name} is null.")
    if plan.machine.device != "cuda":
        text.append(f"An hour of a worker ({plan.machine.device_name}) counts as a GPU hour.")
    return text


def _disk(todo: Sequence[Row], forms: Sequence[PlannedForm]) -> list[str]:
    # Data are prepared if a job that is to be made reads some.
    new = [
        form
        for form in forms
        if not form.there and any(registry.member("loaders", r.loader).FORMS for r in todo)
    ]
    text = [
        (
            f"Data: {form.dataset} as {form.form} is there, {_gb(form.bytes)}."
            if form.there
            else (
                f"Data: {form.dataset} as {form.form} is to be prepared: {_gb(form.bytes)},"
                f" {form.inodes} inodes."
                if form in new
                else (
                    f"Data: {form.dataset} as {form.form} is not there any more; no run that is to"
                    " be made reads it."
                )
            )
        )
        for form in forms
    ]
    size, inodes = sum(row.disk_bytes for row in todo), sum(row.inodes for row in todo)
    if todo:
        text.append(f"Records: {_gb(size)}, {inodes} inodes.")
    total = size + sum(form.bytes for form in new)
    files = inodes + sum(form.inodes for form in new)
    return [*text, f"Disk in all, without checkpoints: {_gb(total)}, {files} inodes."]


def _gb(size: float) -> str:
    return f"{amount(size / 1e9)} GB"


def _stale(table: Sequence[Row]) -> list[str]:
    """Summarise why runs are to be made again, with the number of runs for each reason."""
    reasons: dict[str, list[str]] = {}
    for row in table:
        if row.why:
            reasons.setdefault(f"{row.state}: {row.why}", []).append(row.run)
    lines = [
        f"{len(runs)} {reason} (such as {runs[0]})" for reason, runs in list(reasons.items())[:10]
    ]
    return lines + (
        [f"... and {len(reasons) - 10} other reasons: column why of plan.csv"]
        if len(reasons) > 10
        else []
    )
