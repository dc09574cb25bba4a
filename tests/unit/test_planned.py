"""A record of other settings than the plan's is in no table but `refused`."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.core.record import MLLOG
from ddlbench.core.spec import RunSpec
from ddlbench.plan import runs, stale
from ddlbench.records import _planned

from tests.unit.records import SPEC, edit_log, write_record


def digest(spec: RunSpec) -> str:
    return _planned.digest(json.loads(spec.to_json()))


def test_a_record_of_another_recipe_is_refused_and_the_others_are_collected(tmp_path: Path) -> None:
    other = replace(SPEC, recipe=replace(SPEC.recipe, base_lr=SPEC.recipe.base_lr * 10), repeat=2)
    folders = [write_record(tmp_path / "runs", SPEC), write_record(tmp_path / "runs", other)]
    wanted = {SPEC.id: digest(SPEC), other.id: digest(replace(SPEC, repeat=2))}
    assert SPEC.id != other.id and other.id == replace(SPEC, repeat=2).id  # its id does not tell
    (refused,) = collect(folders, tmp_path / "tables", {}, wanted)
    assert refused["run"] == other.id
    assert refused["what"] == "is of other settings than this study's plan"
    assert refused["what_to_do"].startswith("start the workflow again")
    assert pd.read_parquet(tmp_path / "tables" / "runs.parquet")["run"].tolist() == [SPEC.id]
    assert collect(folders, tmp_path / "all") == []  # nobody has planned anything


def test_an_older_record_of_the_same_settings_is_collected(tmp_path: Path) -> None:
    """1 and 1.0 are one number; keys that it does not know yet have their defaults."""
    folder = write_record(tmp_path / "runs")
    edit_log(folder, f'"base_lr": {SPEC.recipe.base_lr}', f'"base_lr": {SPEC.recipe.base_lr}0')
    assert collect([folder], tmp_path / "tables", {}, {SPEC.id: digest(SPEC)}) == []
    assert _planned.digest({"recipe": {"a": 1, "b": True}, "c": [2]}) == _planned.digest(
        {"recipe": {"a": 1.0, "b": True}, "c": (2.0,)}
    )
    assert _planned.digest({"b": True}) != _planned.digest({"b": 1})


def test_every_planned_run_has_a_digest_of_its_own(demo: runs.Plan) -> None:
    assert len(set(runs.digests(demo).values())) == len(demo.runs)


@pytest.mark.parametrize(
    "value", ["[" * 100_000, '{"recipe": 7}', "null", "0}\n:::MLLOG {", '{"recipe": {"base_lr": 1e999}}']
)
def test_whatever_stands_in_a_log_is_refused_and_ends_nothing(tmp_path: Path, value: str) -> None:
    folder = tmp_path / SPEC.id
    folder.mkdir()
    line = f':::MLLOG {{"key": "ddlbench_spec", "time_ms": 1, "metadata": {{}}, "value": {value}}}\n'
    (folder / MLLOG).write_text(line)
    (refused,) = collect([folder], tmp_path / "tables", {}, {SPEC.id: digest(SPEC)})
    assert refused["run"] == SPEC.id
    assert stale.is_of_other_settings(folder / MLLOG, SPEC) in (True, False)  # and ends no Snakemake
