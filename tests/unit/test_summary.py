"""The summary beside a record: used while it is that record's, by this code; made anew
otherwise.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.analysis.sheets import Costs
from ddlbench.analysis.summary import VERSION, make
from ddlbench.analysis.tables import TABLES
from ddlbench.core.record import FLOPS, KERNELS, MLLOG, STEPS
from ddlbench.records import ours
from ddlbench.records.ours import record
from ddlbench.run.finish import summarise

from tests.builders.records import SPEC, edit_log, seal_again, write_record


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records that were read, by the names of their folders."""
    names: list[str] = []

    def note(folder: Path) -> Any:
        names.append(folder.name)
        return record(folder)

    monkeypatch.setattr(ours, "record", note)
    return names


def test_one_new_run_reads_one_record(tmp_path: Path, reads: list[str]) -> None:
    specs = [
        SPEC,
        replace(SPEC, repeat=2, timed=False),
        replace(SPEC, repeat=3, timed=False, profiled=True),
    ]
    folders = [write_record(tmp_path, spec) for spec in specs]
    kernel = {"name": "nccl", "on": "device", "self_s": 1.0, "annotation": False}
    pd.DataFrame([kernel, kernel | {"name": "gemm"}]).to_parquet(folders[2] / KERNELS)
    seal_again(folders[2])
    summarise(folders[0])  # as a run does when it ends
    folders.append(write_record(tmp_path, replace(SPEC, repeat=4), status=None))
    collect(folders, tmp_path / "before", costs=Costs(peaks={"fp32": 1.0}))
    assert reads == [folder.name for folder in folders]
    collect(folders, tmp_path / "after", costs=Costs(peaks={"fp32": 1.0}))
    assert len(reads) == 4
    for name in TABLES:
        before, after = (
            pd.read_parquet(tmp_path / f"{when}/{name}.parquet") for when in ("before", "after")
        )
        pd.testing.assert_frame_equal(before, after, check_exact=True)
    assert len(pd.read_parquet(tmp_path / "after/kernels.parquet")) == 1
    new = write_record(tmp_path, replace(SPEC, repeat=5))
    collect([*folders, new], tmp_path / "after", costs=Costs(peaks={"fp32": 2.0}))
    assert reads[4:] == [new.name]
    shares = [
        pd.read_parquet(tmp_path / f"{when}/runs.parquet")["mfu"][0] for when in ("before", "after")
    ]
    assert shares[0] == 2 * shares[1] > 0  # what a machine file says is in no summary


def edited(before: str, after: str) -> Callable[[Path], None]:
    """A summary in which a text is another."""

    def change(folder: Path) -> None:
        text = (folder / ours.SUMMARY).read_text()
        assert before in text
        (folder / ours.SUMMARY).write_text(text.replace(before, after))

    return change


def of_another(folder: Path) -> None:
    other = write_record(folder.parent / "other", replace(SPEC, repeat=2))
    ours.read(other)
    text = (other / ours.SUMMARY).read_text().splitlines()
    head = json.loads(text[0]) | {
        "files": json.loads((folder / ours.SUMMARY).read_text().splitlines()[0])["files"]
    }
    (folder / ours.SUMMARY).write_text(f"{json.dumps(head)}\n{text[1]}\n")


def forged(table: str, column: str, value: Any) -> Callable[[Path], None]:
    """A summary with another value, whose digest was made again."""

    def change(folder: Path) -> None:
        path = folder / ours.SUMMARY
        first, body = path.read_text().splitlines()
        about = json.loads(body)
        about[table][column] = value
        body = json.dumps(about)
        path.write_text(
            f"{json.dumps(json.loads(first) | {'sha256': ours._digest(body)})}\n{body}\n"
        )

    return change


def of_other_members(
    change: Callable[[dict[str, Any], dict[str, Any]], object],
) -> Callable[[Path], None]:
    """A summary by a version with other files of records, or other tables; its digest was made
    again.
    """

    def write(folder: Path) -> None:
        head, about = map(json.loads, (folder / ours.SUMMARY).read_text().splitlines())
        change(head["files"], about)
        body = json.dumps(about)
        head["sha256"] = ours._digest(body)
        del head["code"]
        head["code"] = ours._code(head)
        (folder / ours.SUMMARY).write_text(f"{json.dumps(head)}\n{body}\n")

    return write


CHANGES: list[tuple[Callable[[Path], object], bool]] = [
    (lambda folder: os.utime(folder / STEPS, ns=(1, 1)), False),
    (edited('"version": ', '"version": 9'), True),
    (edited('"images": 16', '"images": 17'), True),
    (
        lambda folder: (folder / ours.SUMMARY).write_bytes(
            (folder / ours.SUMMARY).read_bytes()[:-9]
        ),
        True,
    ),
    (lambda folder: edit_log(folder, '"commit": "abc"', '"commit": "abd"'), True),
    (of_another, True),
    (forged("values", "final_top1", "much"), True),
    (forged("values", "throughput_images_per_s", 1e9), True),
    (forged("values", "steps", 10**40), True),
    (forged("epochs", "top1", ["0.5", 0.25]), True),
    (forged("epochs", "top1", [0.5]), True),
    (forged("epochs", "epoch", [1, None]), True),
    (forged("learning_rates", "lr", {}), True),
    (forged("step_times", "data_wait_s", []), True),
    (
        of_other_members(lambda files, about: files.pop(FLOPS)),
        False,
    ),  # there was no such file, and there is none
    (
        of_other_members(lambda files, about: about.update(further=[])),
        False,
    ),  # a table that is no longer there
    (of_other_members(lambda files, about: about.pop("messages")), True),  # a table that came later
    (lambda folder: (folder / ours.SUMMARY).write_text("[]\n[]\n"), True),
    (lambda folder: (folder / ours.SUMMARY).write_bytes(b"\xff\xfe"), True),
]


@pytest.mark.parametrize(("change", "again"), CHANGES)
def test_another_record_or_a_damaged_summary(
    tmp_path: Path, reads: list[str], change: Callable[[Path], object], again: bool
) -> None:
    folder = write_record(tmp_path)
    good = ours.read(folder) or {}
    change(folder)
    reads.clear()
    assert (ours.read(folder) or {})["values"] == good["values"]
    assert len(reads) == again
    text = (folder / ours.SUMMARY).read_text()
    assert str((folder / STEPS).stat().st_mtime_ns) in text
    ours.read(folder)
    assert len(reads) == again  # what was made anew is kept
    assert (folder / ours.SUMMARY).read_text() == text


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
    ours.read(folder)
    shutil.copytree(
        folder, tmp_path / "there" / folder.name, copy_function=shutil.copyfile
    )  # times are new
    ours.read(tmp_path / "there" / folder.name)
    assert len(reads) == 1


def test_where_nothing_can_be_written_tables_are_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(ours, "write_text", refuse)
    folder = write_record(tmp_path)
    assert collect([folder], tmp_path / "tables") == []
    assert not (folder / ours.SUMMARY).exists()


def test_a_run_that_ended_well_does_not_fail_of_its_summary(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_record(tmp_path)
    (folder / MLLOG).write_text("nothing\n")
    summarise(folder)
    assert "has no seal" in capfd.readouterr().err


def plain(value: Any) -> Any:
    """As JSON has it, numbers to nine digits: what comes after depends on the machine. Null is as
    good as nothing.
    """
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_who_changes_what_a_summary_says_raises_its_version(tmp_path: Path) -> None:
    """Summaries of before would else stay in tables. Timed, profiled, untimed, interrupted and
    failed runs.
    """
    specs = [
        SPEC,
        replace(SPEC, timed=False, profiled=True),
        replace(SPEC, repeat=2, timed=False, of_epochs=9),
    ]
    folders = [write_record(tmp_path, spec) for spec in specs]
    kernels = {"name": ["nccl", "gemm"], "on": "device", "self_s": [1.0, 2.0], "annotation": False}
    pd.DataFrame(kernels).to_parquet(folders[1] / KERNELS)
    seal_again(folders[1])
    note = {"step": 3, "time_s": 20.0, "checkpoint_s": None}
    folders.append(write_record(tmp_path, replace(SPEC, interrupt_steps=3), interrupted=note))
    folders.append(write_record(tmp_path, replace(SPEC, repeat=4), status=None))
    for folder in folders:  # some events have the time of the test
        log = folder / MLLOG
        log.write_text(re.sub(r'"time_ms": \d{13}', '"time_ms": 60000', log.read_text()))
        seal_again(folder)
    text = json.dumps(plain([make(record(folder)) for folder in folders]), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    says = (
        "what a summary says has changed: raise VERSION in analysis/summary.py, and write both here"
    )
    assert (VERSION, digest) == (12, "b2db5d1488c81b1f"), says
