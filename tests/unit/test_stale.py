"""Done, stale, failed, stopped or missing: a planned run beside its folder, its record and
Snakemake's memory.
"""

import json
import os
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.analysis import failures
from ddlbench.core import files, layout
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.plan import stale
from ddlbench.plan.stale import DONE, FAILED, MISSING, STALE, STOPPED, JobMetadata

from tests.builders.records import SPEC, write_record

OTHER = replace(SPEC, loader_threads=SPEC.loader_threads + 6)


def recorded(spec: RunSpec = SPEC) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(spec.to_json())
    return settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole record, which no test changes."""
    return write_record(tmp_path_factory.mktemp("runs"))


# The folder


@pytest.mark.parametrize(
    ("there", "state", "named"),
    [
        ((), MISSING, ""),
        ((STEPS,), MISSING, MLLOG),
        ((MLLOG,), MISSING, STEPS),
        ((failures.PARTIAL,), STOPPED, "stopped"),
        ((STEPS, failures.PARTIAL), STOPPED, "stopped"),
        ((failures.FAILED,), FAILED, "failed"),
        ((failures.FAILED, failures.PARTIAL), STOPPED, "stopped"),
        ((f"{failures.FAILED}/{failures.REPORT}", failures.PARTIAL), FAILED, "failed"),
    ],
)
def test_a_folder_without_a_record(
    tmp_path: Path, there: tuple[str, ...], state: str, named: str
) -> None:
    for name in there:
        if name in (failures.PARTIAL, failures.FAILED):
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
    found, why = stale.state(tmp_path, SPEC, None, None)
    assert found == state
    assert (why == "") == (named == "")
    assert named in why
    if not named:
        assert stale.unfinished(tmp_path) == (MISSING, "")


def test_a_record_that_is_not_whole_is_made_again_and_a_refused_one_is_not(
    folder: Path, tmp_path: Path
) -> None:
    assert stale.state(folder, SPEC, None, None)[0] == STALE
    log = tmp_path / MLLOG
    log.write_bytes((folder / MLLOG).read_bytes() + b"\n")
    (tmp_path / STEPS).touch()
    for settings in (None, recorded(), recorded(OTHER)):
        state, why = stale.state(tmp_path, SPEC, settings, None)
        assert (state, "refused" in why) == (DONE, True)


def test_a_record_of_the_planned_settings_is_done_and_of_others_stale(folder: Path) -> None:
    assert stale.state(folder, SPEC, recorded(), None) == (DONE, "")
    before, now = SPEC.loader_threads, OTHER.loader_threads
    assert stale.state(folder, OTHER, recorded(), None) == (
        STALE,
        f"loader_threads {before} -> {now}",
    )


# Data


@pytest.mark.parametrize(
    ("moved_s", "kept", "state"),
    [
        (-1.0, "another", DONE),  # older than the record
        (0.0, "another", DONE),
        (1.0, "another", STALE),
        (1.0, None, STALE),
        (1.0, "same", DONE),  # contents count
        (1.0, "same, as Snakemake writes it", DONE),
    ],
)
def test_data_that_were_made_anew(
    folder: Path, tmp_path: Path, moved_s: float, kept: str | None, state: str
) -> None:
    """The manifest is newer than the older one of the record's files, by so much."""
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    since = min((folder / name).stat().st_mtime_ns for name in (MLLOG, STEPS))
    os.utime(manifest, ns=(since, since + int(moved_s * 1e9)))
    digest = files.sha256(manifest)
    checksums = {
        None: {},
        "another": {str(manifest): "0" * 64},
        "same": {str(manifest): digest},
        "same, as Snakemake writes it": {str(manifest): f"sha256:{digest}"},
    }[kept]
    for memory in (
        JobMetadata((str(manifest),), checksums, None),
        JobMetadata(None, checksums, None),
    ):
        found, why = stale.state(folder, SPEC, recorded(), str(manifest), memory)
        assert found == state
        assert why == ("" if state == DONE else f"{manifest} was made again")
    without = stale.state(folder, SPEC, recorded(), str(manifest))
    assert without[0] == (STALE if moved_s > 0 else DONE)


def test_the_older_file_of_a_record_says_how_old_it_is(tmp_path: Path) -> None:
    folder, manifest = write_record(tmp_path / "runs"), tmp_path / "manifest.json"
    manifest.touch()
    for name, time_s in ((MLLOG, 1000), (STEPS, 3000), (manifest, 2000)):
        os.utime(folder / name, (time_s, time_s))
    assert stale.state(folder, SPEC, recorded(), str(manifest))[0] == STALE


def test_data_that_are_gone_say_nothing_against_a_run(folder: Path) -> None:
    assert stale.state(folder, SPEC, recorded(), "gone/manifest.json") == (DONE, "")


@pytest.mark.parametrize(
    ("now", "then", "named"),
    [
        (None, (), ()),
        ("gone/a.json", ("gone/a.json",), ()),
        (None, ("gone/a.json",), ("reads nothing", "read gone/a.json")),
        ("gone/b.json", (), ("reads gone/b.json", "read nothing")),
        ("gone/b.json", ("gone/a.json",), ("reads gone/b.json", "read gone/a.json")),
        (
            "gone/a.json",
            ("gone/a.json", "gone/c.json"),
            ("reads gone/a.json", "read gone/a.json, gone/c.json"),
        ),
    ],
)
def test_a_run_that_reads_other_data_is_stale(
    folder: Path, now: str | None, then: tuple[str, ...], named: tuple[str, ...]
) -> None:
    found, why = stale.state(folder, SPEC, recorded(), now, JobMetadata(then, {}, None))
    assert found == (STALE if named else DONE)
    assert all(words in why for words in named)


@pytest.mark.parametrize(
    ("then", "now", "state"),
    [("a", "a", DONE), ("a", "b", STALE), (None, "b", DONE), ("a", None, DONE), (None, None, DONE)],
)
def test_another_command_of_the_rule_makes_a_run_stale(
    folder: Path, then: str | None, now: str | None, state: str
) -> None:
    assert stale.state(folder, SPEC, recorded(), None, JobMetadata((), {}, then), now)[0] == state
    assert stale.state(folder, SPEC, recorded(), None, None, now)[0] == DONE  # nobody remembers it


def test_all_reasons_are_named(folder: Path) -> None:
    _, why = stale.state(folder, OTHER, recorded(), "gone/a.json", JobMetadata((), {}, "a"), "b")
    assert [reason.split()[0] for reason in why.split("; ")] == ["loader_threads", "reads", "rule"]


# Settings


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": 2}, ["a 1 -> 2"]),
        ({"a": None}, {}, ["a null -> not set"]),
        ({}, {"a": None}, ["a not set -> null"]),
        ({"b": 1, "a": "x"}, {"b": 2, "a": "y"}, ['a "x" -> "y"', "b 1 -> 2"]),
        ({"of": {"b": {"c": 1, "d": 1}}}, {"of": {"b": {"c": 2, "d": 1}}}, ["of.b.c 1 -> 2"]),
        ({"of": {"b": 1}}, {"of": 1}, ['of {"b": 1} -> 1']),
        ({"of": 1}, {"of": {"b": 1}}, ['of 1 -> {"b": 1}']),
        ({"of": {"b": 1}}, {"of": {}}, ["of.b 1 -> not set"]),
        ({"model_sha256": "0"}, {"model_sha256": "1"}, ["the source of the model changed"]),
        ({"of": {"digest": "0"}}, {"of": {"digest": "1"}}, ["files of the program changed"]),
        ({"of": {"digest": "0", "x": 1}}, {"of": {"digest": "0", "x": 2}}, ["of.x 1 -> 2"]),
    ],
)
def test_each_setting_that_differs_is_named(
    before: dict[str, Any], now: dict[str, Any], differ: list[str]
) -> None:
    assert stale.changes(before, now) == differ


def test_texts_of_the_same_settings_are_of_one_run() -> None:
    text = SPEC.to_json()
    assert stale.is_same_run(text, json.dumps(json.loads(text), indent=1))
    assert not stale.is_same_run(text, OTHER.to_json())
    for broken in ("", "{", "[1]", "null"):
        assert not stale.is_same_run(text, broken)
        assert not stale.is_same_run(broken, text)


# Records themselves


def test_a_sealed_record_says_what_it_is_of(folder: Path, tmp_path: Path) -> None:
    assert not stale.is_of_other_settings(folder / MLLOG, SPEC)
    assert stale.is_of_other_settings(folder / MLLOG, OTHER)
    log = tmp_path / MLLOG
    assert not stale.is_of_other_settings(log, SPEC)  # there is none
    log.write_bytes((folder / MLLOG).read_bytes() + b"\n")
    assert not stale.is_of_other_settings(log, OTHER)  # refused, and not made again


def test_a_record_of_a_timed_run_serves_a_study_that_needs_no_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    untimed = replace(SPEC, timed=False)
    assert not stale.was_timed(untimed)  # there is none
    write_record(Path("results/runs"))
    assert stale.was_timed(untimed) and stale.was_timed(SPEC)
    assert not stale.was_timed(replace(OTHER, timed=False))
    (Path(layout.run_log(SPEC.id))).write_text("of something else")
    assert not stale.was_timed(untimed)
    write_record(Path("results/runs"), replace(untimed, repeat=2))
    assert not stale.was_timed(replace(untimed, repeat=2))


def test_steps_that_the_log_was_not_sealed_with(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    assert not stale.has_other_steps(folder)
    with (folder / STEPS).open("ab") as steps:
        steps.write(b"0")
    assert stale.has_other_steps(folder)
    (folder / STEPS).unlink()
    assert stale.has_other_steps(folder)  # nobody can tell
    assert stale.has_other_steps(tmp_path / "none")


# Snakemake's memory


def note_of(output: str, text: str | None = None) -> Path:
    """The file in which Snakemake keeps what it remembers of the job that made an output, whose
    name is short.
    """
    path = stale.NOTES / urlsafe_b64encode(output.encode()).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is not None:
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ('{"code": "a"}', {"code": "a"}),
        ("{}", {}),
        ("[1]", None),
        ("{", None),
        ("", None),
        (None, None),
    ],
)
def test_what_snakemake_remembers_of_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, note: dict[str, Any] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    note_of("a/run.log", text)
    assert stale.read_metadata("a/run.log") == note


def test_a_long_name_is_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = "a" * 600
    name = urlsafe_b64encode(output.encode()).decode()
    longest = os.pathconf(tmp_path, "PC_NAME_MAX") - 1
    pieces = [
        name[:longest],
        name[longest : 2 * longest],
        name[2 * longest : 3 * longest],
        name[3 * longest :],
    ]
    path = stale.NOTES.joinpath(*(f"@{piece}" for piece in pieces[:3]), pieces[3])
    path.parent.mkdir(parents=True)
    path.write_text('{"code": "a"}')
    assert stale.read_metadata(output) == {"code": "a"}


def test_runs_that_snakemake_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert stale.metadata_of(["whole"]) == {}  # it was told to keep its memory elsewhere
    notes = {
        "whole": {"input": ["a", "b"], "input_checksums": {"a": "1"}, "code": "c"},
        "early": {"input": [], "input_checksums": None, "code": None},
        "empty": {"input": None, "shellcmd": "x"},
        "no log": {"input": ["a"]},
    }
    for run, note in notes.items():
        log = Path(layout.run_log(run))
        if run != "no log":
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        note_of(str(log), json.dumps(note))
    forgotten = Path(layout.run_log("forgotten"))
    forgotten.parent.mkdir(parents=True, exist_ok=True)
    forgotten.touch()
    assert stale.metadata_of(["no log", "forgotten", "whole", "early", "empty"]) == {
        "whole": JobMetadata(("a", "b"), {"a": "1"}, "c"),
        "early": JobMetadata((), {}, None),
        "empty": JobMetadata(None, {}, None),
    }
