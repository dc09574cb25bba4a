"""What a run leaves: an MLPerf log that the compliance checker accepts, and a row for every step
and rank.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from ddlbench.core import registry
from ddlbench.core.step_rows import STEP_COLUMNS, STEP_PARTS
from ddlbench.train import models
from ddlbench.train.setup import weights_sha256

from tests.contract import launches
from tests.contract.launches import FRAMEWORKS, IMAGES

CASES = [("plain", framework, 2) for framework in FRAMEWORKS]
pytestmark = pytest.mark.parametrize(("case", "framework", "workers"), CASES)


@pytest.fixture
def outcome(run, case, framework, workers):
    return run(case, framework, workers)


def test_mlperf_compliance_checker_accepts_the_log(outcome, tmp_path):
    checker = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training"]
    log = str(outcome.folder / "run.mllog")
    # It writes a log file into the folder it runs in.
    done = subprocess.run(
        [*checker, "--ruleset", "4.0.0", log], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr


def test_a_row_for_every_step_and_rank(outcome):
    steps, spec = outcome.steps, outcome.spec
    assert list(steps.columns) == list(STEP_COLUMNS)
    an_epoch = -(-IMAGES["train"] // spec.global_batch)
    expected = {(s, r) for s in range(an_epoch * spec.epochs) for r in range(spec.workers)}
    assert len(steps) == len(expected)
    assert set(zip(steps["step"], steps["rank"], strict=True)) == expected
    images = steps.groupby("step")["images"].sum().tolist()
    sizes = [
        min(spec.global_batch, IMAGES["train"] - s * spec.global_batch) for s in range(an_epoch)
    ]
    assert images == sizes * spec.epochs
    assert (
        steps["images"] == 0
    ).any()  # the contract's data leaves a rank without images: it has its row


def test_times_add_up(outcome):
    """A step's parts fill the time from the end of the last step, or less than it where an epoch
    begins.
    """
    for _, of_rank in outcome.steps.groupby("rank"):
        rows = of_rank.sort_values("step")
        parts = rows[[*STEP_PARTS]]
        not_measured = outcome.values("ddlbench_not_measured")[0]
        assert parts["communication_s"].isna().all() == ("communication_s" in not_measured)
        parts = parts.drop(columns=[c for c in ("communication_s",) if c in not_measured])
        assert parts.notna().all(axis=None)
        assert (parts["data_wait_s"] >= 0).all()
        assert (parts.drop(columns="data_wait_s") > 0).all(axis=None)
        took, total = rows["end_s"].diff().to_numpy()[1:], parts.sum(axis=1).to_numpy()[1:]
        same_epoch = rows["epoch"].diff().to_numpy()[1:] == 0
        np.testing.assert_allclose(
            took[same_epoch], total[same_epoch], atol=2e-5
        )  # of some 30 s, in float32
        assert (took[~same_epoch] > total[~same_epoch]).all()
    starts = [e.time_s for e in outcome.log if e.key == "run_start"]
    stops = [e.time_s for e in outcome.log if e.key == "run_stop"]
    ends = outcome.steps.groupby("rank")["end_s"].max()
    assert ends[0] < stops[0] - starts[0]
    assert ends.max() < stops[0] - starts[0] + 2  # ranks start nearly together


def test_facts_say_where_and_with_what(outcome):
    (facts,) = outcome.values("ddlbench_facts")
    framework = registry.member("frameworks", outcome.spec.adapter).DISTRIBUTION
    assert {"torch", "timm", framework, "ddlbench"} <= facts["versions"].keys()
    assert facts["versions"][framework]
    assert facts["versions"]["torch"]
    if (launches.HERE.parents[1] / ".git").exists():
        assert len(facts["commit"]) == 40
    assert facts["host"]
    assert "probe.py" in facts["command"]
    assert "OMP_NUM_THREADS=" in facts["environment"] and facts["nccl_version"] is None  # on CPUs
    assert outcome.values("ddlbench_spec") == [json.loads(outcome.spec.to_json())]


def test_every_rank_says_its_host(outcome):
    (ranks,) = outcome.values("ddlbench_ranks")
    (facts,) = outcome.values("ddlbench_facts")
    assert [rank["host"] for rank in ranks] == [facts["host"]] * outcome.spec.workers
    assert len({rank["pid"] for rank in ranks}) == outcome.spec.workers


def test_every_rank_says_what_it_used(outcome):
    """What is null has a reason; nothing that was used is zero."""
    (ranks,) = outcome.values("ddlbench_ranks")
    (reasons,) = outcome.values("ddlbench_not_measured")
    for number, rank in enumerate(ranks):
        assert [c for c, value in rank.items() if value is None and c not in reasons] == []
        for column in (
            "peak_resident_bytes",
            "cpu_s",
            "wall_s",
            "parameters_bytes",
            "gradients_bytes",
        ):
            assert rank[column] > 0, column
        assert ("network_sent_bytes" in rank) == ("node_cpu_s" in rank) == (number == 0)
        assert 0 < rank["cpu_share"] < 64


def test_operations_are_counted_once_and_alike(outcome):
    spec = outcome.spec
    model = models.build(spec.model, 10, spec.recipe.image_size)
    assert outcome.values("ddlbench_flops_per_image") == [
        models.flops_per_image(model, spec.recipe.image_size)
    ]


def test_the_log_says_what_the_start_of_each_epoch_took(outcome):
    """It is in the first step's wait for data."""
    first = (
        outcome.steps.query("rank == 0").sort_values("step").groupby("epoch")["data_wait_s"].first()
    )
    said = {
        e.metadata["epoch_num"] - 1: e.value
        for e in outcome.log
        if e.key == "ddlbench_epoch_start_s"
    }
    assert said == pytest.approx(first.to_dict(), rel=1e-6)  # steps are kept as float32


def test_the_log_says_which_weights_the_run_began_with(outcome):
    """The same for every framework."""
    torch.manual_seed(outcome.spec.seed)
    model = models.build(outcome.spec.model, 10, outcome.spec.recipe.image_size)
    assert outcome.values("ddlbench_initial_weights_sha256") == [weights_sha256(model)]


def test_nothing_else_is_left(outcome):
    assert {p.name for p in outcome.folder.iterdir()} == {
        "run.mllog",
        "steps.parquet",
        "summary.jsonl",
        *(f"state-{rank}.pt" for rank in range(outcome.spec.workers)),  # the probe's
    }
