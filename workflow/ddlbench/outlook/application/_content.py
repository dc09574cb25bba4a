"""What stands in the section: from tables of the records, verdicts, predictions and the plan; nothing else is claimed.

Every number refers to the runs that it is of (`[R1]`), which the last table lists with the SHA-256 of their logs. What
is predicted says so in its own table. Of two sides one is called faster only where `analysis/comparisons.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.comparisons import settings, telling
from ddlbench.analysis.prediction import _series
from ddlbench.analysis.statistics import CANNOT_TELL
from ddlbench.core import kinds, layout, registry
from ddlbench.core.files import sha256
from ddlbench.core.plural import between, four_digits, listed
from ddlbench.core.record import MLLOG
from ddlbench.outlook import NoAnswerError, changes, predictions, study
from ddlbench.outlook.application import Block, Heading, Image, Paragraph, Table
from ddlbench.outlook.predictions import PREDICTED
from ddlbench.plan import bill, reads
from ddlbench.plan.bill import Row
from ddlbench.plan.reads import PlannedForm
from ddlbench.plan.stale import DONE
from ddlbench.settings.machine import Machine

VERSIONS = ("framework_version", "loader_version", "torch_version", "python_version", "driver", "kernel", "commit")
NAMED = ("framework", "loader")
# What a series says of its scaling; the kinds that claim nothing, with what is said of all series of a kind.
CLAIMED, UNSURE, ONE_RUN, ONE_COUNT = "claimed", "unsure", "one run", "one count"
KINDS = {
    UNSURE: "The runs cannot tell whether these train faster on more {workers}",
    ONE_RUN: "Measured once each, so that nothing is claimed",
    ONE_COUNT: "Measured on one number of {workers} only, so that nothing is said of their scaling",
}


@dataclass(frozen=True)
class Contents:
    """All that the section is made from. `digests` are of the logs, by run; `figures` are paths without suffix.

    `predictions` are rows of `outlook/predictions.py`, `bill` of `plan/bill.py`, `forms` what its runs read.
    """

    title: str
    machine: Machine
    runs: pd.DataFrame
    comparisons: pd.DataFrame
    predictions: Sequence[Mapping[str, Any]]
    bill: Sequence[Row]
    digests: Mapping[str, str]
    figures: Mapping[str, Path]
    forms: Sequence[PlannedForm] = ()


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> str:
    """Writes the section in all formats; their paths, one a line. Raises NoAnswerError, ConfigError."""
    data = study.given(config, folders, results)
    machine, runs = data.plan.machine, data.tables["runs"]
    figures = {f.title: data.figure(f.name) for f in data.plan.study.figures if "efficiency" in f.plot}
    others = data.tables["submissions"]  # of others' records the file of each
    with data.named():
        series = changes.all_series(runs, machine.workers_per_node)
        section = blocks(
            Contents(
                title=data.plan.study.title,
                machine=machine,
                runs=runs,
                comparisons=data.tables["comparisons"],
                predictions=predictions.rows(series, machine, planned=data.planned_workers()),
                bill=bill.rows(data.plan, data.images, results),
                digests={folder.name: sha256(folder / MLLOG) for folder in folders if (folder / MLLOG).exists()}
                | {row["run"]: sha256(Path(row["file"])) for row in others.to_dict("records")},
                forms=reads.forms(data.plan, config["data"]["sources"]),
                figures={title: path for title, path in figures.items() if path.with_name(f"{path.name}.png").exists()},
            )
        )
    out = results / data.plan.home / "application"
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in registry.members("application"):
        member = registry.member("application", name)
        paths.append(out / f"scaling-{machine.name}{member.SUFFIX}")
        member.write(section, paths[-1])
    return "\n".join(map(str, paths))


def blocks(contents: Contents) -> list[Block]:
    """The whole section. Raises NoAnswerError."""
    runs = contents.runs
    timed = together.timed(runs)
    if timed.empty:
        raise NoAnswerError("no finished timed run says anything of its scaling; train first")
    references = _References()
    others = not together.are_ours(timed).any()
    workers = "accelerators" if others else "GPUs" if contents.machine.device == "cuda" else "workers"
    table, sentences = _scaling(timed, references, workers)
    section: list[Block] = [Heading(f"Scaling: {contents.title}"), table]
    section += [Image(f"{title} (measured).", path) for title, path in contents.figures.items()]
    section += [Paragraph(text) for text in (sentences, verdicts(contents.comparisons, references.to, workers)) if text]
    section += _predicted(contents.predictions, references, workers, together.sample(timed))
    section += _request(contents.bill, contents.forms, contents.machine, workers)
    section += _made_with(timed)
    return [*section, Heading("Runs", 3), references.table(contents.digests)]


class _References:
    """Names of groups of runs, in the order in which they are asked for. Runs of several groups go by these."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, ...], str] = {}

    def to(self, runs: Iterable[str]) -> str:
        asked = {*runs}
        parts = [group for group in self.names if asked.issuperset(group)]
        if set().union(*parts) == asked:
            return " ".join(f"[{self.names[group]}]" for group in parts)
        return f"[{self.names.setdefault(tuple(sorted(asked)), f'R{len(self.names) + 1}')}]"

    def table(self, digests: Mapping[str, str]) -> Table:
        """Every run with its digest, by name of its group."""
        rows = [
            (name if not place else "", run, digests.get(run, "no log"))
            for runs, name in self.names.items()
            for place, run in enumerate(runs)
        ]
        return Table("The runs that the numbers are of.", ("", "run", "SHA-256 of its log"), tuple(rows))


def _scaling(timed: pd.DataFrame, references: _References, workers: str) -> tuple[Table, str]:
    """The table of measured points, and what they say in a paragraph: claims first."""
    rows: list[tuple[str, ...]] = []
    claims: dict[str, list[str]] = {kind: [] for kind in (CLAIMED, *KINDS)}
    lines = [*_series.lines(timed)]
    differ = telling(pd.concat([line.points for line in lines]))
    for line in lines:
        points, name = line.points, _name(line.first, differ)
        rows.append((name,))
        for point in points.to_dict("records"):
            alike = line.at(point["workers"])
            refers = references.to(alike["run"])
            rows.append(
                (
                    str(int(alike["nodes"].iloc[0])),
                    str(point["workers"]),
                    four_digits(alike["epoch_s"].median()),
                    four_digits(point["throughput_images_per_s"]),
                    four_digits(point["speed_up"]),
                    four_digits(point["efficiency"]),
                    "base"
                    if point["workers"] == point["ref_workers"]
                    else interval(point["efficiency_low"], point["efficiency_high"]) or "none",
                    str(point["repeats"]),
                    refers,
                )
            )
        kind, claim_text = claim(points.iloc[-1], int(points["ref_workers"].iloc[0]), workers)
        claims[kind].append(f"{name}{':' if kind == CLAIMED else ','} {claim_text} {refers}")
    rate = f"{together.sample(timed)}/s"
    header = ("nodes", workers, "epoch [s]", rate, "speed-up", "efficiency", "95 % interval", "n", "runs")
    caption = (
        "Measured scaling. Times are of the training steps of an epoch, so efficiency is that of throughput; its "
        "interval is by the base."
    )
    if together.of_programs(timed).any():
        caption += " A program's epoch is all of its run; its speed-up compares times per sample."
    sentences = [f"{claim_text}." for claim_text in claims[CLAIMED]]
    sentences += [
        f"{KINDS[kind].format(workers=workers)}: {'; '.join(claims[kind])}." for kind in KINDS if claims[kind]
    ]
    return Table(caption, header, tuple(rows)), " ".join(sentences)


def _predicted(
    predictions: Sequence[Mapping[str, Any]], references: _References, workers: str, sample: str
) -> list[Block]:
    differ = telling(pd.DataFrame(predictions))
    rows = [
        (
            ", ".join(dict.fromkeys([*_settings(row, differ), row["framework"], *filter(None, [row["loader"]])])),
            f"{row['workers']} (predicted)",
            four_digits(row["images_per_s"]),
            interval(row["images_per_s_low"], row["images_per_s_high"]) or "none",
            four_digits(row["efficiency"]),
            four_digits(row["train_h"]),
            f"{row['measured']} {references.to(str(row['runs']).split())}",
        )
        for row in predictions
        if row["by"] == PREDICTED and row["why_not"] is None
    ]
    if not rows:
        return []
    header = ("series", workers, f"{sample}/s", "95 % interval", "efficiency", "training [h]", "from measured")
    caption = "Predicted, not measured: from the runs above and from published series (docs/prediction.md)."
    return [Heading("Predicted scaling", 3), Table(caption, header, tuple(rows))]


def hours(row: Row, machine: Machine) -> float | None:
    """What a run takes in the centre's unit."""
    if row.wall_s is None:
        return None
    each: dict[str, float] = {"GPU hours": row.workers, "node hours": row.nodes}
    if machine.budget_tflops_per_worker is not None:  # 10^12 operations/s for an hour are 3600 / 10^6 EFLOP
        each["EFLOP"] = row.workers * machine.budget_tflops_per_worker * 3600 / 1e6
    return row.core_hours if machine.budget_unit == "core hours" else row.wall_s / 3600 * each[machine.budget_unit]


def _request(bill: Sequence[Row], forms: Sequence[PlannedForm], machine: Machine, workers: str) -> list[Block]:
    """The request, derived: runs that are still to be made, by how many workers they have."""
    unit, missing = machine.budget_unit, [row for row in bill if row.state != DONE]
    section: list[Block] = [Heading("Requested resources", 3)]
    if not bill:
        return [*section, Paragraph("The study plans no runs of its own; nothing is requested.")]
    if not missing:
        return [*section, Paragraph("All runs of the plan are done; nothing is requested.")]
    groups: dict[tuple[int, int, str, int], list[Row]] = {}
    for row in missing:
        groups.setdefault((row.nodes, row.workers, row.model, row.epochs), []).append(row)
    rows, unknown = [], 0
    for (nodes, count, model, epochs), some in sorted(groups.items()):
        amounts = [(row.wall_s, hours(row, machine)) for row in some]
        lacking = [1 for wall, amount in amounts if wall is None or amount is None]
        unknown += len(lacking)
        amount_in_all = "unknown" if lacking else four_digits(sum(amount or 0.0 for _, amount in amounts))
        each = "unknown" if lacking else four_digits(sum(w or 0.0 for w, _ in amounts) / len(amounts) / 3600)
        length = counts([epochs], "epochs") if epochs else kinds.of_rule(some[0].rule).KEY
        rows.append((f"{model}, {length}", str(nodes), str(count), str(len(some)), each, amount_in_all))
    header = ("runs", "nodes", workers, "number", "hours each (mean)", unit)
    how = {
        "core hours": f"hours x nodes x {machine.cores_per_node_billed} cores billed per node",
        "GPU hours": f"hours x {workers}",
        "node hours": "hours x nodes",
        "EFLOP": f"hours x 3600 s x {workers} x {machine.budget_tflops_per_worker} TFLOP/s of peak / 10^6",
    }[unit]
    section.append(Table(f"Request, derived: number x hours; {unit} = {how}.", header, tuple(rows)))
    total = sum(hours(row, machine) or 0.0 for row in missing)
    lacking_time = f", without {unknown} runs of unknown time" * bool(unknown)
    sentences = [f"In sum {four_digits(total)} {unit}{lacking_time}."]
    basis = sorted({row.estimate for row in missing})
    sentences.append(f"Hours are estimates of the plan, from: {', '.join(basis)}.")
    section.append(_storage(missing, forms))
    energy = [row.energy_kwh for row in missing if row.energy_kwh is not None]
    if len(energy) == len(missing):
        sentences.append(f"Energy: {four_digits(sum(energy))} kWh (estimated).")
    else:
        sentences.append("Energy: unknown; the machine's file names no power, and no run has measured it.")
    return [*section, Paragraph(" ".join(sentences))]


def _storage(missing: Sequence[Row], forms: Sequence[PlannedForm]) -> Table:
    """Bytes and inodes of data sets, records and checkpoints, each by itself and in sum."""
    amounts: list[tuple[str, float | None, int | None]] = [
        (f"data set {form.dataset} as {form.form}{', which is there' * form.there}", form.bytes, form.inodes)
        for form in forms
    ]
    amounts.append(
        (
            f"records of {bill.counted(missing)}",
            sum(row.disk_bytes for row in missing),
            sum(row.inodes for row in missing),
        )
    )
    runs = [row for row in missing if kinds.trains(row.rule)]
    sizes = [(row.checkpoint_bytes, row.checkpoint_inodes or 0) for row in runs if row.checkpoint_bytes is not None]
    name = "checkpoints, if all runs trained at once"
    if len(sizes) < len(runs):
        amounts.append((f"{name}: unknown for {counts([len(runs) - len(sizes)], 'runs')}", None, None))
    if sizes:
        amounts.append((name, sum(size for size, _ in sizes), sum(inodes for _, inodes in sizes)))
    total = (sum(size or 0.0 for _, size, _ in amounts), sum(inodes or 0 for _, _, inodes in amounts))
    amounts.append(("in sum" if len(sizes) == len(runs) else "in sum, of what is known", *total))
    rows = [
        (item, "unknown" if size is None else four_digits(size / 1e9), "unknown" if inodes is None else str(inodes))
        for item, size, inodes in amounts
    ]
    return Table("Storage, as the plan counts it.", ("what", "GB", "files and folders"), tuple(rows))


def _made_with(timed: pd.DataFrame) -> list[Block]:
    """Versions and commands, as the records say them."""
    rows = []
    for name in VERSIONS:
        versions = sorted(_versions(timed, name)) if name in timed else []
        rows.append((name.replace("_", " "), ", ".join(versions) or "not recorded"))
    section: list[Block] = [Heading("Software", 3)]
    if all(version == "not recorded" for _, version in rows):
        section.append(Paragraph("The records name no versions beside those in the names of the series."))
    else:
        section.append(Table("As the records say.", ("what", "version"), tuple(rows)))
    commands = [str(command) for command in timed["command"].dropna().unique()] if "command" in timed else []
    if commands:
        section.append(Paragraph(f"Command of one run: {commands[0]}"))
    return section


def _versions(timed: pd.DataFrame, name: str) -> set[str]:
    """The values of a column of VERSIONS; those of frameworks and loaders with their names."""
    member = name.removesuffix("_version")
    rows = timed[timed[name].notna() & (timed[name] != "")]
    return {
        f"{row[member]} {row[name]}" if member in NAMED and pd.notna(row[member]) else str(row[name])
        for row in rows.to_dict("records")
    }


def _settings(row: Mapping[Any, Any], differ: Sequence[str]) -> list[str]:
    """The model, and settings in which series differ; epochs are said otherwise."""
    return settings(row, ["model", *(name for name in differ if name not in ("model", "epochs"))])


def _name(point: pd.Series[Any], differ: Sequence[str]) -> str:
    batch = point["batch_per_worker"]
    if pd.isna(point["loader"]):  # of others' records the machine tells series apart, and batches change along them
        return f"{point['model']}, {point['framework']}, {point['machine']}"
    size = f"batch {point['global_batch']}" if pd.isna(batch) else f"batch {batch} per worker"
    name = ", ".join(dict.fromkeys([*_settings(point.to_dict(), differ), point["framework"], point["named"], size]))
    part = pd.notna(point["of_epochs"]) and point["epochs"] < point["of_epochs"]
    return f"{name}, {point['epochs']} of {point['of_epochs']} epochs" if part else name


def claim(last: Mapping[str, Any] | pd.Series[Any], base: int, workers: str) -> tuple[str, str]:
    """Which of KINDS a series' largest point is, and what it says: of one run, or without a sure gain, no claim."""
    low, high, where = last["speed_up_low"], last["speed_up_high"], f"from {base} to {last['workers']} {workers}"
    if last["workers"] == base:
        return ONE_COUNT, counts([base], workers)
    if not interval(low, high):
        reached = f"speed-up {four_digits(last['speed_up'])}, efficiency {four_digits(last['efficiency'])}"
        return ONE_RUN, f"{where}, {reached}"
    sure = f"95 % interval {interval(low, high)}, n = {last['repeats']}"
    if low <= 1 <= high:
        return UNSURE, f"{where}, speed-up {four_digits(last['speed_up'])} ({sure})"
    return CLAIMED, (
        f"{where} the training steps of an epoch took a time shorter by a factor of {four_digits(last['speed_up'])} "
        f"({sure}), "
        f"an efficiency of {four_digits(last['efficiency'])} "
        f"({interval(last['efficiency_low'], last['efficiency_high'])})"
    )


def verdicts(comparisons: pd.DataFrame, to: Callable[[Iterable[str]], str], workers: str) -> str:
    """What the runs say of frameworks and loaders, and what they cannot tell, each pair once."""
    sentences: list[str] = []
    unsure: dict[tuple[str, str], tuple[list[int], list[str]]] = {}
    differ = ["model", *(name for name in telling(comparisons) if name != "model")]
    for row in comparisons.to_dict("records"):
        in_common = settings(row, differ)
        where = f"with {', '.join(in_common)}" + f" and {row['with']}" * (row["with"] not in in_common)
        refers = to(str(row["runs"]).split())
        if row["verdict"] == CANNOT_TELL:
            on, runs = unsure.setdefault((f"{row['left']} or {row['right']}", where), ([], []))
            on.append(row["workers"])
            runs += refers.split()
        else:
            bounds = interval(row["low"], row["high"])
            sentences.append(
                f"{row['left']} was {row['verdict']} than {row['right']} on {counts([row['workers']], workers)} {where}"
                f": {four_digits(row['ratio'])} times its throughput (95 % interval {bounds}, n = {row['n']}) {refers}."
            )
    pairs = [
        f"{pair} on {counts(on, workers)} {where} {' '.join(dict.fromkeys(runs))}"
        for (pair, where), (on, runs) in unsure.items()
    ]
    return " ".join([*sentences, *([f"The runs cannot tell which is faster: {'; '.join(pairs)}."] if pairs else [])])


def counts(numbers: Sequence[int], what: str) -> str:
    """1 worker; 2 workers; 1 and 2 workers; 1, 2 and 4 workers."""
    return f"{listed([*map(str, numbers)])} {what.removesuffix('s') if list(numbers) == [1] else what}"


def interval(low: float | None, high: float | None) -> str:
    """Empty if it is not known."""
    return "" if low is None or high is None or pd.isna(low) or pd.isna(high) else between(low, high, say=four_digits)
