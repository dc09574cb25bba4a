"""Kinds of jobs: nothing that is the same for all of them names one."""

import re

import pytest
from ddlbench.core import kinds, registry

from tests.conftest import ROOT

WORKFLOW = ROOT / "workflow"
# What is inference's own, and what it leaves or reads: files that may name it, by the reason.
OWN = {
    "the kind itself, and what is in its processes": (
        "ddlbench/plan/kinds/inference.py",
        "ddlbench/run/infer.py",
        "ddlbench/train/inference/*.py",
        "rules/infer.smk",
        "scripts/infer_table.py",
    ),
    "its table, and the figure of that": (
        "ddlbench/analysis/inference.py",
        "ddlbench/analysis/tables.py",
        "ddlbench/show/figures/latency.py",
    ),
    "its key of a study": (
        "ddlbench/settings/study_keys.py",
        "ddlbench/settings/study.py",
        "ddlbench/settings/document.py",
    ),
    "where the rooms of members lie": ("ddlbench/core/registry.py",),
    "a rule that needs no queue is named where all such are": ("Snakefile",),
}


def test_nobody_else_asks_whether_a_job_is_inference() -> None:
    allowed = {path for files in OWN.values() for name in files for path in WORKFLOW.glob(name)}
    others = [*WORKFLOW.rglob("*.py"), *WORKFLOW.rglob("*.smk"), WORKFLOW / "Snakefile"]
    words = re.compile(r'import.*\binfer|["\'](infer|inference)["\']|\bINFER\b|\.infer(ence|red|s)?\b')
    said = [
        f"{path.relative_to(WORKFLOW)}: {line.strip()}"
        for path in {*others} - allowed
        for line in path.read_text(encoding="utf-8").splitlines()
        if words.search(line)
    ]
    assert said == []


@pytest.mark.parametrize("name", registry.members("kinds"))
def test_kinds_whose_jobs_one_rule_makes_leave_the_same(name: str) -> None:
    kind = registry.member("kinds", name)
    of_rule = kinds.of_rule(kind.RULE)
    for part in ("WILDCARD", "FOLDER", "OUTPUTS", "LOG", "TABLE", "NOUN"):
        assert getattr(kind, part) == getattr(of_rule, part)


def test_jobs_are_counted_by_their_kind() -> None:
    assert kinds.counted([]) == "0 runs"
    assert kinds.counted(["train", "train"]) == "2 runs"
    assert kinds.counted(["infer", "train"], "failed ") == "1 failed run and 1 failed job of inference"
