"""After training: a record is joined, sealed and put in place, whenever its supervisor is killed;
runs that their study interrupts die once.
"""

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.core import notes
from ddlbench.core.mllog import SEAL, read_log
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import KERNELS, MLLOG, ROWS, STEPS
from ddlbench.core.seal import sealed
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import StepRow, packed
from ddlbench.plan.runs import make_plan
from ddlbench.run import finish, job, rehearsal
from ddlbench.run import training as supervisor
from ddlbench.settings.config import ConfigError
from ddlbench.train import interruption
from ddlbench.train.assignment import Assignment

from tests.builders.machines import LAPTOP
from tests.builders.plans import run_spec, write_study
from tests.builders.records import RANKS, SPEC, reasons, seal_again, tables, write_record
from tests.disks import Watched, fill, small_disk
from tests.facts import missing, refuses
from tests.kills import killed_at
from tests.unit.spoiled import bad_input

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
        (partial / f"rank-{rank}.json").write_text(
            json.dumps(left | {"pid": 2**30, "started": 0.0})
        )
        (partial / f"ended-{rank}.json").touch()
    pd.DataFrame({"name": ["x"], "on": ["cpu"], "self_s": [1.0], "annotation": [False]}).to_parquet(
        partial / KERNELS
    )
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


def test_a_record_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, disk = leave(tmp_path), Watched(monkeypatch)
    assert finish.make_record(SPEC, run, run / ".partial") is None
    assert {name: disk.named[name] for name in (MLLOG, STEPS, KERNELS)} == dict.fromkeys(
        (MLLOG, STEPS, KERNELS), True
    )


def test_what_a_checkpoint_counts_of_a_log_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, log = Watched(monkeypatch), RankLog(tmp_path, 0)
    log.event("first")
    log.write_steps(packed([StepRow(0, 0, 0, 1, *[0.0] * 8)]))
    assert not disk.has(tmp_path / ROWS)
    assert log.bytes_written().keys() == {MLLOG, ROWS}
    assert disk.has(tmp_path / MLLOG) and disk.has(tmp_path / ROWS)


@pytest.mark.more
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
            shutil.rmtree(
                run / ".partial", ignore_errors=True
            )  # the log was moved, last of all: the record is there
        else:
            assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 0, kills
        assert whole(run), kills
    assert kills > 12


@pytest.mark.parametrize(
    "error", [ImportError("pyarrow is broken"), OSError(28, "No space left on device")]
)
def test_a_record_that_cannot_be_joined_is_joined_by_the_next_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
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
            failure = json.loads((run / job.FOLDER / job.FAILURE).read_text())
            assert failure["cause"] == ("disk full" if isinstance(error, OSError) else "exception")
            assert missing(failure["message"], "not trained again") == []
            assert not (run / MLLOG).exists()
    assert supervisor.execute(SPEC, run, None, TRAINS_NOT) == 0
    assert missing(capsys.readouterr().out, "earlier call", "record") == []
    assert whole(run)
    (said,) = [event for event in read_log(run / MLLOG) if event.key == "ddlbench_ranks"]
    assert said.time_s == 1000  # when its ranks ended


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EIO])
def test_folders_that_cannot_be_forced_to_the_disk_end_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """As on some parallel and FUSE file systems: the steps were removed behind the seal, and
    trained again.
    """

    def force(file: int, fsync: Callable[[int], None] = os.fsync) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(error, os.strerror(error))
        fsync(file)

    run = leave(tmp_path / SPEC.id)
    monkeypatch.setattr(os, "fsync", force)
    assert finish.make_record(SPEC, run, run / ".partial") is None
    assert whole(run)


def test_what_is_sealed_stays_whatever_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = leave(tmp_path / SPEC.id)

    def fail(path: Path) -> None:
        if path.is_dir() and sealed(path / MLLOG) is not None:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(finish, "sync", fail)
    failure = finish.make_record(SPEC, run, run / ".partial")
    assert failure is not None and (run / ".partial" / STEPS).exists()
    monkeypatch.undo()
    assert finish.make_record(SPEC, run, run / ".partial") is None
    assert whole(run)


@pytest.mark.more
def test_a_disk_that_is_full_when_training_is_over(tmp_path: Path) -> None:
    """However much room is left: no half record, the reason is kept, and the next call trains
    nothing.
    """
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
                assert failure["cause"] == "disk full" and "disk space" in failure["message"], pages
                assert job.report_failure("run", run, run / ".partial", 0, failure) == 1
                assert (
                    json.loads((run / job.FOLDER / job.FAILURE).read_text())["cause"] == "disk full"
                ), pages
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


@pytest.mark.parametrize(
    "what", ["a rank has not ended", "the log has no end", "it is another run"]
)
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


def test_everything_is_imported_while_ranks_start(tmp_path: Path) -> None:
    """Of other packages: one that is broken must not cost a finished training."""
    run = leave(tmp_path)
    program = """
import sys
import time
from pathlib import Path
from ddlbench.run import finish, rehearsal, training
from ddlbench.core.spec import RunSpec
folder = Path(sys.argv[2])
rehearsal.rehearse(folder / ".partial")
class Late:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {"ddlbench", *sys.stdlib_module_names}: print("late:", name)
sys.meta_path.insert(0, Late())
print(finish.make_record(RunSpec.from_json(sys.argv[1]), folder, folder / ".partial"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, SPEC.to_json(), str(run)], capture_output=True, text=True
    )
    assert done.stdout == "None\n", done.stdout + done.stderr
    assert whole(run)


def test_ranks_wait_for_no_package_that_only_tables_need() -> None:
    """All nodes of a job wait until its supervisor has started them."""
    program = "import sys; import ddlbench.run.__main__, ddlbench.run.training; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "pandas", "pyarrow", "scipy"} & {*done.stdout.split()}


def test_a_package_that_is_broken_ends_the_ranks_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(partial: Path) -> None:
        raise ImportError("libarrow.so.2600: cannot open shared object file")

    monkeypatch.setattr(rehearsal, "rehearse", broken)
    folder, began = tmp_path / SPEC.id, time.monotonic()
    with pytest.raises(ImportError, match="libarrow"):
        supervisor.execute(
            SPEC, folder, None, [sys.executable, "-c", "import time; time.sleep(60)"]
        )
    assert time.monotonic() - began < 30
    assert not (folder / MLLOG).exists()


KILLED = run_spec(machine="local", interrupt_steps=60)
NOTE = {"step": 60, "checkpoint_s": 0.25, "time_s": 12.0}


@pytest.mark.parametrize(
    ("dies", "steps", "saves"), [(60, 79, 30), (61, 79, 30), (20, 11, 11), (22, 11, 11), (2, 9, 1)]
)
def test_a_checkpoint_is_written_after_half_of_the_steps(dies: int, steps: int, saves: int) -> None:
    """20 of epochs of 11: after 10 steps nothing is written, so it is after the epoch."""
    assert interruption.checkpoint_step(dies, steps) == saves < dies
    assert interruption.checkpoint_step(None, steps) is None


def test_ids_and_texts_of_other_runs_stay() -> None:
    alone = replace(KILLED, interrupt_steps=None)
    assert KILLED.id == f"{alone.id}-interrupt60"
    assert "interrupt" not in alone.to_json()
    assert RunSpec.from_json(KILLED.to_json()) == KILLED
    assert KILLED.columns()["interrupt_steps"] == 60


@pytest.mark.parametrize(("interrupt", "facts"), [("{steps: 62}", ()), *bad_input("interrupt")])
def test_what_a_study_may_ask(tmp_path: Path, interrupt: str, facts: tuple[str, ...]) -> None:
    block = (
        "{dataset: mnist5k, recipe: demo, models: [lenet], frameworks: [ddp], loaders: [native],"
        " workers: [1], "
    )
    block += f"schedules: [step], epochs: 1, global_batch: [64], interrupt: {interrupt}}}"
    with refuses(ConfigError, *facts) if facts else nullcontext():
        plan = make_plan(
            write_study(tmp_path, f"title: mine\nruns:\n  all: {block}\nfigures: {{}}\n"), LAPTOP
        )
        assert [run.spec.interrupt_steps for run in plan.runs.values()] == [62]


# In place of a launcher: a rank that trains to the end of its fourth step, if it is told to die
# there.
RANK = """
import sys
import time
from pathlib import Path
from ddlbench.train import interruption
from ddlbench.train.assignment import Assignment

folder = Path(sys.argv[1])
dies = Assignment.read(folder).interrupt_steps
print("told", dies, flush=True)
interruption.LEAVE_S = 0.0
if dies:
    interruption.die(folder, 0, dies, None)
(folder / "run.mllog").write_text("")
sys.exit(3)
"""


def test_a_run_dies_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The second try of the same run goes on; one of other settings is told to die again."""
    folder = tmp_path / KILLED.id
    command = [sys.executable, "-c", RANK]
    assert supervisor.execute(KILLED, folder, None, command) == finish.AGAIN
    assert not (folder / "failed").exists()
    note = finish.interruption_of(KILLED, folder)
    assert note is not None
    assert (note["step"], note["checkpoint_s"]) == (60, None)
    assert supervisor.execute(KILLED, folder, None, command) == 3
    assert [line for line in capfd.readouterr().out.splitlines() if line.startswith("told")] == [
        "told 60",
        "told None",
    ]
    assert finish.interruption_of(replace(KILLED, epochs=3), folder) is None
    assert (
        finish.interruption_of(replace(KILLED, recipe=replace(KILLED.recipe, power=9.0)), folder)
        == note
    )
    for text in ("{", '{"note": {}, "spec": 3}'):  # cut off: it dies again, and nothing is lost
        (folder / finish.INTERRUPTION_NOTE).write_text(text)
        assert finish.interruption_of(KILLED, folder) is None


def test_a_rank_dies_of_sigkill_and_leaves_its_note(tmp_path: Path) -> None:
    for rank, leaves in ((1, False), (0, True)):
        call = f"interruption.die(Path({str(tmp_path)!r}), {rank}, 60, 0.25)"
        code = (
            "from pathlib import Path; from ddlbench.train import interruption;"
            f" interruption.LEAVE_S = 0; {call}"
        )
        assert (
            subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
        )
        assert (tmp_path / interruption.NOTE).exists() == leaves
    assert json.loads((tmp_path / interruption.NOTE).read_text()).keys() == NOTE.keys()


@pytest.mark.parametrize("again", [False, True])
def test_records_say_what_an_interruption_took(tmp_path: Path, again: bool) -> None:
    """That which its study asked for, also if the run went on once more, from a later
    checkpoint.
    """
    spec = replace(SPEC, interrupt_steps=60)
    went_on = {"step": 32, "elapsed_s": 1.0}
    folder = write_record(tmp_path / "a", spec, interrupted=NOTE, resumed=went_on)
    log = folder / "run.mllog"
    lines = [json.loads(line.split(":::MLLOG ")[1]) for line in log.read_text().splitlines()]
    at = next(line for line in lines if line["key"] == "ddlbench_resumed") | {"time_ms": 15_500}
    later = at | {"time_ms": 15_900, "value": {"step": 48, "elapsed_s": 1.2}}
    several = [[at, later] if again and line["key"] == at["key"] else [line] for line in lines]
    lines = [
        at if line["key"] == at["key"] and not again else line for of in several for line in of
    ]
    log.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    seal_again(folder)
    run = tables(tmp_path / "tables", folder)[0].iloc[0]
    assert run[["checkpoint_s", "lost_steps", "restart_s", "interrupt_steps"]].tolist() == [
        0.25,
        28,
        3.5,
        60,
    ]


@pytest.mark.parametrize(("dies", "reason"), [(None, "not interrupted"), (60, "ended before")])
def test_what_was_not_interrupted_says_so(tmp_path: Path, dies: int | None, reason: str) -> None:
    tables(tmp_path / "tables", write_record(tmp_path / "a", replace(SPEC, interrupt_steps=dies)))
    said = reasons(tmp_path / "tables")
    assert [
        missing(said[name], reason) for name in ("checkpoint_s", "lost_steps", "restart_s")
    ] == [[], [], []]


def test_without_a_checkpoint_a_run_begins_anew(tmp_path: Path) -> None:
    note = NOTE | {"checkpoint_s": None, "time_s": 0.25}  # the run starts at 1 s
    record = write_record(tmp_path / "a", replace(SPEC, interrupt_steps=60), interrupted=note)
    run = tables(tmp_path / "tables", record)[0].iloc[0]
    assert run[["lost_steps", "restart_s"]].tolist() == [60, 0.75]
    assert (
        missing(reasons(tmp_path / "tables")["checkpoint_s"], "killed before", "checkpoint") == []
    )
