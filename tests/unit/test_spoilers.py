"""A record that makes a later step raise: it is left out by name, and the other records go on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import claim_verdicts, comparisons, refusals
from ddlbench.analysis.collect import collect
from ddlbench.analysis.sheets import costs
from ddlbench.analysis.tables import TABLES
from ddlbench.answers import choose
from ddlbench.commands import configuration
from ddlbench.core import registry
from ddlbench.records import ours
from ddlbench.show.figures import Options
from ddlbench.show.make_figure import write_drawable
from ddlbench.show.page import partial

from tests.builders.records import SPEC, write_record
from tests.facts import missing
from tests.unit import pages

SPECS = [replace(SPEC, repeat=repeat) for repeat in (1, 2, 3)]
BAD = SPECS[1].id
GOOD = {SPECS[0].id, SPECS[2].id}


def spoils(function: Callable[..., Any], bad: str = BAD) -> Callable[..., Any]:
    """The function, which now divides by zero if any of its arguments names the bad run."""

    def of(value: Any) -> bool:
        if isinstance(value, pd.DataFrame):
            return (
                "what_to_do" not in value
                and "run" in value
                and bool((value["run"].astype(str) == bad).any())
            )
        if isinstance(value, dict):
            return any(map(of, value.values()))
        if isinstance(value, list | tuple):
            return any(map(of, value))
        return bool(value == bad)

    def spoiled(*values: Any, **named: Any) -> Any:
        if of([*values, *named.values()]):
            raise ZeroDivisionError("no time at all")
        return function(*values, **named)

    return spoiled


def made(tmp_path: Path) -> tuple[list[dict[str, Any]], dict[str, pd.DataFrame]]:
    folders = [write_record(tmp_path / "runs", spec) for spec in SPECS]
    refused = collect(folders, tmp_path / "tables")
    return refused, {name: pd.read_parquet(tmp_path / f"tables/{name}.parquet") for name in TABLES}


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (comparisons, "rows"),
        (ours, "read"),
        *(
            pytest.param(*place, marks=pytest.mark.more)
            for place in (
                (costs, "rows"),
                ("ddlbench.analysis.collect", "rows_of"),
                ("ddlbench.analysis.collect", "columns_of"),
                ("ddlbench.analysis.sheets.runs", "add_planned"),
                ("ddlbench.analysis.tables", "write"),
            )
        ),
    ],
)
def test_tables_are_made_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    place = f"{where if isinstance(where, str) else where.__name__}.{name}"
    function = getattr(import_module(place.rpartition(".")[0]), name)
    if name == "read":

        def spoiled(folder: Path, wanted: str | None = None) -> Any:
            if folder.name == BAD:
                raise ZeroDivisionError("no time at all")
            return function(folder, wanted)

        monkeypatch.setattr(place, spoiled)
    elif where == "ddlbench.analysis.tables":

        def writes(name: str, rows: Any, folder: Path) -> None:
            if name == "runs" and any(row["run"] == BAD for row in rows):
                raise ZeroDivisionError("no time at all")
            function(name, rows, folder)

        monkeypatch.setattr(place, writes)
    else:
        monkeypatch.setattr(place, spoils(function))
    refused, tables = made(tmp_path)
    assert [row["run"] for row in refused] == tables["refused"]["run"].tolist() == [BAD]
    assert missing(refused[0]["what"], "ZeroDivisionError: no time at all") == []
    assert set(tables["runs"]["run"]) == set(tables["epochs"]["run"]) == GOOD


@pytest.mark.more
def test_verdicts_are_made_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    made(tmp_path)
    monkeypatch.setattr(claim_verdicts, "verdicts", spoils(claim_verdicts.verdicts))
    runs, kernels = (tmp_path / f"tables/{name}.parquet" for name in ("runs", "kernels"))
    claim_verdicts.write(
        Path("config/references/claims.csv"), runs, kernels, tmp_path / "verdicts.csv"
    )
    assert (tmp_path / "verdicts.csv").exists()
    assert f"{BAD} is refused" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["data", "draw"])
def test_a_figure_is_drawn_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    made(tmp_path)
    member = registry.member("figures", "learning-rate")
    if part == "draw":
        monkeypatch.setattr(member, "data", lambda tables, options: tables["runs"][["run"]])
        monkeypatch.setattr(member, "draw", spoils(lambda data, options: None))
    else:
        monkeypatch.setattr(member, part, spoils(getattr(member, part)))
    options = Options("Title", "cpu", "CPU core")
    shown = write_drawable(
        "learning-rate", tmp_path / "tables", [s.id for s in SPECS], tmp_path / "a.csv", options
    )
    wanted = dict.fromkeys(GOOD, "success") | {BAD: "refused"}
    assert dict(zip(shown["run"], shown["status"], strict=True)) == wanted
    assert (tmp_path / "a.csv").stat().st_size


@pytest.mark.more
def test_the_page_is_written_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    bad = replace(SPEC, framework="horovod", repeat=2).id
    monkeypatch.setattr(choose, "first", spoils(choose.first, bad))
    page = pages.make(tmp_path).read_text()
    assert "1 refused record" in page
    assert "ZeroDivisionError: no time at all" in page
    assert bad in capsys.readouterr().out


@pytest.mark.more
def test_partial_is_made_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = configuration.read(
        configuration.of_command_line(None, ["study=loaders-small", "machine=local"])
    )
    runs = list(settings.plan.runs)[:3]
    for run in runs:
        spec = settings.plan.runs[run].spec
        write_record(tmp_path / "runs", spec, images=spec.global_batch * 2)
    monkeypatch.setattr(comparisons, "rows", spoils(comparisons.rows, runs[0]))
    monkeypatch.setattr(choose, "first", spoils(choose.first, runs[1]))
    figures = settings.plan.study.figures[:1]
    monkeypatch.setattr(partial.reads, "plan_of", lambda config: (few, settings.images))
    few = replace(settings.plan, study=replace(settings.plan.study, figures=figures))
    partial.make(
        settings.config,
        configuration.terms(settings.plan.machine, settings.config["checkpoint"]),
        tmp_path,
    )
    (page,) = tmp_path.glob("*/*/partial/index.html")
    assert "2 refused record" in page.read_text()


def test_a_step_that_fails_with_any_record_or_none_is_itself_at_fault() -> None:
    def never(runs: Sequence[int], _: refusals.Spoilers[int]) -> int:
        raise KeyError("a bug")

    def not_with_any(runs: Sequence[int], _: refusals.Spoilers[int]) -> int:
        return 1 // (not runs)

    def full(runs: Sequence[int], _: refusals.Spoilers[int]) -> int:
        raise OSError(28, "No space left on device")

    for step, error in ((never, KeyError), (not_with_any, ZeroDivisionError), (full, OSError)):
        with pytest.raises(error):
            refusals.sparing(range(2 * refusals.MOST_SPOILERS), step)


def test_two_of_ten_thousand_are_found_in_few_calls() -> None:
    bad, calls = {17, 7_100}, []

    def step(runs: Sequence[int], _: refusals.Spoilers[int]) -> list[int]:
        calls.append(len(runs))
        if bad & {*runs}:
            raise ValueError
        return [*runs]

    good, spoilers = refusals.sparing(range(10_000), step)
    assert good == [run for run in range(10_000) if run not in bad]
    assert spoilers.keys() == bad
    assert len(calls) < 70
