"""Runs of a user's own program: what of them becomes a record, and how they fail."""

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from ddlbench.analysis import summary
from ddlbench.analysis.refusals import RefusedError
from ddlbench.core import notes
from ddlbench.core.files import write_json
from ddlbench.core.program import Program, hide
from ddlbench.records import ours
from ddlbench.run import finish, printed, program, rank
from ddlbench.run.stopping import Stopping
from ddlbench.settings.program import reveal

from tests.builders.records import seal_again
from tests.conftest import ROOT
from tests.facts import missing, refuses
from tests.kills import killed_at
from tests.unit.programs import (
    MODULES,
    PRINT,
    STEP,
    failure,
    launch,
    made,
    make,
    module,
    script,
    spec,
    stopped,
)

pytestmark = pytest.mark.usefixtures("handlers")


def test_its_lines_become_a_record_that_tables_read(tmp_path: Path) -> None:
    evaluated = 'print("val: 62.5 % top1")'
    run = spec(
        script(tmp_path, after=evaluated),
        2,
        patterns=(r"step (?P<step>\d+) loss (?P<loss>\S+)", r"(?P<top1>[\d.]+ %) top1"),
    )
    record = made(tmp_path, run)
    assert len(record.steps) == 11 * 2  # the first line says when the second step began
    lost = record.steps.groupby("step")["loss"].sum().tolist()
    assert lost == pytest.approx([1 / (step + 1) for step in range(1, 12)], abs=1e-4)
    assert record.images == 11 * 8
    of = summary.make(record)
    assert of["run"]["framework"] == of["run"]["model"] == "mine"
    assert of["values"]["step_median_s"] == pytest.approx(
        record.steps["forward_s"].median(), rel=0.5, abs=1e-3
    )
    assert of["values"]["final_top1"] == 0.625
    assert "recorder" in of["why"]["forward_s"]
    assert of["step_times"]["forward_s"] is None


def test_ending_well_without_steps_is_a_failure_that_names_pattern_and_line(tmp_path: Path) -> None:
    code, place = make(tmp_path, spec(script(tmp_path, 'print("Schritt", step)')))
    told = failure(place)
    assert code == 1
    assert told["cause"] == "no steps read"
    assert "(?P<step>" in told["message"]
    assert "Schritt 11" in told["message"]


def test_a_rank_that_dies_is_named_with_the_last_line(tmp_path: Path) -> None:
    body = f"{PRINT}; rank == 1 and step == 3 and os.kill(os.getpid(), 9)"
    code, place = make(tmp_path, spec(script(tmp_path, body, steps=500), 2))
    assert code != 0 and failure(place)["rank"] == 1
    assert "step " in failure(place)["message"]


def test_each_rank_is_told_its_number_on_its_node(tmp_path: Path) -> None:
    """By which it takes its GPU."""
    writes = 'open(os.path.join(out, f"rank-{rank}"), "w").write(os.environ["LOCAL_RANK"])'
    run = spec(script(tmp_path, before=writes), 2)
    made(tmp_path, run)
    told = [(tmp_path / run.id / f"program/rank-{rank}").read_text() for rank in (0, 1)]
    assert told == ["0", "1"]


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, place = make(tmp_path, spec(tmp_path, command="no-such-program {folder}"))
    assert code != 0
    assert "no-such-program" in failure(place)["message"]


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    code, place = make(tmp_path, spec(script(tmp_path, after="time.sleep(1000)")), quiet_s=3.0)
    assert time.monotonic() - began < 60
    assert code != 0 and failure(place)["cause"] == "stopped answering"


def test_one_that_hangs_has_failed_though_it_could_go_on(tmp_path: Path) -> None:
    """It would hang again, and be started again for ever."""
    hangs = script(tmp_path, SAVES, after="time.sleep(1000)")
    code, place = make(tmp_path, spec(hangs, resume="{folder}/began"), quiet_s=3.0)
    assert code not in (0, notes.STOPPED)
    assert failure(place)["cause"] == "stopped answering"


RAN = "open(os.path.join(out, '..', '..', '..', 'ran'), 'a').write('x')"
GOES_ON_FROM = {"spec": None, "began_s": [1.0], "resumes": True}
DAEMON = """
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        open(os.path.join(out, "daemon"), "w").write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(os.path.join(out, "daemon")) or not open(os.path.join(out, "daemon")).read():
    time.sleep(0.01)
"""


def test_no_daemon_of_it_outlives_it_and_other_processes_live_on(tmp_path: Path) -> None:
    run, other = spec(script(tmp_path, before=DAEMON)), subprocess.Popen(["sleep", "100"])
    made(tmp_path, run)
    assert other.poll() is None
    other.kill()
    other.wait()
    daemon = int((tmp_path / run.id / "program" / "daemon").read_text())
    assert not psutil.pid_exists(daemon) or psutil.Process(daemon).status() == psutil.STATUS_ZOMBIE


def test_one_that_removes_its_folder_leaves_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its lines do not fit on the disk."""
    monkeypatch.setattr(
        program, "write_text", Mock(side_effect=OSError(28, "No space left on device"))
    )
    assert (
        len(made(tmp_path, spec(script(tmp_path, after="import shutil; shutil.rmtree(out)"))).steps)
        == 11
    )


@pytest.mark.parametrize(
    ("reads", "body", "says"),
    [
        ("mllog", """print(':::MLL {"value": 1}')""", "KeyError"),
        (
            "recorder",
            "rows.write(struct.pack('<q6d', step, *[float('nan')] * 6)), rows.flush()",
            "not finite numbers",
        ),
    ],
)
def test_what_cannot_be_read_is_a_failure_and_nothing_runs_again(
    tmp_path: Path, reads: str, body: str, says: str
) -> None:
    before = (
        f"import struct; {RAN}; open(out + '/../recorder-0.jsonl', 'w').write('{{\"world\": 1}}'); "
    )
    before += "rows = open(out + '/../recorder-0.steps', 'ab')"
    for _ in (1, 2):
        code, place = make(tmp_path, spec(script(tmp_path, body, before=before), reads=reads))
        assert (code, failure(place)["cause"]) == (1, "no steps read")
        assert says in failure(place)["message"]
        assert (tmp_path / "ran").read_text() == "x"


def test_a_mended_pattern_reads_the_output_again_and_trains_nothing(tmp_path: Path) -> None:
    """Of a run that could not be read, and of one that was read wrongly."""
    place = script(tmp_path, "print('at', step, 'of', 2 * step, 'loss', 1)", before=RAN)
    run = spec(place, patterns=(r"Step (?P<step>\d+)",))
    code, folder = make(tmp_path, run)
    assert (code, failure(folder)["cause"]) == (1, "no steps read")
    assert program.read_again(run, folder) is not None and not (folder / "run.mllog").exists()
    count, loss = (
        spec(place, patterns=(rf"at (?P<step>\d+) of (\d+){rest}",))
        for rest in ("", r" loss (?P<loss>\S+)")
    )
    assert missing(program.read_again(count, folder), "read: ", "made") == []
    assert [*summary.make(ours.record(folder))["why"]].count("final_loss") == 1
    assert program.read_again(count, folder) is None
    assert program.read_again(spec(place, patterns=("nothing (?P<step>)",)), folder) is not None
    assert missing(program.read_again(loss, folder), "read again: ", "anew") == []
    record = ours.record(folder)
    assert (len(record.steps), record.steps["loss"].tolist()) == (11, [1.0] * 11)
    assert (tmp_path / "ran").read_text() == "x"
    assert {run.to_json(), count.to_json(), loss.to_json()} == {run.to_json()}


def test_a_run_that_is_read_again_later_took_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one whose record is made a day later, nor one whose record is made anew."""
    place = script(tmp_path, "print('at', step, 'loss', 1)")
    wrong, count, loss = (
        spec(place, patterns=(pattern,))
        for pattern in (
            r"Step (?P<step>\d+)",
            r"at (?P<step>\d+)",
            r"at (?P<step>\d+) loss (?P<loss>\S+)",
        )
    )
    _, folder = make(tmp_path, wrong)
    now = time.time()
    for read in (count, loss):
        now += 86400
        monkeypatch.setattr(time, "time", partial(float, now))
        assert missing(program.read_again(read, folder), "its record is made") == []
        assert summary.make(ours.record(folder))["values"]["run_s"] < 3600


def test_each_validation_of_a_program_is_in_a_table(tmp_path: Path) -> None:
    """The best one is the run's best, and the first that reached a target its time to it."""
    tops = {3: 50, 6: 75, 9: 60}
    body = f"{PRINT}; step in {tops} and print('val:', {tops}[step], '% top1')"
    patterns = (STEP, r"val: (?P<top1>[\d.]+ %) top1")
    record = made(tmp_path, spec(script(tmp_path, body), patterns=patterns))
    of = summary.make(record)
    assert (of["values"]["best_top1"], of["values"]["final_top1"]) == (0.75, 0.6)
    assert [row["top1"] for row in of["validations"]] == [0.5, 0.75, 0.6]
    times = [row["validated_s"] for row in of["validations"]]
    assert (
        0
        < times[0]
        < times[1]
        < times[2]
        == pytest.approx(of["epochs"]["validated_s"][0], abs=2e-3)
    )


@pytest.mark.parametrize(
    "odd", ["x", [3], [{"top1": 0.5}], [{"time_s": 1.0, "top1": float("nan")}]]
)
def test_validations_that_make_no_sense_are_refused(tmp_path: Path, odd: object) -> None:
    log = made(tmp_path, spec(script(tmp_path))).folder / "run.mllog"
    line = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "metadata": {}}
    line |= {"key": "ddlbench_evaluations", "value": odd}
    *lines, sealed = log.read_text().splitlines()
    log.write_text("\n".join([*lines, f":::MLLOG {json.dumps(line)}", sealed, ""]))
    seal_again(log.parent)
    with refuses(RefusedError, "ddlbench_evaluations"):
        ours.record(log.parent)


def test_times_of_a_program_that_was_started_again_have_no_night_in_them(tmp_path: Path) -> None:
    """What was read has no interruption in it; the clock of the supervisor has."""
    body = f"{PRINT}; step == 9 and print('val: 50 % top1')"
    patterns = (STEP, r"val: (?P<top1>[\d.]+ %) top1")
    record = made(tmp_path, spec(script(tmp_path, body), patterns=patterns))
    reading = record.value("ddlbench_reading")
    night = 8 * 3600.0
    reading["began_s"].append(reading["began_s"][0] + night)
    ranks = record.last["ddlbench_ranks"]
    record.last["ddlbench_ranks"] = replace(ranks, time_s=ranks.time_s + night)
    of = summary.make(record)
    assert of["values"]["run_s"] < 3600 and of["values"]["resumes"] == 1
    assert (
        of["epochs"]["validated_s"] == [row["validated_s"] for row in of["validations"]] == [None]
    )


def test_lines_that_were_not_kept_whole_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while they are copied; those of an earlier record lie there."""

    def fill(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:200])
        raise OSError(28, "No space left on device")

    run = spec(script(tmp_path))
    (tmp_path / run.id).mkdir()
    lines = tmp_path / run.id / program.LINES
    lines.write_text("[1.0, 0, 'step 0 loss 1']\n")
    monkeypatch.setattr(shutil, "copyfile", fill)
    assert len(made(tmp_path, run).steps) == 11
    assert [*lines.parent.glob(f"*{program.LINES}*")] == []


def test_it_runs_where_python_or_the_kernel_know_no_pidfd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = spec(script(tmp_path))
    monkeypatch.setattr(os, "pidfd_open", Mock(side_effect=OSError(38, "Function not implemented")))
    assert len(made(tmp_path, run).steps) == 11
    monkeypatch.delattr(os, "pidfd_open")
    assert len(made(tmp_path, replace(run, repeat=2)).steps) == 11


def test_a_loss_that_is_no_number_is_a_failed_run(tmp_path: Path) -> None:
    body = "print('step', step, 'loss', 'nan' if step > 5 else 1.5)"
    code, folder = make(
        tmp_path,
        spec(script(tmp_path, body), patterns=(r"step (?P<step>\d+) loss (?P<loss>[\d.]+)",)),
    )
    assert (code, failure(folder)["cause"], failure(folder)["step"]) == (1, "loss is not finite", 6)


@pytest.mark.more
def test_whenever_it_is_killed_the_next_call_makes_the_record_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has ended; its folder is beside the record, and is read again."""
    body = f"""{PRINT}; print(':::MLL ' + '{{"key":"loss","value":1,"time_ms":%d,"metadata":{{"step_num":%d}}}}'"""
    body += " % (1e3 * time.time(), step), file=open(out + '/log', 'a'))"
    run = spec(script(tmp_path, body, before=RAN), reads="mllog")
    with monkeypatch.context() as full, pytest.raises(OSError, match="No space"):
        full.setattr(
            finish, "make_record", Mock(side_effect=OSError(28, "No space left on device"))
        )
        make(tmp_path, run)
    given, place, kills = tmp_path / "given", tmp_path / run.id, 0
    place.rename(given)
    while True:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(given, place)
        if not killed_at(kills + 1, lambda: make(tmp_path, run)):
            break
        kills += 1
        if not (place / "run.mllog").exists():  # else it is kept
            made(tmp_path, run)
        assert len(ours.record(place).steps) == 11 and (place / "program/log").exists(), kills
    assert kills > 12
    assert (tmp_path / "ran").read_text() == "x"


def test_whenever_it_is_killed_before_it_goes_on_it_still_goes_on(tmp_path: Path) -> None:
    run, partial, kills = spec(script(tmp_path), resume="--resume"), tmp_path / ".partial", 0
    while True:
        (partial / "program").mkdir(parents=True, exist_ok=True)
        (partial / "program/state").touch()
        (partial / "rank-0.json").touch()
        write_json(
            partial / "program.json",
            {"spec": json.loads(run.to_json()), "began_s": [1.0], "resumes": False},
        )
        if not killed_at(kills + 1, lambda: program._prepare(tmp_path, partial, run)):
            break
        kills += 1
        assert program._prepare(tmp_path, partial, run) | {"spec": None} == GOES_ON_FROM, kills
    assert kills > 0


SAVES = (
    f'open(out + "/new", "w").write(str(step)); os.replace(out + "/new", out + "/began"); {PRINT}'
)
GOES_ON = "start = int(open(sys.argv[2]).read()) if len(sys.argv) > 2 else 0; "


def test_lines_are_there_when_the_supervisor_was_killed(tmp_path: Path) -> None:
    body = f"start and step < start or ({SAVES.replace('; ', ', ')})"
    run = spec(script(tmp_path, body, steps=200, before=GOES_ON), resume="{folder}/began")
    place = tmp_path / run.id
    place.mkdir()
    words = [
        "-m",
        "ddlbench.run",
        "--folder",
        str(place),
        "--spec",
        run.to_json(),
        "--",
        *launch(run),
    ]
    for folder in ("programs", "studies"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "config/programs/mine.yaml").write_text(
        f"command: x\nfiles: [x]\nlines: '{STEP}'\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    supervisor = subprocess.Popen([sys.executable, *words], cwd=tmp_path, env=environment)
    while not (place / ".partial/program/began").exists():
        assert supervisor.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    supervisor.kill()
    supervisor.wait()
    with (place / ".partial/printed.jsonl").open("a") as lines:
        lines.write('["cut off')
    record = made(tmp_path, run)
    assert (
        record.steps["step"].tolist() == list(range(199))
        and record.steps["end_s"].is_monotonic_increasing
    )


def test_one_that_ends_well_when_slurm_asks_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM's warning reaches the ranks and not their supervisor: the record would be that of a
    whole training.
    """
    for name, value in {"PROCID": "0", "NTASKS": "1", "LOCALID": "0", "NODEID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    obeys = (
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0)); out_ = os.path.join(out, 'began')"
    )
    body = (
        f"open(out_, 'w').write(str(step)), {PRINT}, step == 5 and [os.kill(pid, 10) for pid in"
        " children()]"
    )
    children = "import pathlib\ndef children():\n    own = os.getpid()\n    "
    children += (
        "return [int(i) for i in"
        " pathlib.Path(f'/proc/{own}/task/{own}/children').read_text().split()] + [own]"
    )
    run = spec(
        script(tmp_path, body, steps=300, before=f"{children}\n{obeys}"), resume="{folder}/began"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/srun").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "bin/srun").chmod(0o755)
    place = tmp_path / run.id
    place.mkdir()
    argv = ["env", f"PATH={tmp_path}/bin:{os.environ['PATH']}", "srun", *launch(run)[:3]]
    code = program.execute(run, place, None, argv)
    assert code == notes.STOPPED
    assert not (place / "run.mllog").exists()


def test_variables_of_a_shell_that_srun_started_do_not_reach_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {
        "JOB_ID": "7",
        "PROCID": "0",
        "NTASKS": "1",
        "LOCALID": "0",
        "NODEID": "0",
        "NNODES": "1",
        "STEP_ID": "0",
    }
    for name, value in left.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    lacks = (
        "assert not {'SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_STEP_ID'} & {*os.environ}, os.environ"
    )
    keeps = "assert os.environ['SLURM_JOB_ID'] == '7' and os.environ['WORLD_SIZE'] == '2'"
    assert len(made(tmp_path, spec(script(tmp_path, before=f"{lacks}\n{keeps}"), 2)).steps) == 22


def test_one_that_ignores_signals_and_cannot_go_on_is_killed(tmp_path: Path) -> None:
    ignores = "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGUSR1, signal.SIGTERM)]"
    run = spec(script(tmp_path, SAVES, steps=100_000, before=ignores))
    code, place = stopped(tmp_path, run, grace_s=1.0)
    assert code != 0
    assert failure(place)["cause"] == "ended by a signal"


@pytest.mark.parametrize(
    "size", [1 << 20, pytest.param(1 << 25, marks=pytest.mark.slow)]
)  # 30 MB, 1 GB
def test_much_output_is_read_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], size: int
) -> None:
    monkeypatch.setattr(printed, "MOST_LOGGED", 1 << 20)
    body = f"print('x' * {size}); {PRINT}"
    record = made(tmp_path, spec(script(tmp_path, body, steps=30)))
    assert len(record.steps) == 29
    assert len(capfd.readouterr().out) < 2 << 20


BAR = r"""
import sys, time
for _ in range(3):
    sys.stdout.write(sys.argv[1] + str(time.time()))
    sys.stdout.flush()
    time.sleep(1.0)
"""


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("before", ["\r", "\b\b\r"])
def test_an_update_of_a_bar_has_the_time_when_it_came(before: str, labelled: bool) -> None:
    """Not that of the next one, which ends its line: a validation may lie between."""
    argv = [sys.executable, "-S", "-c", BAR, before]
    with (
        printed.Printed([], float("inf"), lambda: None, labelled, logs=False) as heard,
        subprocess.Popen(argv, stdout=subprocess.PIPE if labelled else None) as bar,
    ):
        if labelled:
            rank._label(5, bar)
    assert [line.rank for line in heard.lines] == [5 * labelled] * 3
    assert all(line.time_s - float(line.text) < 0.7 for line in heard.lines)


def test_it_runs_in_a_python_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second environment, which has none of our packages."""
    venv.create(tmp_path / "its env", symlinks=True)
    monkeypatch.chdir(tmp_path)
    lacks = (
        "import importlib.util as u; assert not any(map(u.find_spec, ('numpy', 'ddlbench',"
        " 'psutil')))"
    )
    run = spec(
        script(tmp_path, before=lacks),
        command="python 'my train.py' {folder}",
        environment="its env",
    )
    record = made(tmp_path, run)
    facts = record.value("ddlbench_facts")
    assert facts["python"] is None
    assert "torch" not in facts["versions"]


@pytest.mark.skipif(
    not MODULES.exists(), reason=f"no {MODULES}: apt-get install environment-modules, or lmod"
)
def test_it_runs_with_modules_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = module(tmp_path / "modules", "Own/1.0", ITS_OWN="here")
    monkeypatch.setenv("MODULEPATH", str(own))
    run = spec(
        script(tmp_path, before="assert os.environ['ITS_OWN'] == 'here'"), environment=("Own/1.0",)
    )
    assert len(made(tmp_path, run).steps) == 11
    code, place = make(
        tmp_path, spec(script(tmp_path), environment=("Own/1.0", "Other/2.0"), name="lacks")
    )
    assert code != 0
    assert "Other/2.0" in (said := failure(place)["message"]), said


NAMES = ("run.mllog", "steps.rows", "steps.parquet")
WRITES = "; ".join(f"open(out + '/../{name}', 'w').write('mine')" for name in NAMES)


@pytest.mark.parametrize(
    ("ranks", "before"), [("each", WRITES), ("own", "assert 'RANK' not in os.environ")]
)
def test_one_that_writes_into_our_folder_or_starts_its_own_ranks(
    tmp_path: Path, ranks: str, before: str
) -> None:
    assert len(made(tmp_path, spec(script(tmp_path, before=before), 2, ranks=ranks)).steps) == 22


def test_a_secret_of_its_command_is_in_no_file_and_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(
        tmp_path,
        before="assert sys.argv[3] == 'S3CRET'; print('step 0 loss 1 token', sys.argv[3])",
        first=1,
    )
    command = f"{sys.executable} '{path}' {{folder}} --token S3CRET"
    file = tmp_path / "config/programs/mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"command": command}))
    (tmp_path / "config/studies").mkdir()  # by which ranks know the folder
    monkeypatch.chdir(tmp_path)
    of_file = partial(reveal, folder=file.parent)
    monkeypatch.setattr(program.program_file, "reveal", of_file)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (tmp_path / "runs").mkdir()
    record = made(tmp_path / "runs", spec(path, command=hide(command)))
    printed = capfd.readouterr()
    assert "token ..." in printed.out
    files = [one for one in (tmp_path / "runs").rglob("*") if one.is_file()]
    assert record.folder / "run.mllog" in files
    assert [one for one in files if b"S3CRET" in one.read_bytes()] == []
    assert "S3CRET" not in printed.out + printed.err


BESIDE = """
open("data/corpus.txt").read() == "words" or sys.exit("no corpus")
exec(open("configurator.py").read())
os.path.exists("out/last.pt") and sys.exit("another run's checkpoint")
os.makedirs("out", exist_ok=True)
open("out/last.pt", "w").write("x"); open("settings.json", "w").write("{}")
"""


def test_each_run_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads what lies beside it, and what it writes is neither there nor another run's."""
    monkeypatch.chdir(tmp_path)
    beside = tmp_path / "theirs"
    for name, text in (
        ("data/corpus.txt", "words"),
        ("configurator.py", "a = 1"),
        ("out/old.pt", ""),
    ):
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        (beside / name).write_text(text)
    for batch in ("1", "2"):
        run = spec(script(tmp_path, before=BESIDE), folder="theirs", settings=(("lr", batch),))
        made(tmp_path, run)
        work = tmp_path / run.id / "work"
        assert sorted(str(path.relative_to(work)) for path in work.rglob("*")) == [
            "out",
            "out/last.pt",
            "settings.json",
        ]
    assert sorted(path.name for path in beside.rglob("*") if path.is_file()) == [
        "configurator.py",
        "corpus.txt",
        "old.pt",
    ]


def test_a_table_is_found_where_the_program_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that of an earlier run by hand, which lies in the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/old.csv").write_text("step,time,loss\n1,1,1\n2,2,1\n")
    body = "open('log.csv', 'a').write(f'{step},{time.time()},{1 / (step + 1)}\\n')"
    place = script(tmp_path, body, before="open('log.csv', 'w').write('step,time,loss\\n')")
    run = spec(place, folder="theirs", reads="table")
    assert len(made(tmp_path, run).steps) == 11
    again = spec(place, folder="theirs", reads="table", columns=(("loss", "step"),))
    assert missing(program.read_again(again, tmp_path / run.id), "read again: ", "anew") == []
    assert len(ours.record(tmp_path / run.id).steps) == 11


@pytest.mark.parametrize(("limit", "of", "steps"), [("20 steps", 1000, 20), ("200 steps", 30, 29)])
def test_a_run_that_is_ended_after_its_steps_is_whole(
    tmp_path: Path, limit: str, of: int, steps: int
) -> None:
    """One that ends before has the steps that it made."""
    run = spec(script(tmp_path, f"time.sleep(0.1), {PRINT}", steps=of), stop_after=limit)
    began = time.monotonic()
    record = made(tmp_path, run)
    assert len(record.steps) == steps
    assert record.value("ddlbench_facts")["stopped_after"] == limit
    assert time.monotonic() - began < 60


def test_a_run_is_ended_after_minutes_and_read_as_far_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "most_minutes", 0.1)
    record = made(tmp_path, spec(script(tmp_path, steps=100_000), stop_after="1 minutes"))
    assert 5 < len(record.steps) < 5000


@pytest.mark.parametrize(("seconds", "ends"), [(119.0, False), (120.0, True)])
def test_minutes_are_minutes(tmp_path: Path, seconds: float, ends: bool) -> None:
    limited = spec(tmp_path, stop_after="2 minutes").program
    assert limited
    assert Stopping(limited, lambda: 0)._reached(seconds) is ends


@pytest.mark.parametrize(("rate", "resumes"), [(1, True), (2, False)])
def test_only_a_run_of_the_same_settings_goes_on(tmp_path: Path, rate: int, resumes: bool) -> None:
    left, run = (
        spec(tmp_path / "train.py", resume="--resume", settings=(("lr", value),))
        for value in (1, rate)
    )
    partial = tmp_path / ".partial"
    (partial / "program").mkdir(parents=True)
    (partial / "program/state").touch()
    write_json(
        partial / "program.json",
        {"spec": json.loads(left.to_json()), "began_s": [1.0], "resumes": False},
    )
    task = program._prepare(tmp_path, partial, run)
    assert (task["resumes"], (partial / "program/state").exists()) == (resumes, resumes)


def test_one_that_fails_before_its_limit_is_a_failure(tmp_path: Path) -> None:
    code, place = make(
        tmp_path, spec(script(tmp_path, after="sys.exit(3)"), stop_after="500 steps")
    )
    assert code == 3 and failure(place)["cause"] == "exited"


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.35, False)])
def test_a_printed_rate_that_the_clock_denies_is_in_the_tables(
    tmp_path: Path, factor: float, agrees: bool
) -> None:
    before = "times = [time.time()]"
    body = "times.append(time.time()); print(f'step {step} loss 1.5 {RATE:.4g} img/s', flush=True)"
    rate = f"{factor} * 8 / (times[-1] - times[-2] if step else 0.05)"
    place = script(
        tmp_path, f"time.sleep(0.05); {body.replace('RATE', rate)}", steps=30, before=before
    )
    run = spec(
        place, patterns=(r"step (?P<step>\d+) loss (?P<loss>\S+) (?P<samples_per_s>\S+) img/s",)
    )
    of = summary.make(made(tmp_path, run))
    assert of["values"]["printed_rate_agrees"] is agrees
    ratio = of["values"]["printed_samples_per_s"] / of["values"]["clock_samples_per_s"]
    assert ratio == pytest.approx(factor, rel=0.15)
    assert of["run"]["confirmed"] is agrees and of["run"]["ranks_together"] == "yes"


@pytest.mark.more
def test_a_program_imports_torchvision(tmp_path: Path) -> None:
    """Whose compiled part does not fit this torch."""
    before = "from torchvision import transforms; import torchvision.models"
    assert len(made(tmp_path, spec(script(tmp_path, before=before))).steps) == 11


def test_what_python_runs_at_its_start_is_run_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import os\nos.environ['SITE'] = 'was run'\n")
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    assert (
        len(
            made(
                tmp_path, spec(script(tmp_path, before="assert os.environ['SITE'] == 'was run'"))
            ).steps
        )
        == 11
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_starts_its_ranks_itself_and_ends_with_an_error_was_not_killed(
    tmp_path: Path, workers: int
) -> None:
    path = script(tmp_path, before="raise SystemExit('no such package')")
    code, place = make(tmp_path, spec(path, workers, ranks="own"))
    told = failure(place)
    assert (code, told["cause"]) == (1, "exited")
    assert "exit code 1" in told["message"] and "no such package" in told["message"]


def test_one_that_starts_its_ranks_itself_and_is_killed_was_killed(tmp_path: Path) -> None:
    path = script(tmp_path, before="os.kill(os.getpid(), signal.SIGKILL)")
    _, place = make(tmp_path, spec(path, ranks="own"))
    assert failure(place)["cause"] == "killed"
