"""Where the efficiency went, in real trainings: delays that are planted are found, each in its own
part.

The same training without them is what they are compared with.
"""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.analysis.losses import PARTS, waterfall

from tests.contract import launches

PROBE = ("python", str(launches.HERE / "delay_probe.py"))
EPOCHS, STEPS = 2, 11  # per epoch
WITHIN = 0.2


def train(
    folder: Path, data: Path, workers: int, delay: str, case: str = "plain", epochs: int = EPOCHS
) -> Path:
    """The synthetic loader, because processes that decode pictures compete for two cores; as many
    images as others.
    """
    spec = replace(
        launches.spec_of(case, "ddp", workers), loader="synthetic", global_batch=24, epochs=epochs
    )
    (folder / "data").mkdir(parents=True)
    (folder / "data" / str(spec.reads)).symlink_to(data / "raw")
    done = launches.execute(
        spec, folder / spec.id, folder / "data", program=PROBE, environment={"DELAY": delay}
    )
    assert done.code == 0, done.output
    return done.folder


def tables(folder: Path, *runs: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    assert collect(runs, folder) == []
    return pd.read_parquet(folder / "runs.parquet"), pd.read_parquet(folder / "losses.parquet")


@pytest.mark.slow
def test_delays_are_in_their_parts_and_parts_add_up(data: Path, tmp_path: Path) -> None:
    """120 ms in the loader, 180 ms in one rank's backward pass, 90 ms in the all-reduce, all at
    once.
    """
    base, without, slow = (
        train(tmp_path / name, data, workers, delay)
        for name, workers, delay in (("base", 1, ""), ("without", 2, ""), ("slow", 2, "all"))
    )
    slept = [json.loads((slow / f"slept-{rank}").read_text()) for rank in (0, 1)]
    steps = EPOCHS * STEPS
    # They were planted. The loader of the first epoch is asked before the training begins, and has
    # no delay.
    assert slept[0]["input"] + slept[0]["start"] >= 0.120 * (steps - STEPS)
    assert (
        slept[1]["backward"] >= 0.180 * steps
        and min(of["transfer"] for of in slept) >= 0.090 * steps
    )

    before, after = (
        tables(tmp_path / name / "tables", run)[1].iloc[0]
        for name, run in (("w", without), ("s", slow))
    )
    print(
        slept,
        *({part: round(float(of[part]), 3) for part in PARTS} for of in (before, after)),
        sep="\n",
    )

    def found(part: str, delay_s: float) -> bool:
        """Whether a part is the delay, or the delay and what was there without it. A delay hides
        what it overlaps with: while one rank is late by 180 ms, the other's smaller lateness costs
        nothing.
        """
        return bool((1 - WITHIN) * delay_s <= after[part] <= (1 + WITHIN) * delay_s + before[part])

    # Rank 0 is the one in the middle of each step, because rank 1 is busier: it waits for the
    # backward pass of rank 1.
    assert found("input_s", slept[0]["input"])
    assert found("waiting_s", slept[1]["backward"])
    assert found("transfer_s", min(of["transfer"] for of in slept))
    assert abs(after["compute_s"] - before["compute_s"]) < WITHIN * slept[1]["backward"]
    assert sum(after[part] for part in PARTS if pd.notna(after[part])) == pytest.approx(
        after["total_s"], rel=1e-9
    )

    (row,) = waterfall(*tables(tmp_path / "both", base, slow)).to_dict("records")
    assert (row["ref_workers"], row["workers"]) == (1, 2)
    assert row["efficiency"] + sum(row[part] for part in PARTS) == pytest.approx(1.0, abs=1e-12)
    assert row["input_s"] > 0.8 * slept[0]["input"] / after["total_s"]
