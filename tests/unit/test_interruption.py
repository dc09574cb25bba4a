"""Runs that their study interrupts: how they are planned, that they die once, and what their records say of it."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.core.spec import RunSpec
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.run import __main__ as supervisor
from ddlbench.run import interrupted
from ddlbench.settings.config import ConfigError
from ddlbench.train import interruption

from tests.specs import LAPTOP, run_spec
from tests.unit.records import SPEC, reasons, seal_again, tables, write_record
from tests.unit.spoiled import write_study

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


@pytest.mark.parametrize(
    ("interrupt", "says"),
    [
        ("{steps: 62}", None),
        ("{steps: 63}", "runs.all.interrupt.steps: 63 is not allowed; allowed: less than its 63 steps"),
        ("{steps: 1}", "interrupt.steps: 1 is not allowed"),
        ("{steps: 2.5}", "interrupt.steps: 2.5 is not allowed"),
        ("{}", "interrupt.steps: is missing"),
        ("60", "interrupt: 60 is not allowed"),
        ("{steps: 9, often: 2}", "interrupt.often"),
        ("{steps: 9}, profiled: true", "allowed: none with profiled: true"),
    ],
)
def test_what_a_study_may_ask(tmp_path: Path, interrupt: str, says: str | None) -> None:
    block = "{dataset: mnist5k, recipe: demo, models: [lenet], frameworks: [ddp], loaders: [native], workers: [1], "
    block += f"schedules: [step], epochs: 1, global_batch: [64], interrupt: {interrupt}}}"

    def plan() -> Plan:
        return make_plan(write_study(tmp_path, f"title: mine\nruns:\n  all: {block}\nfigures: {{}}\n"), LAPTOP)

    if says is None:
        assert [run.spec.interrupt_steps for run in plan().runs.values()] == [62]
        return
    with pytest.raises(ConfigError) as error:
        plan()
    assert says in str(error.value)


# In place of a launcher: a rank that trains to the end of its fourth step, if it is told to die there.
RANK = """
import sys
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
    assert supervisor.execute(KILLED, folder, None, command) == interrupted.AGAIN
    assert not (folder / "failed").exists()
    note = interrupted.kept(KILLED, folder)
    assert note is not None
    assert (note["step"], note["checkpoint_s"]) == (60, None)
    assert supervisor.execute(KILLED, folder, None, command) == 3
    assert [line for line in capfd.readouterr().out.splitlines() if line.startswith("told")] == ["told 60", "told None"]
    assert interrupted.still_to_come(replace(KILLED, epochs=3), folder) == 60
    (folder / interrupted.KEPT).write_text("{")  # cut off: it dies again, and nothing is lost
    assert interrupted.still_to_come(KILLED, folder) == 60


def test_a_rank_dies_of_sigkill_and_leaves_its_note(tmp_path: Path) -> None:
    for rank, leaves in ((1, False), (0, True)):
        call = f"interruption.die(Path({str(tmp_path)!r}), {rank}, 60, 0.25)"
        code = f"from pathlib import Path; from ddlbench.train import interruption; interruption.LEAVE_S = 0; {call}"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
        assert (tmp_path / interruption.NOTE).exists() == leaves
    assert json.loads((tmp_path / interruption.NOTE).read_text()).keys() == NOTE.keys()


def test_records_say_what_an_interruption_took(tmp_path: Path) -> None:
    spec = replace(SPEC, interrupt_steps=60)
    went_on = {"step": 32, "elapsed_s": 1.0}
    folder = write_record(tmp_path / "a", spec, interrupted=NOTE, resumed=went_on)
    log = folder / "run.mllog"
    lines = [json.loads(line.split(":::MLLOG ")[1]) for line in log.read_text().splitlines()]
    at = next(line for line in lines if line["key"] == "ddlbench_resumed") | {"time_ms": 15_500}
    text = [":::MLLOG " + json.dumps(at if line["key"] == "ddlbench_resumed" else line) for line in lines]
    log.write_text("\n".join(text) + "\n")
    seal_again(folder)
    run = tables(tmp_path / "tables", folder)[0].iloc[0]
    assert run[["checkpoint_s", "lost_steps", "restart_s", "interrupt_steps"]].tolist() == [0.25, 28, 3.5, 60]


@pytest.mark.parametrize(
    ("dies", "reason"),
    [(None, "the run was not interrupted"), (60, "the run ended before it was to be interrupted")],
)
def test_what_was_not_interrupted_says_so(tmp_path: Path, dies: int | None, reason: str) -> None:
    tables(tmp_path / "tables", write_record(tmp_path / "a", replace(SPEC, interrupt_steps=dies)))
    said = reasons(tmp_path / "tables")
    assert {said[name] for name in ("checkpoint_s", "lost_steps", "restart_s")} == {reason}


def test_without_a_checkpoint_a_run_begins_anew(tmp_path: Path) -> None:
    note = NOTE | {"checkpoint_s": None, "time_s": 0.25}  # the run starts at 1 s
    record = write_record(tmp_path / "a", replace(SPEC, interrupt_steps=60), interrupted=note)
    run = tables(tmp_path / "tables", record)[0].iloc[0]
    assert run[["lost_steps", "restart_s"]].tolist() == [60, 0.75]
    assert reasons(tmp_path / "tables")["checkpoint_s"] == "the run was killed before it had written a checkpoint"
