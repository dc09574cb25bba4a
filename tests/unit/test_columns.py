"""Columns are declared once: what is declared is in the tables, in their description, and in the
rule.

How numbers are written for people: one table of what each formatter gives.
"""

import csv
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import collect, tables
from ddlbench.core import files, kinds, registry, spec
from ddlbench.core.columns import Column, write_csv
from ddlbench.core.formatting import (
    amount,
    between,
    count_of,
    duration,
    gigabytes,
    percents,
    rounded,
    total,
    worker,
)
from ddlbench.show import figure_data
from ddlbench.train import measure
from ddlbench.train.measure import Measure, Meter

from tests.builders.records import write_record
from tests.conftest import ROOT

BOTH = ("parquet", "csv")


def test_the_page_about_columns_is_what_they_say() -> None:
    """Of tables that it has: one that somebody adds as one file is theirs."""
    text = (ROOT / "docs/columns.md").read_text(encoding="utf-8")
    named = {*re.findall(r"^## `(\w+)`$", text, re.M)}
    assert len(named) > 10
    assert text == tables.page(named), (
        "make it anew: python -m ddlbench.analysis.tables > docs/columns.md"
    )


def test_every_column_is_on_the_page() -> None:
    page = tables.page()
    for name, table in tables.TABLES.items():
        assert f"## `{name}`" in page
        assert all(f"| `{column.name}` | {column.type} |" in page for column in table.columns)
        assert all(column.means.endswith(".") for column in table.columns)
    assert all(f"| `{name}` |" in page for name in spec.COLUMNS)


def test_every_table_is_made_by_the_rule(tmp_path: Path) -> None:
    """The rule takes those whose rows are not of jobs that do not train, and their files from their
    constant FILES.
    """
    names = {*registry.members("sheets")} - {rule.table for rule in kinds.non_training()}
    files = {
        name.replace("-", "_"): registry.constant("sheets", name, "FILES") or BOTH for name in names
    }
    assert {name for name, suffixes in files.items() if suffixes != BOTH} == {"learning_rates"}
    collect.collect([], tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {f"{name}.{suffix}" for name, suffixes in files.items() for suffix in suffixes}


def test_tables_have_the_declared_columns_and_types_with_and_without_rows(tmp_path: Path) -> None:
    for folders in ([], [write_record(tmp_path)]):
        collect.collect(folders, tmp_path / "tables")
        for name, table in tables.TABLES.items():
            made = pd.read_parquet(tmp_path / f"tables/{name}.parquet")
            own = [column.name for column in table.columns]
            assert list(made) == ([*spec.COLUMNS, *own] if name == "runs" else own)
            assert {c.name: str(made[c.name].dtype) for c in table.columns} == {
                c.name: c.type for c in table.columns
            }


def test_a_column_of_ranks_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rank measures is declared beside its reader; the meter, restarts and the join over
    ranks follow.
    """
    ours = Column("open_files", "Int64", "Most files that the rank had open.", over_ranks="max")
    monkeypatch.setattr(measure, "MEASURES", (*measure.MEASURES, Measure(ours, lambda meter: 7)))
    meter = Meter("cpu", 1, tmp_path)
    meter.start()
    first = meter.stop()
    assert first["values"]["open_files"] == 7
    second = {"values": first["values"] | {"open_files": 5}, "not_measured": first["not_measured"]}
    assert measure.merge([first, second])["values"]["open_files"] == 7


def test_a_run_goes_on_from_a_checkpoint_of_before_a_column_was_added(tmp_path: Path) -> None:
    meter = Meter("cpu", 1, tmp_path)
    meter.start()
    now = meter.stop()
    before = {
        "values": {"cpu_s": 1.0, "wall_s": 2.0, "peak_resident_bytes": 10**15},
        "not_measured": {},
    }
    both = measure.merge([before, now])
    assert both["values"]["peak_resident_bytes"] == 10**15
    assert both["values"]["loader_resident_bytes"] is None
    assert both["not_measured"]["loader_resident_bytes"] == measure.UNREAD


TWO, THREE, FOUR = (partial(rounded, digits=digits) for digits in (2, 3, 4))


@pytest.mark.parametrize(
    ("say", "given", "text"),
    [
        (count_of, (1, "node"), "1 node"),
        (count_of, (2, "node"), "2 nodes"),
        (count_of, (0, "node"), "0 nodes"),
        (worker, ("cuda",), "GPU"),
        (worker, ("cpu",), "worker"),
        (worker, ("mlperf",), "accelerator"),
        (TWO, (0,), "0"),
        (TWO, (0.123,), "0.12"),
        (TWO, (0.00023,), "0.00023"),
        (TWO, (1e-7,), "0"),
        (TWO, (6.4,), "6.4"),
        (TWO, (12.5,), "12"),
        (TWO, (99.4,), "99"),
        (TWO, (99.6,), "100"),  # not 1e+02
        (TWO, (-123.4,), "-123"),
        (TWO, (12345.6,), "12,346"),
        (THREE, (999.7,), "1,000"),
        (FOUR, (1234.56,), "1,235"),
        (FOUR, (0.5,), "0.5"),
        (amount, (1234.4,), "1234"),
        (amount, (5.0,), "5"),
        (amount, (0.12345,), "0.123"),
        (amount, (0.0004,), "<0.001"),
        (amount, (0.0,), "0"),
        (between, (6.01, 9.0), "6 to 9"),
        (between, (6.01, 6.02), "6"),
        (percents, (0.061, 0.09), "6.1 to 9 %"),
        (total, ([],), "0"),
        (total, ([1.0, 2.5],), "3.5"),
        (total, ([1.0, None],), ">1"),
        (total, ([None, None],), "?"),
        (duration, (5400,), "1.5 h"),
        (duration, (90,), "1.5 min"),
        (duration, (0.25,), "0.25 s"),
        (gigabytes, (3.5e6,), "3.5 MB"),
        (gigabytes, (1.5e11,), "150.0 GB"),
    ],
)
def test_numbers_for_people(say: Callable[..., str], given: tuple[Any, ...], text: str) -> None:
    assert say(*given) == text


def test_a_cell_is_no_formula_to_a_spreadsheet_and_comes_back_as_it_was(tmp_path: Path) -> None:
    texts = [
        '=HYPERLINK("http://x")',
        "@SUM(A1)",
        "+1+1",
        "-2+3",
        "\t=1",
        "plain",
        "-0.5",
        "1e-3",
        "-",
        "'=quoted",
        "",
    ]
    data = pd.DataFrame({"framework": texts, "value": [-1.5] * len(texts)})
    figure_data.write(data, tmp_path / "a.csv")
    assert figure_data.read(tmp_path / "a.csv")["framework"].fillna("").tolist() == texts
    files.write_csv(tmp_path / "b.csv", data.to_dict("records"), list(data))
    assert [row["framework"] for row in files.read_csv(tmp_path / "b.csv")] == texts
    columns = (Column("framework", "str", ""), Column("value", "float64", ""))
    write_csv(data.to_dict("records"), columns, tmp_path / "c")
    for name in ("a.csv", "b.csv", "c"):
        with (tmp_path / name).open(newline="") as lines:
            cells = [row["framework"] for row in csv.DictReader(lines)]
        assert [cell[0] for cell in cells[:5]] == ["'"] * 5
        assert cells[5:9] == texts[5:9]
        assert "-1.5" in (tmp_path / name).read_text()


MISFITS: list[tuple[str, list[Any], list[Any]]] = [
    ("float64", [1, 0.5, None, 2], []),
    ("float64", [0.5, True, "0.5"], [True, "0.5"]),
    ("int64", [1, 2, 3], []),
    ("int64", [1, None, 2.5, 3], [None, 2.5]),
    ("int64", [1, -(1 << 63), 1 << 70, 2], [-(1 << 63), 1 << 70]),
    ("str", ["a", None, 1], [1]),
    ("bool", [True, None], [None]),
    ("str", [], []),
]


@pytest.mark.parametrize(("kind", "values", "wrong"), MISFITS)
def test_values_that_a_column_cannot_hold(kind: str, values: list[Any], wrong: list[Any]) -> None:
    column = Column("x", kind, "X.")
    assert column.misfits(values) == wrong
    assert all(column.holds(value) for value in values) == (not wrong)


def test_a_finding_about_thousands_of_runs_is_read_again(tmp_path: Path) -> None:
    runs = "; ".join(f"aach2023-resnet50-ddp-native-64workers-r{number}" for number in range(9000))
    files.write_csv(tmp_path / "audit.csv", [{"runs": runs}], ["runs"])
    csv.field_size_limit(1 << 17)  # Python's default, which another test may have raised
    assert files.read_csv(tmp_path / "audit.csv") == [{"runs": runs}]
