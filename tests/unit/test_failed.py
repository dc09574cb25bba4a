"""What a failed run leaves: its own reason, and never that of an earlier try."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import living, notes
from ddlbench.run import __main__, job
from ddlbench.run import training as supervisor
from ddlbench.settings.config import ConfigError

from tests.builders.plans import run_spec
from tests.facts import missing

FAILURE = {"cause": "disk full", "rank": 1, "host": "node1", "message": "rank 1: disk full"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder: an earlier try failed, and so does this one."""
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / job.FAILURE).write_text(json.dumps({"cause": "out of memory"}))
    (tmp_path / ".partial").mkdir()
    (tmp_path / ".partial" / "run.mllog").write_text("how far it came")
    return tmp_path


def test_the_reason_takes_the_place_of_the_one_before(run: Path) -> None:
    job.keep_failure(run, run / ".partial", FAILURE)
    told = json.loads((run / "failed" / job.FAILURE).read_text())
    assert {key: told[key] for key in FAILURE} == FAILURE
    assert (run / "failed" / "run.mllog").exists()


def test_an_older_reason_never_stands_for_this_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(job, "write_json", full)
    said = job.keep_failure(run, run / ".partial", FAILURE)
    assert not (run / "failed" / job.FAILURE).exists()
    assert (run / "failed" / "run.mllog").exists()
    assert missing(said, "failure.json", "No space left") == []


def test_what_cannot_be_moved_hides_no_reason(run: Path) -> None:
    """The folder cannot be renamed (read-only, another's): the line with the cause is still to be
    printed.
    """
    said = job.keep_failure(run, run / "nowhere", FAILURE)
    assert missing(said, "failure.json", "No such file") == []


STOPS = (
    """:::MLLOG {"namespace": "", "time_ms": 1, "event_type": "INTERVAL_END", "key": "run_stop", """
)
STOPS += """"value": null, "metadata": {"status": "success", "file": "x", "lineno": 1}}"""


@pytest.mark.parametrize(
    ("left", "lacks"), [({}, "run.mllog"), ({"run.mllog": STOPS}, "steps.rows")]
)
def test_ranks_that_end_well_and_leave_no_record(
    tmp_path: Path, left: dict[str, str], lacks: str
) -> None:
    """A site's `srun` that starts something else, or nothing. The next try trains."""
    (tmp_path / "left").mkdir()
    for name, text in ({"rank-0.json": '{"host": "", "pid": 0}'} | left).items():
        (tmp_path / "left" / name).write_text(text)
    run = tmp_path / "run"
    for _ in range(2):
        program = [
            "env",
            "cp",
            *map(str, (tmp_path / "left").iterdir()),
        ]  # into the folder that is said last
        assert supervisor.execute(run_spec(machine="local"), run, None, program) == 1
        told = json.loads((run / "failed" / job.FAILURE).read_text())
        assert told["cause"] == "launcher failed"
        assert missing(told["message"], "no record", lacks) == []


SPEC = run_spec(machine="local").to_json()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--spec", "{}"], "--spec: "),
        (["--spec", "{"], "--spec: "),
        (["--spec", "[]"], "--spec: "),
        (["--spec", "null"], "--spec: "),
        (
            ["--spec", SPEC, "--preflight", "gone.json"],
            "gone.json: is not a preflight report (FileNotFoundError",
        ),
        (
            ["--spec", SPEC, "--preflight", "cut.json"],
            "cut.json: is not a preflight report (JSONDecodeError",
        ),
        (
            ["--spec", SPEC, "--preflight", "list.json"],
            "list.json: is not a preflight report (TypeError",
        ),
        (
            ["--spec", SPEC, "--folder", "cut.json/run"],
            "cut.json/run: cannot be written: Not a directory",
        ),
    ],
)
def test_what_cannot_be_started_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut.json").write_text('{"time":')
    Path("list.json").write_text("[]")
    monkeypatch.setattr("sys.argv", ["run", "--folder", "run", *arguments, "--", "false"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert str(ended.value).startswith(said)
    assert len(str(ended.value).splitlines()) == 1
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("code", "cause"),
    [(errno.ENOSPC, "disk full: [Errno 28]"), (errno.EROFS, "exception: [Errno 30]")],
)
def test_what_keeps_a_run_from_starting_is_its_cause(
    run: Path, monkeypatch: pytest.MonkeyPatch, code: int, cause: str
) -> None:
    """The disk is full before a rank is there. What an earlier try left to go on from stays."""

    def fails(*_: Any) -> None:
        raise OSError(code, "no")

    (run / "failed" / "checkpoint").mkdir()
    monkeypatch.setattr(notes, "reserve", fails)
    monkeypatch.setattr("sys.argv", ["run", "--folder", str(run), "--spec", SPEC, "--", "false"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert f"failed: {cause}" in str(ended.value)
    assert {path.name for path in (run / "failed").iterdir()} == {"checkpoint", job.FAILURE}
    told = json.loads((run / "failed" / job.FAILURE).read_text())
    assert told["cause"] == cause.split(":")[0]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConfigError("config/machines/here.yaml: environment: TOKEN: is missing"), "configuration"),
        (
            living.UnendedError("killed, but still running: process 7 (disk-sleep) on n1"),
            "process does not end",
        ),
        (ZeroDivisionError("by our own fault"), "exception"),
    ],
)
def test_whatever_ends_the_supervisor_is_kept(
    run: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(supervisor, "end_survivors", fails)
    monkeypatch.setattr("sys.argv", ["run", "--folder", str(run), "--spec", SPEC, "--", "false"])
    with pytest.raises((SystemExit, ZeroDivisionError)) as ended:
        __main__.main()
    told = json.loads((run / "failed" / job.FAILURE).read_text())
    assert told["cause"] == cause
    assert str(error) in told["message"] and str(error) in str(ended.value)
    assert (run / ".partial" / "run.mllog").exists()


def test_a_rank_finds_room_for_its_reason(tmp_path: Path) -> None:
    notes.reserve(tmp_path)
    for name in notes.RESERVES:
        assert (tmp_path / name).stat().st_blocks * 512 >= notes.RESERVE_BYTES
    notes.report(tmp_path, 0, OSError(errno.ENOSPC, "No space left on device"))
    of_ranks, of_supervisor = notes.RESERVES
    assert not (tmp_path / of_ranks).exists()
    assert (tmp_path / of_supervisor).exists()
    assert notes.read(tmp_path, "failure")[0]["cause"] == "disk full"
