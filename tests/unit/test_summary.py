"""The summary beside a record: used while it is that record's, by this code; made anew otherwise."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import summary
from ddlbench.analysis.collect import collect
from ddlbench.analysis.read import read
from ddlbench.analysis.tables import TABLES
from ddlbench.core.record import KERNELS, MLLOG, STEPS
from ddlbench.run.finish import summarise

from tests.unit.records import SPEC, edit_log, seal_again, write_record


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records that were read, by the names of their folders."""
    names: list[str] = []

    def note(folder: Path) -> Any:
        names.append(folder.name)
        return read(folder)

    monkeypatch.setattr(summary, "read", note)
    return names


def test_one_new_run_reads_one_record(tmp_path: Path, reads: list[str]) -> None:
    specs = [SPEC, replace(SPEC, repeat=2, timed=False), replace(SPEC, repeat=3, timed=False, profiled=True)]
    folders = [write_record(tmp_path, spec) for spec in specs]
    kernel = {"name": "nccl", "on": "device", "self_s": 1.0, "annotation": False}
    pd.DataFrame([kernel, kernel | {"name": "gemm"}]).to_parquet(folders[2] / KERNELS)
    seal_again(folders[2])
    summarise(folders[0])  # as a run does when it ends
    folders.append(write_record(tmp_path, replace(SPEC, repeat=4), status=None))
    collect(folders, tmp_path / "before", {"fp32": 1.0})
    assert reads == [folder.name for folder in folders]
    collect(folders, tmp_path / "after", {"fp32": 1.0})
    assert len(reads) == 4
    for name in TABLES:
        before, after = (pd.read_parquet(tmp_path / f"{when}/{name}.parquet") for when in ("before", "after"))
        pd.testing.assert_frame_equal(before, after, check_exact=True)
    assert len(pd.read_parquet(tmp_path / "after/kernels.parquet")) == 1
    new = write_record(tmp_path, replace(SPEC, repeat=5))
    collect([*folders, new], tmp_path / "after", {"fp32": 2.0})
    assert reads[4:] == [new.name]
    shares = [pd.read_parquet(tmp_path / f"{when}/runs.parquet")["mfu"][0] for when in ("before", "after")]
    assert shares[0] == 2 * shares[1] > 0  # what a machine file says is in no summary


def change_mtime(folder: Path) -> None:
    os.utime(folder / STEPS, ns=(1, 1))


def other_version(folder: Path) -> None:
    path = folder / summary.NAME
    path.write_text(path.read_text().replace(summary.version(), "0" * 64))


def other_number(folder: Path) -> None:
    path = folder / summary.NAME
    assert '"images": 16' in path.read_text()
    path.write_text(path.read_text().replace('"images": 16', '"images": 17'))


def cut_off(folder: Path) -> None:
    path = folder / summary.NAME
    path.write_bytes(path.read_bytes()[:-9])


def other_log(folder: Path) -> None:
    edit_log(folder, '"commit": "abc"', '"commit": "abd"')


def of_another(folder: Path) -> None:
    other = write_record(folder.parent / "other", replace(SPEC, repeat=2))
    summary.of(other)
    text = (other / summary.NAME).read_text().splitlines()
    head = json.loads(text[0]) | {"files": json.loads((folder / summary.NAME).read_text().splitlines()[0])["files"]}
    (folder / summary.NAME).write_text(f"{json.dumps(head)}\n{text[1]}\n")


def forged(table: str, column: str, value: Any) -> Callable[[Path], None]:
    """A summary with another value, whose digest was made again."""

    def change(folder: Path) -> None:
        path = folder / summary.NAME
        first, body = path.read_text().splitlines()
        about = json.loads(body)
        about[table][column] = value
        body = json.dumps(about)
        path.write_text(f"{json.dumps(json.loads(first) | {'sha256': summary._digest(body)})}\n{body}\n")

    return change


CHANGES: list[tuple[Callable[[Path], None], bool]] = [
    (change_mtime, False),
    (other_version, True),
    (other_number, True),
    (cut_off, True),
    (other_log, True),
    (of_another, True),
    (forged("values", "final_top1", "much"), True),
    (forged("values", "steps", 10**40), True),
    (forged("epochs", "top1", ["0.5", 0.25]), True),
    (forged("epochs", "top1", [0.5]), True),
    (forged("epochs", "epoch", [1, None]), True),
    (forged("learning_rates", "lr", {}), True),
    (forged("step_times", "data_wait_s", []), True),
    (lambda folder: (folder / summary.NAME).write_text("[]\n[]\n"), True),
    (lambda folder: (folder / summary.NAME).write_bytes(b"\xff\xfe"), True),
]


@pytest.mark.parametrize(("change", "again"), CHANGES)
def test_another_record_or_a_damaged_summary(
    tmp_path: Path, reads: list[str], change: Callable[[Path], None], again: bool
) -> None:
    folder = write_record(tmp_path)
    good = summary.of(folder)
    change(folder)
    reads.clear()
    assert summary.of(folder)["values"] == good["values"]
    assert len(reads) == again
    text = (folder / summary.NAME).read_text()
    assert str((folder / STEPS).stat().st_mtime_ns) in text
    summary.of(folder)
    assert len(reads) == again  # what was made anew is kept
    assert (folder / summary.NAME).read_text() == text


def test_steps_that_changed_after_the_summary_are_refused(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    assert collect([folder], tmp_path / "tables") == []
    data = (folder / STEPS).read_bytes()
    (folder / STEPS).write_bytes(data[:200] + b"X" + data[201:])
    assert "the file was changed" in collect([folder], tmp_path / "tables")[0]["what"]
    (folder / STEPS).unlink()
    assert "is missing" in collect([folder], tmp_path / "tables")[0]["what"]


def test_a_record_that_was_copied_keeps_its_summary(tmp_path: Path, reads: list[str]) -> None:
    folder = write_record(tmp_path / "here")
    summary.of(folder)
    shutil.copytree(folder, tmp_path / "there" / folder.name, copy_function=shutil.copyfile)  # times are new
    summary.of(tmp_path / "there" / folder.name)
    assert len(reads) == 1


def test_where_nothing_can_be_written_tables_are_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(summary, "write_text", refuse)
    folder = write_record(tmp_path)
    assert collect([folder], tmp_path / "tables") == []
    assert not (folder / summary.NAME).exists()


def test_a_run_that_ended_well_does_not_fail_of_its_summary(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_record(tmp_path)
    (folder / MLLOG).write_text("nothing\n")
    summarise(folder)
    assert "has no seal" in capfd.readouterr().err


def test_the_version_is_that_of_all_code_that_has_a_part_in_it() -> None:
    found: dict[str, bytes] = {}
    summary._add_source("ddlbench.analysis.summary", found)
    names = {name.removeprefix("ddlbench.") for name in found}
    assert {"analysis.times", "analysis.trust", "core.record", "core.spec", "train.measure", "core.columns"} <= names
    assert not {"analysis.collect", "analysis.tables", "analysis.failures"} & names
