"""After training: a record is joined, sealed and put in place, whenever its supervisor is killed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.core import notes
from ddlbench.core.record import KERNELS, MLLOG, ROWS, SEAL, STEPS, RankLog, StepRow, packed, read_log
from ddlbench.run import __main__ as supervisor
from ddlbench.run import failed, finish, job
from ddlbench.train.assignment import Assignment

from tests.disks import fill, small_disk
from tests.kills import killed_at
from tests.unit.records import RANKS, SPEC, write_record

TRAINS_NOT = [sys.executable, "-c", "raise SystemExit('it is trained again')"]


def leave(folder: Path) -> Path:
    """What two ranks leave in a run's folder when training is over: the folder."""
    record, run = write_record(folder / "made"), folder / "runs" / SPEC.id
    partial = run / ".partial"
    partial.mkdir(parents=True)
    lines = (record / MLLOG).read_text().splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if "run_stop" in line)
    (partial / MLLOG).write_text("".join(lines[: end + 1]))
    log = RankLog(partial, 0)
    for _, of_rank in pd.read_parquet(record / STEPS).groupby("rank"):
        log.write_steps(packed([StepRow(*row) for row in of_rank.itertuples(index=False)]))
    for rank, left in enumerate(RANKS):
        (partial / f"rank-{rank}.json").write_text(json.dumps(left | {"pid": 2**30, "started": 0.0}))
        (partial / f"ended-{rank}.json").touch()
    pd.DataFrame({"name": ["x"], "on": ["cpu"], "self_s": [1.0], "annotation": [False]}).to_parquet(partial / KERNELS)
    Assignment(partial, SPEC, None, {}, None, None).write()
    return run


def whole(run: Path) -> bool:
    """Whether the record is there, sealed, with each line once, and nothing beside it."""
    keys = [event.key for event in read_log(run / MLLOG)]
    assert [keys.count(key) for key in ("run_stop", "ddlbench_ranks", SEAL)] == [1, 1, 1]
    left = {path.name for path in run.iterdir() if "summary.jsonl" not in path.name}
    return left == {MLLOG, STEPS, KERNELS} and collect([run], run.parent / "tables") == []


def test_a_record_is_made_of_what_ranks_left(tmp_path: Path) -> None:
    run = leave(tmp_path)
    assert finish.make_record(SPEC, run, run / ".partial") is None
    assert whole(run) and (run / "summary.jsonl").exists()


def test_whenever_the_supervisor_is_killed_the_next_call_makes_the_record(tmp_path: Path) -> None:
    given, kills = leave(tmp_path), 0
    run = tmp_path / "again" / SPEC.id
    while True:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(given, run)
        if not killed_at(kills + 1, lambda: finish.make_record(SPEC, run, run / ".partial")):
            break
        kills += 1
        if not (run / ".partial").exists() or not (run / ".partial" / MLLOG).exists():
            shutil.rmtree(run / ".partial", ignore_errors=True)  # the log was moved, last of all: the record is there
        else:
            assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 0, kills
        assert whole(run), kills
    assert kills > 12


@pytest.mark.parametrize("error", [ImportError("pyarrow is broken"), OSError(28, "No space left on device")])
def test_a_record_that_cannot_be_joined_is_joined_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    run = leave(tmp_path)
    for note in run.glob(".partial/ended-*"):
        os.utime(note, (1000, 1000))
    with monkeypatch.context() as now:
        now.setattr(finish, "join_steps", broken)
        for _ in range(2):
            assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 1
            failure = json.loads((run / failed.FOLDER / failed.FAILURE).read_text())
            assert failure["cause"] == ("disk full" if isinstance(error, OSError) else "exception")
            assert failure["message"].endswith("started again it is not trained again")
            assert not (run / MLLOG).exists()
    assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 0
    assert "was trained to its end by an earlier call; its record is made now" in capsys.readouterr().out
    assert whole(run)
    (said,) = [event for event in read_log(run / MLLOG) if event.key == "ddlbench_ranks"]
    assert said.time_s == 1000  # when its ranks ended


def test_a_disk_that_is_full_when_training_is_over(tmp_path: Path) -> None:
    """However much room is left: no half record, the reason is kept, and the next call trains nothing."""
    given, disk = leave(tmp_path / "given"), tmp_path / "disk"
    with (given / ".partial" / MLLOG).open("a") as log:
        log.write("# of another program\n" * 1000)  # the log does not fit where the table does
    disk.mkdir()
    outcomes = []
    with small_disk(disk, "600k"):
        for pages in range(24):
            run = disk / str(pages) / SPEC.id
            shutil.copytree(given, run)
            notes.reserve(run / ".partial")
            filler = fill(disk, pages)
            failure = finish.make_record(SPEC, run, run / ".partial")
            outcomes.append(failure is None)
            if failure is not None:
                assert failure["cause"] == "disk full" and "make room" in failure["message"], pages
                assert job.ended("run", run, run / ".partial", 0, failure) == 1
                assert json.loads((run / failed.FOLDER / failed.FAILURE).read_text())["cause"] == "disk full", pages
                assert not (run / MLLOG).exists() and not (run / STEPS).exists()
            filler.unlink()
            if failure is not None:
                assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 0
            assert whole(run), pages
            shutil.rmtree(run.parent)
    assert outcomes == sorted(outcomes) and {*outcomes} == {False, True}


def test_no_line_of_a_log_is_missing_on_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / MLLOG).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        RankLog(tmp_path, 0).event("run_stop")


@pytest.mark.parametrize("what", ["a rank has not ended", "the log has no end", "it is another run"])
def test_what_is_not_trained_to_its_end_is_trained(tmp_path: Path, what: str) -> None:
    run = leave(tmp_path)
    partial = run / ".partial"
    if what == "a rank has not ended":
        (partial / "ended-1.json").unlink()
    elif what == "the log has no end":
        (partial / MLLOG).write_text((partial / MLLOG).read_text().replace('"run_stop"', '"run_st'))
    else:
        (partial / "assignment.json").write_text("{")
    assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 1
    assert not (run / MLLOG).exists() and not (run / "failed" / ROWS).exists()


def test_everything_is_imported_before_ranks_start(tmp_path: Path) -> None:
    """Of other packages: one that is broken must not cost a finished training."""
    run = leave(tmp_path)
    program = """
import sys
from pathlib import Path
from ddlbench.run import __main__, finish
from ddlbench.core.spec import RunSpec
folder = Path(sys.argv[2])
finish.rehearse(folder / ".partial")
class Late:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {"ddlbench", *sys.stdlib_module_names}: print("late:", name)
sys.meta_path.insert(0, Late())
print(finish.make_record(RunSpec.from_json(sys.argv[1]), folder, folder / ".partial"))
"""
    done = subprocess.run([sys.executable, "-c", program, SPEC.to_json(), str(run)], capture_output=True, text=True)
    assert done.stdout == "None\n", done.stdout + done.stderr
    assert whole(run)
