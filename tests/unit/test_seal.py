"""The seal of a record: whatever changes in its files is noticed.

A record of other settings than the plan's is in no table but `refused`.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pandas as pd
import pytest
from ddlbench.analysis import refusals
from ddlbench.analysis.collect import collect
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.sheets import Planned
from ddlbench.commands.call import older
from ddlbench.core import digest as digests
from ddlbench.core.mllog import SEAL, read_log
from ddlbench.core.record import KERNELS, MLLOG, STEPS
from ddlbench.core.seal import seal
from ddlbench.core.spec import RunSpec
from ddlbench.plan import stale
from ddlbench.plan.values import Plan
from ddlbench.records.ours import record

from tests.builders.records import SPEC, edit_log, write_record
from tests.facts import missing

PROFILED = replace(SPEC, timed=False, profiled=True)


def profiled(folder: Path) -> Path:
    """A record with one more table."""
    record = write_record(folder, PROFILED)
    kernels = {"name": ["gloo:all_reduce"], "on": ["cpu"], "self_s": [1.0], "annotation": [False]}
    pd.DataFrame(kernels).to_parquet(record / KERNELS)
    edit_log(record, "run_start", "run_start")  # which seals it again
    return record


def refused(folder: Path) -> str:
    """What is said of a record; "" if it is believed."""
    try:
        record(folder)
    except RefusedError as error:
        return f"{error.file.name}: {error.what}"
    return ""


@pytest.mark.parametrize("name", [MLLOG, STEPS, KERNELS])
def test_any_bit_that_flips_and_any_cut_is_noticed(tmp_path: Path, name: str) -> None:
    folder, random = profiled(tmp_path), Random(name)
    assert refused(folder) == ""
    whole = (folder / name).read_bytes()
    for _ in range(60):
        place = random.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.randrange(8)
        for damaged in (bytes(flipped), whole[:place]):
            (folder / name).write_bytes(damaged)
            assert refused(folder).startswith(f"{name}: "), place
    (folder / name).write_bytes(whole)
    assert refused(folder) == ""


def test_a_file_that_is_gone_or_new(tmp_path: Path) -> None:
    folder = profiled(tmp_path)
    (folder / KERNELS).rename(tmp_path / KERNELS)
    assert missing(refused(folder), f"{KERNELS}: ", "missing", "SHA-256") == []
    folder = write_record(tmp_path, replace(PROFILED, repeat=2))
    (tmp_path / KERNELS).rename(folder / KERNELS)
    assert missing(refused(folder), f"{KERNELS}: ", "not name") == []


def test_a_line_behind_the_seal(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    log = folder / MLLOG
    text = log.read_text()
    lines = text.splitlines(keepends=True)
    for changed in (
        text + lines[-2],
        text + "\n",
        text + lines[-1],
        "".join(lines[:-1]),
        text.rstrip(),
    ):
        log.write_text(changed)
        assert refused(folder).startswith(f"{MLLOG}: "), changed[-200:]
    log.write_text(text)
    assert refused(folder) == ""


def test_many_records_of_other_settings_are_one_line(tmp_path: Path) -> None:
    folders = [write_record(tmp_path / "runs", replace(SPEC, repeat=n)) for n in range(1, 4)]
    said = refusals.lines(
        collect(
            folders, tmp_path / "tables", Planned({folder.name: "another" for folder in folders})
        )
    )
    assert len(said) == 4 and said[1].startswith("WARNING: 3 records are refused")
    assert (
        missing(said[2].splitlines()[0], f"{folders[0]}/run.mllog: ", "other settings", "2 more")
        == []
    )


def test_a_kill_while_a_record_is_sealed_leaves_it_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_record(tmp_path)
    log = folder / MLLOG
    log.write_text(
        "".join(f"{line}\n" for line in log.read_text().splitlines() if SEAL not in line)
    )
    before = log.read_bytes()
    program = "import os, sys; from pathlib import Path; from ddlbench.core import seal\n"
    program += "seal.sha256 = lambda path: os.kill(os.getpid(), 9)\nseal.seal(Path(sys.argv[1]))"
    assert subprocess.run([sys.executable, "-c", program, str(folder)]).returncode == -9
    assert (folder / MLLOG).read_bytes() == before
    seal(folder)
    assert [event.key for event in read_log(folder / MLLOG)].count(SEAL) == 1
    assert (
        json.loads((folder / MLLOG).read_text().splitlines()[-1].split(":::MLLOG ")[1])["key"]
        == SEAL
    )


def digest(spec: RunSpec) -> str:
    return digests.digest(json.loads(spec.to_json()))


def test_a_record_of_another_recipe_is_refused_and_the_others_are_collected(tmp_path: Path) -> None:
    other = replace(SPEC, recipe=replace(SPEC.recipe, base_lr=SPEC.recipe.base_lr * 10), repeat=2)
    folders = [write_record(tmp_path / "runs", SPEC), write_record(tmp_path / "runs", other)]
    wanted = {SPEC.id: digest(SPEC), other.id: digest(replace(SPEC, repeat=2))}
    assert SPEC.id != other.id and other.id == replace(SPEC, repeat=2).id  # its id does not tell
    (refused,) = collect(folders, tmp_path / "tables", Planned(wanted))
    assert refused["run"] == other.id
    assert missing(refused["what"], "other settings", "plan") == []
    assert refused["what_to_do"].startswith("start the workflow again")
    assert pd.read_parquet(tmp_path / "tables" / "runs.parquet")["run"].tolist() == [SPEC.id]
    assert collect(folders, tmp_path / "all") == []  # nobody has planned anything


def test_a_record_whose_numbers_are_written_otherwise_is_collected(tmp_path: Path) -> None:
    """1 and 1.0 are one number."""
    folder = write_record(tmp_path / "runs")
    edit_log(folder, f'"base_lr": {SPEC.recipe.base_lr}', f'"base_lr": {SPEC.recipe.base_lr}0')
    assert collect([folder], tmp_path / "tables", Planned({SPEC.id: digest(SPEC)})) == []
    assert digests.digest({"recipe": {"a": 1, "b": True}, "c": [2]}) == digests.digest(
        {"recipe": {"a": 1.0, "b": True}, "c": (2.0,)}
    )
    assert digests.digest({"b": True}) != digests.digest({"b": 1})


def test_every_planned_run_has_a_digest_of_its_own(demo: Plan) -> None:
    assert len(set(demo.digests.values())) == len(demo.runs)


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, '{"recipe": 7}', "null", "0}\n:::MLLOG {", '{"recipe": {"base_lr": 1e999}}'],
)
def test_whatever_stands_in_a_log_is_refused_and_ends_nothing(tmp_path: Path, value: str) -> None:
    folder = tmp_path / SPEC.id
    folder.mkdir()
    line = (
        f':::MLLOG {{"key": "ddlbench_spec", "time_ms": 1, "metadata": {{}}, "value": {value}}}\n'
    )
    (folder / MLLOG).write_text(line)
    (refused,) = collect([folder], tmp_path / "tables", Planned({SPEC.id: digest(SPEC)}))
    assert refused["run"] == SPEC.id
    assert stale.is_of_other_settings(folder / MLLOG, SPEC) in (
        True,
        False,
    )  # and ends no Snakemake


@pytest.mark.more
def test_whatever_byte_of_a_log_changes_it_is_refused_and_not_made_again(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    log, planned = folder / MLLOG, SPEC.to_json()
    whole = log.read_bytes()
    recipe = whole.index(b'"label_smoothing": ') + len(b'"label_smoothing": ')
    seed = whole.index(b'"seed": ') + len(b'"seed": ')
    random = Random(1)
    for place in (
        recipe,
        seed,
        whole.index(b"ddlbench_spec"),
        *(random.randrange(len(whole)) for _ in range(40)),
    ):
        changed = bytearray(whole)
        changed[place] = (
            ord("7")
            if chr(changed[place]).isdigit() and changed[place] != ord("7")
            else changed[place] ^ 1
        )
        log.write_bytes(bytes(changed))
        assert not stale.is_of_other_settings(log, SPEC), place
        for recorded in (None, json.loads(planned) | {"workers": 77}):
            state, why = stale.state(folder, SPEC, recorded, None)
            assert state == stale.DONE and "its record is refused" in why, place
        (row,) = collect([folder], tmp_path / "tables", Planned({SPEC.id: digest(SPEC)}))
        assert "start the workflow again:" not in row["what_to_do"], place
    log.write_bytes(whole)
    assert stale.state(folder, SPEC, json.loads(planned), None) == (stale.DONE, "")
    assert stale.is_of_other_settings(
        log, replace(SPEC, loader_threads=7)
    )  # sealed, of a former plan


def test_an_answer_of_tables_older_than_a_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_record(tmp_path / "results/runs")
    table = tmp_path / "runs.parquet"
    plan = SimpleNamespace(runs={SPEC.id: None})
    assert older(plan, table) == []
    table.touch()
    assert older(plan, table) == []
    later = table.stat().st_mtime + 9
    os.utime(folder / STEPS, (later, later))
    (line,) = older(plan, table)
    assert SPEC.id in line and str(table) in line
