"""Failed runs keep tables from being made; they are to be seen all the same."""

import json
import shutil
from pathlib import Path

import pandas as pd

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
