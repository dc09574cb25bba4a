"""A study that makes repeats until it is decided, by one call of Snakemake: its rounds and its
page.

Nothing is trained: by the records of `stand_in.py` one framework is a tenth slower than the other.
"""

import json
from pathlib import Path

import pytest
from ddlbench.plan import rounds
from ddlbench.plan.rounds import Why

from tests.slurm.stand_in import stand_in
from tests.workflow.conftest import ask, assert_nothing_to_do, mini, planned, snakemake

pytestmark = pytest.mark.slow

# With two pairs nothing is decided but a tie, and these frameworks differ: there is a second look.
STUDY = """
title: Until decided
dataset: mnist5k
recipe: mini
models: [lenet]
frameworks: [ddp, deepspeed]
loaders: [native]
schedules: [cosine]
epochs: 1
repeats: {until: decided, at_least: 2, at_most: 3}
runs:
  all: {workers: [1], batch_per_worker: [64]}
figures:
  throughput: {plot: throughput}
"""


def test_rounds_are_made_until_it_is_decided(finished: Path) -> None:
    stand_in(finished)
    (finished / "config/studies/mini.yaml").write_text(STUDY)
    assert planned(finished)["train"] == 4
    home, runs = finished / "results/mini/mini", finished / "results/runs"
    # In a process of its own, which starts itself again.
    done = snakemake(finished, "--config", "study=mini", "machine=mini", PYTHONPATH="")
    assert done.returncode == 0, done.stdout
    looks = rounds.read(home / "rounds.json")
    assert [(look.repeats, look.runs) for look in looks] == [(2, 4), (3, 6)], done.stdout
    assert looks[0].why is Why.OPEN and looks[0].open == ("framework",)
    assert looks[1].why in (Why.DECIDED, Why.AT_MOST)
    assert {*looks[0].more} == {path.name for path in runs.iterdir() if path.name.endswith("-r3")}
    points = json.loads((home / "study.json").read_text())["points"]
    assert sorted(len(point["runs"]) for point in points) == [3, 3]
    assert not list(
        Path(finished, ".snakemake/ddlbench").glob("*.json")
    )  # no mark of a Snakemake that is at work
    assert "uneven-repeats" not in (home / "tables/audit.csv").read_text()
    assert_nothing_to_do(mini(finished))

    said = ask(finished, "plan")
    assert (
        said.returncode == 0
        and "at least 4 runs" in said.stdout
        and "at most 6 runs" in said.stdout
    )
    # A round that was stopped: what is left of it is made.
    (runs / looks[0].more[0] / "run.mllog").unlink()
    assert planned(finished)["train"] == 1
    # Nothing is remembered but what records say.
    (home / "rounds.json").unlink()
    assert planned(finished).get("train", 0) == 0 and planned(finished)["rounds"] == 1
