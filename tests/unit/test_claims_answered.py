"""Runs made as a source describes them support its claims, in every shipped study that can judge
them.
"""

from functools import cache

import pandas as pd
import pytest
import yaml
from ddlbench.analysis import claim_verdicts, claims
from ddlbench.analysis.tables import frame
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS, LAPTOP
from tests.builders.tables import row
from tests.facts import missing
from tests.unit import told

pytestmark = pytest.mark.more

OURS = claims.read(CONFIG / "references/claims.csv")
# The sources that a study's runs say something to. No other shipped study meets any claim's
# conditions.
JUDGES = {
    "aach2023": {"aach2023", "comparison2022"},
    "aach2023-short": {"aach2023", "comparison2022"},
    "deepspeed-features": {"deepspeed-article"},
    "horovod-vs-deepspeed": {"aach2023", "comparison2022"},
    "language-inference": {"deepspeed-article"},
    "language-model": {"comparison2022", "deepspeed-article"},
    "language-model-small": {"comparison2022"},
    "liang2023": {"liang2022", "liang2023"},
}
SLOW = {"aach2023": pytest.mark.slow}  # 10 s, and its claims are those of aach2023-short
STUDIES = sorted(
    path.stem for path in (CONFIG / "studies").glob("*.yaml") if path.stem != "mlperf"
)  # it trains nothing
# What the other tellings of Aach et al. are about; the first is about all the rest.
OTHERWISE = {telling: {f"aach2023-{one}" for one in ids} for telling, ids in told.OTHERWISE.items()}
CONTRADICTING = set[str]().union(*OTHERWISE.values())


@cache
def planned(study: str) -> Plan:
    """On GPUs, or on the two cores that a study is for."""
    if study.startswith(("deepspeed-features-b", "tuning")):
        return make_plan(load_study(study), load_machine("local-netem"))
    small = study.endswith("-small") or study in ("demo", "frameworks")
    return make_plan(load_study(study), LAPTOP if small else JUWELS)


@cache
def judged(study: str, source: str, telling: str) -> pd.DataFrame:
    """Table `verdicts` on the claims of a source, by runs made as this telling of it says."""
    ours = [
        one
        for one in OURS
        if one.source == source and (telling == "" or one.id in OTHERWISE[telling])
    ]
    return claim_verdicts.verdicts(
        ours, *told.runs(planned(study), told.TELLERS[source, telling])
    ).set_index("id")


@pytest.mark.parametrize("study", [pytest.param(one, marks=SLOW.get(one, ())) for one in JUDGES])
def test_runs_made_as_a_source_says_support_each_of_its_claims(study: str) -> None:
    for source, telling in told.TELLERS:
        if source in JUDGES[study]:
            table = judged(study, source, telling)
            if not telling:
                table = table[~table.index.isin(CONTRADICTING)]
            wrong = table[
                ~table["verdict"].isin([claim_verdicts.SUPPORTED, claim_verdicts.NOT_TESTABLE])
            ]
            assert wrong[["verdict", "measured", "low", "high", "published"]].to_dict("index") == {}
            assert claim_verdicts.SUPPORTED in set(table["verdict"]) or telling


def test_each_claim_is_judged_by_a_shipped_study_or_says_why_not() -> None:
    tables = [
        judged(study, source, "") for study in {*JUDGES} - {*SLOW} for source in JUDGES[study]
    ]
    known = {
        one
        for table in tables
        for one in table.index[table["verdict"] != claim_verdicts.NOT_TESTABLE]
    }
    assert known == {one.id for one in OURS if one.quantity}
    assert all(one.why for one in OURS if not one.quantity)


def test_where_a_source_contradicts_itself_the_verdict_says_so() -> None:
    table = judged("aach2023-short", "aach2023", "").loc[sorted(CONTRADICTING)]
    assert set(table["verdict"]) == {claim_verdicts.CONTRADICTED}
    assert table["why"].str.contains("its own|its Efficiency").all()


def test_runs_that_a_source_never_made_are_in_none_of_its_verdicts() -> None:
    plan = planned("aach2023-short")
    ours = {
        run
        for block in ("ours", "ours-loaders", "ours-ceiling", "mlperf-lars/bs65536")
        for run in plan.blocks[block]
    }
    ours |= {
        run for run, job in plan.runs.items() if job.spec.framework == "deepspeed"
    }  # stage 0, which is ours
    assert len(ours) == 3 * 2 * 9 * 3 + 2 * 8 * 3 + 3 * 9 * 3 + 5 + 8 * 3
    rest_on = {
        run
        for runs in judged("aach2023-short", "aach2023", "")["runs"].dropna()
        for run in runs.split()
    }
    assert rest_on
    assert not rest_on & ours


@pytest.mark.parametrize("study", sorted({*STUDIES} - {*JUDGES}))
def test_no_other_study_says_anything_to_a_claim(study: str) -> None:
    table = claim_verdicts.verdicts(OURS, *told.runs(planned(study), lambda _: told.NEVER))
    assert set(table["verdict"]) == {claim_verdicts.NOT_TESTABLE}
    assert table["why"].str.len().gt(0).all()


def test_a_claim_says_which_of_its_conditions_no_run_meets() -> None:
    few = {"loader": "torchvision", "form": "raw"}
    for wrong, why in (
        ({"dataset": "cifar10"}, ("dataset imagenet", "cifar10")),
        ({"device": "cpu"}, ("device cuda", "cpu")),
        ({"recipe": load_recipe("demo").at(256)}, ("recipe aach2023",)),
    ):
        rows = [row(100.0, framework=name, **few, **wrong) for name in ("ddp", "horovod", "zero-1")]
        ours = [one for one in OURS if one.source == "aach2023" and one.quantity == "throughput"]
        table = claim_verdicts.verdicts(ours, frame("runs", rows), frame("kernels", []))
        assert set(table["verdict"]) == {claim_verdicts.NOT_TESTABLE}
        assert [missing(said, *why) for said in table["why"]] == [[]] * len(table)


def test_stages_of_zero_are_known_by_every_name_that_a_study_gives_them() -> None:
    sides = {
        stage: next(one for one in OURS if one.id == f"comparison2022-zero{stage}-memory")
        for stage in (1, 2, 3)
    }
    for path in (CONFIG / "studies").glob("*.yaml"):
        for name, variant in (
            yaml.safe_load(path.read_text(encoding="utf-8")).get("variants", {}).items()
        ):
            if (
                stage := variant.get("zero_stage")
            ) and "bucket_mb" not in variant:  # of which no source speaks
                assert name in sides[stage].right["framework"], f"{path.stem}: {name}"
                assert stage == 3 or name in sides[stage + 1].left["framework"], (
                    f"{path.stem}: {name}"
                )
