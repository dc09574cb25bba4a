"""Failed runs keep tables from being made; they are to be seen all the same."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.facts import missing
from tests.slurm.stand_in import stand_in
from tests.workflow.conftest import ask, mini

RUN = "mini-mnist5k-lenet-mini-ddp-synthetic-1workers-bs64-cosine-2epochs-r1"
RECORD = f"results/runs/{RUN}/run.mllog"


def test_a_failed_run_is_named_when_it_fails_and_when_asked(finished: Path) -> None:
    shutil.rmtree(finished / "results/mini/mini/tables")
    (finished / RECORD).unlink()
    (finished / "workflow/ddlbench/train/loop.py").write_text("raise SystemExit(3)\n")
    done = mini(finished, RECORD)
    assert done.returncode != 0
    assert f"{RUN}: " in done.stdout
    assert "1 failed run; all of them: ddlbench failures" in done.stdout

    (finished / "results/runs" / RUN / "failed/failure.json").write_text(
        json.dumps({"cause": "exception", "rank": 0, "message": "rank 0: out of luck", "time": 0})
    )
    for _ in range(2):  # always asked anew
        done = ask(finished, "failures")
        assert done.returncode == 0, done.stdout
        assert f"{RUN}: rank 0: out of luck" in done.stdout
    table = pd.read_csv(finished / "results/mini/mini/tables/failures.csv")
    assert table.loc[0, ["run", "cause", "message"]].tolist() == [
        RUN,
        "exception",
        "rank 0: out of luck",
    ]
    assert not list((finished / "results/mini/mini/tables").glob("runs.*"))


# How a supervisor ends, by the number of its repeat, before it has started any rank.
CAUSES = ("killed", "exception", "configuration", "disk full")
ENDS = """

def _ends(repeat):
    import os
    from ddlbench.settings.config import ConfigError

    if repeat == 1:
        os.kill(os.getpid(), 9)
    if repeat == 2:
        raise ZeroDivisionError("by our own fault")
    if repeat == 3:
        raise ConfigError("config/machines/mini.yaml: no")
    raise OSError(28, "No space left on device")
"""


@pytest.mark.more
def test_terminal_failures_and_status_say_the_same(finished: Path) -> None:
    """Of supervisors that end without a word of their ranks, each in its way; and the next one
    makes the run.
    """
    runs = {
        cause: RUN.replace("-r1", f"-r{repeat}") for repeat, cause in enumerate(CAUSES, start=1)
    }
    (finished / RECORD).unlink()
    study = finished / "config/studies/mini.yaml"
    study.write_text(
        study.read_text().replace("  digits:", f"    repeats: {len(CAUSES)}\n  digits:")
    )
    file = finished / "workflow/ddlbench/run/training.py"
    before = file.read_text()
    start = '    partial = folder / ".partial"\n'
    assert start in before
    file.write_text(before.replace(start, f"{start}    _ends(spec.repeat)\n") + ENDS)
    done = mini(
        finished, "--keep-going", *(f"results/runs/{run}/run.mllog" for run in runs.values())
    )
    assert done.returncode != 0
    assert missing(done.stdout, f"{len(runs)} failed") == [] and "--spec" not in done.stdout, (
        done.stdout
    )
    reasons = dict(re.findall(r"^    (\S+-r\d): (.+)$", done.stdout, re.M))
    assert reasons.keys() == {*runs.values()}
    told, status = ask(finished, "failures").stdout, ask(finished, "status").stdout
    table = pd.read_csv(finished / "results/mini/mini/tables/failures.csv")
    assert dict(zip(table["cause"], table["run"], strict=True)) == runs
    for cause, run in runs.items():
        assert f"{run}: {reasons[run]}\n" in told
        assert f"  failed  {run}: {cause}" in status
    file.write_text(before)
    stand_in(finished)
    done = mini(finished, RECORD)
    assert done.returncode == 0, done.stdout
    assert ask(finished, "failures").returncode == 0
    table = pd.read_csv(finished / "results/mini/mini/tables/failures.csv")
    assert {*table["run"]} == {*runs.values()} - {RUN}
