"""Each claim that runs can judge is judged by those of its source's study, and by no others."""

from __future__ import annotations

import pandas as pd
import pytest
import yaml
from ddlbench.analysis import claims
from ddlbench.analysis.tables import frame
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG
from ddlbench.settings.study import load_study

from tests.specs import JUWELS
from tests.unit.drawings import row

OURS = claims.read(CONFIG / "references/claims.csv")
PARTS = ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
MEASURES = dict.fromkeys(
    (
        *("throughput_images_per_s", "full_train_s", "epoch_s", "final_top1", "peak_resident_bytes", "restart_s"),
        *("network_sent_bytes", *PARTS),
    ),
    1.0,
)
SHARES = ("communication_percent", "computation_percent")


def judged(rows: list[dict[str, object]], of: list[claims.Claim]) -> dict[str, str]:
    """The verdict on each of these claims by its id."""
    kernels = pd.DataFrame(
        [{"run": one["run"]} | dict.fromkeys(SHARES, 20.0) for one in rows], columns=["run", *SHARES]
    )
    table = claims.verdicts(of, frame("runs", rows), kernels)
    return dict(zip(table["id"], table["verdict"], strict=True))


@pytest.mark.parametrize(
    ("study", "sources"),
    [
        ("aach2023", {"aach2023"}),
        ("horovod-vs-deepspeed", {"comparison2022"}),
        ("deepspeed-features", {"deepspeed-article"}),
        pytest.param("liang2023", {"liang2022", "liang2023"}, marks=pytest.mark.slow),  # 5 s
    ],
)
def test_a_study_has_runs_on_both_sides_of_each_claim_of_its_source(study: str, sources: set[str]) -> None:
    plan = make_plan(load_study(study), JUWELS)
    planned = [job.spec for job in plan.runs.values() if job.spec.repeat == 1]
    rows = [spec.columns() | {"status": "success"} | MEASURES for spec in planned]
    ours = [one for one in OURS if one.source in sources]
    open_ = {one for one, verdict in judged(rows, ours).items() if verdict == claims.NOT_TESTABLE}
    assert open_ == {one.id for one in ours if not one.quantity}  # what only words can answer


def test_claims_about_imagenet_on_gpus_are_left_alone_by_all_other_runs() -> None:
    ours = [one for one in OURS if one.source == "aach2023" and one.quantity == "throughput"]
    few = {"loader": "native", "form": "raw", "repeat": 1}
    for wrong in ({"dataset": "cifar10"}, {"device": "cpu"}):
        rows = [row(100.0, framework=name, **few, **wrong) for name in ("ddp", "horovod", "deepspeed")]
        assert set(judged(rows, ours).values()) == {claims.NOT_TESTABLE}
    right = judged([row(100.0, framework=name, **few) for name in ("ddp", "horovod", "deepspeed")], ours)
    assert {"aach2023-deepspeed-few", "aach2023-deepspeed-few-horovod", "aach2023-native-alike-64"} <= {
        one for one, verdict in right.items() if verdict == claims.UNDECIDED
    }


def test_stages_of_zero_are_known_by_every_name_that_a_study_gives_them() -> None:
    sides = {stage: next(one for one in OURS if one.id == f"comparison2022-zero{stage}-memory") for stage in (1, 2, 3)}
    for path in (CONFIG / "studies").glob("*.yaml"):
        for name, variant in yaml.safe_load(path.read_text(encoding="utf-8")).get("variants", {}).items():
            if stage := variant.get("zero_stage"):
                assert name in sides[stage].right["framework"], f"{path.stem}: {name}"
                assert stage == 3 or name in sides[stage + 1].left["framework"], f"{path.stem}: {name}"


def test_horovods_memory_is_compared_with_the_stage_that_deepspeed_is_said_to_use() -> None:
    ours = [one for one in OURS if one.id == "comparison2022-deepspeed-memory-zero1"]
    for name in ("deepspeed-zero1", "zero-1"):
        rows = [row(9.0, framework=one, workers=4) for one in ("horovod", name)]
        assert judged(rows, ours) == {"comparison2022-deepspeed-memory-zero1": claims.UNDECIDED}  # of one run
