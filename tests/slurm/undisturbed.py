"""What a run trained, and whether the same run without SLURM and without a break trains the
same.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from ddlbench.core.mllog import read_log
from ddlbench.core.spec import RunSpec

from tests.contract import launches


def events(folder: Path, key: str) -> list[Any]:
    """The values of a key in a run's log."""
    return [event.value for event in read_log(folder / "run.mllog") if event.key == key]


def losses(folder: Path) -> list[float]:
    """The loss of each step: the sum over ranks."""
    of_step: list[float] = (
        pd.read_parquet(folder / "steps.parquet").groupby("step")["loss"].sum().tolist()
    )
    return of_step


def assert_as_undisturbed(folder: Path, data: Path, tmp_path: Path) -> None:
    """A run has the losses of the same run without SLURM and without a break, to the last bit."""
    spec = RunSpec.from_json(json.dumps(events(folder, "ddlbench_spec")[0]))
    alone = tmp_path / "here" / spec.id
    done = launches.execute(spec, alone, data, program=("python", "-m", "ddlbench.train"))
    assert done.code == 0, done.output
    columns = ["step", "rank", "images", "lr", "loss"]
    mine, theirs = (
        pd.read_parquet(f / "steps.parquet")
        .sort_values(["step", "rank"])[columns]
        .reset_index(drop=True)
        for f in (folder, alone)
    )
    assert mine.equals(theirs)
    assert events(folder, "eval_accuracy") == events(alone, "eval_accuracy")
