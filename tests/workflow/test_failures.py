"""Failed runs keep tables from being made; they are to be seen all the same."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

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
    assert table.loc[0, ["run", "cause", "message"]].tolist() == [RUN, "exception", "rank 0: out of luck"]
    assert not list((finished / "results/mini/mini/tables").glob("runs.*"))


ENDS = {
    "killed": "import os\n    os.kill(os.getpid(), 9)",
    "exception": "raise ZeroDivisionError('by our own fault')",
    "configuration": "raise ConfigError('config/machines/mini.yaml: no')",
    "disk full": "raise OSError(28, 'No space left on device')",
}


@pytest.mark.parametrize("cause", ENDS)
def test_terminal_failures_and_status_say_the_same(finished: Path, cause: str) -> None:
    """Of a supervisor that ends without a word of its ranks; and the next one makes the run."""
    (finished / RECORD).unlink()
    file = finished / "workflow/ddlbench/run/training.py"
    before = file.read_text()
    start = '    partial = folder / ".partial"\n'
    assert start in before
    end = f"    from ddlbench.settings.config import ConfigError\n    {ENDS[cause]}\n"
    file.write_text(before.replace(start, start + end))
    done = mini(finished, RECORD)
    assert done.returncode != 0
    (reason,) = re.findall(rf"^    {RUN}: (.+)$", done.stdout, re.M)
    assert "1 failed" in done.stdout and "--spec" not in done.stdout, done.stdout
    told = ask(finished, "failures").stdout
    assert told.startswith("1 failed run: ") and f"{RUN}: {reason}\n" in told
    table = pd.read_csv(finished / "results/mini/mini/tables/failures.csv")
    assert table["cause"].tolist() == [cause]
    assert f"  failed  {RUN}: {cause}" in ask(finished, "status").stdout
    file.write_text(before)
    done = mini(finished, RECORD)
    assert done.returncode == 0, done.stdout
    assert "0 failed runs" in ask(finished, "failures").stdout
