"""Two clones of the project with one `results/`, a job that was submitted twice: what is finished,
or runs, stays.
"""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from ddlbench.core import living
from ddlbench.run import hold, survivors

from tests.builders.records import edit_log
from tests.workflow.conftest import ask, edit, mini, planned, snakemake

# What each supervisor does once its record is there: it kills Snakemake, which has not noted it
# yet.
KILLS = """
import psutil

def make_record(*arguments, make=make_record):
    failure = make(*arguments)
    for process in psutil.Process().parents():
        if "profiles/local" in process.cmdline():
            process.kill()
    return failure
"""


def files(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}


def test_neither_a_finished_record_nor_a_living_run_is_touched(finished: Path) -> None:
    done, running = sorted((finished / "results/runs").iterdir())
    for path in (*done.iterdir(), *running.iterdir()):  # the copy is links
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    stops = r'"time_ms": \d+, "event_type": "INTERVAL_END", "key": "run_stop"'
    stop = re.search(stops, (done / "run.mllog").read_text())
    assert stop
    edit_log(
        done, stop[0], re.sub(r"\d+", "4102444800000", stop[0], count=1)
    )  # after this call has begun
    for name in ("run.mllog", "steps.parquet"):
        (running / name).unlink()
    (running / "train.log").write_text("epoch 1 of 90\n")
    (running / hold.HOLDER).write_text(json.dumps(asdict(living.myself())))  # this process makes it
    # It is no process that an earlier call left behind, for which this call would wait: another
    # Snakemake is at work.
    me = living.myself()
    unmark = living.mark(
        finished / survivors.MARKS / f"{me.host}-{me.pid}.json", survivors.HEARTBEAT_S
    )
    before = files(done), files(running)
    said = mini(finished, "--forcerun", "train", "--keep-going", "tables").stdout
    unmark()
    left = [files(run) for run in (done, running)]
    refused = [
        {name: left[n].pop(name) for name in list(left[n]) if name.startswith("refused-")}
        for n in (0, 1)
    ]
    assert tuple(left) == before, said
    (late,), (second,) = (list(one.values()) for one in refused)
    assert b"has a record already" in late
    assert f"is being made by process {os.getpid()}".encode() in second
    assert f"is being made by process {os.getpid()}" in said


@pytest.mark.more
def test_a_record_that_a_killed_snakemake_did_not_note_is_kept(finished: Path) -> None:
    """Of another recipe than the one that Snakemake remembers."""
    edit(finished / "config/recipes/mini.yaml", base_lr=0.2)
    finish = finished / "workflow/ddlbench/run/finish.py"
    with finish.open("a") as code:
        code.write(KILLS)
    mini_of = ("--config", "study=mini", "machine=mini")
    killed = snakemake(
        finished, "--until", "train", *mini_of, PYTHONPATH=str(finished / "workflow")
    )
    assert killed.returncode == -9, killed.stdout
    finish.write_text(finish.read_text().removesuffix(KILLS))
    logs = (finished / "results/runs").glob("*/run.mllog")
    (new,) = (log.parent for log in logs if '"base_lr": 0.2' in log.read_text())
    before = (new / "run.mllog").read_bytes()
    assert planned(finished)["train"] == 1
    done = mini(finished, "--until", "train")
    assert done.returncode == 0, done.stdout
    assert (new / "run.mllog").read_bytes() == before
    assert "train" not in planned(finished)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["no seal", "altered", "seal of another run"])
def test_a_record_whose_seal_is_broken_is_refused_by_all_alike(finished: Path, what: str) -> None:
    """Nothing is trained: whoever wants the run again moves its folder away, as everything says."""
    ceiling, digits = (
        next((finished / "results/runs").glob(f"*-{loader}-*"))
        for loader in ("synthetic", "native")
    )
    log = ceiling / "run.mllog"
    lines = log.read_text().splitlines(keepends=True)
    if what == "altered":
        lines[5] = lines[5].replace('"value": ', '"value":  ')
    else:
        lines[-1:] = (
            (digits / "run.mllog").read_text().splitlines(keepends=True)[-1:]
            if "another" in what
            else []
        )
    log.unlink()  # the copy is links
    log.write_text("".join(lines))
    why = "has no seal as its last line" if what == "no seal" else "was changed after its run ended"
    if what == "no seal":
        said = mini(finished, "--keep-going").stdout
        assert f"{log.relative_to(finished)}: {why}" in said and "move results/runs/" in said
    dry = mini(finished, "-n").stdout
    assert (what == "no seal") is ("Nothing to be done" in dry) and "train " not in dry, dry
    # Once tables are made they say it; until then the dry run does.
    assert (f"{why}: it is cut off or was changed" in dry or why in dry) is (what != "no seal"), dry
    for question in ("plan", "status"):
        said = ask(finished, question).stdout
        assert "refused" in said and why in said and f"{ceiling.name} away" in said, said
    assert log.read_text() == "".join(lines)
