"""Kinds of jobs: nothing that is the same for all of them names one."""

import re

import pytest
from ddlbench.core import kinds, registry

from tests.conftest import ROOT

WORKFLOW = ROOT / "workflow"
# What asks whether a job is of a kind, and files that may, by the reason.
INFERENCE = r'import.*\binfer|["\'](infer|inference)["\']|\bINFER\b|\.infer(ence|red|s)?\b'
OF_INFERENCE = {
    "the kind itself": "ddlbench/plan/kinds/inference.py",
    "what is in its processes": "ddlbench/run/infer.py ddlbench/train/inference/*.py rules/infer.smk",
    "its table": "scripts/infer_table.py ddlbench/analysis/inference.py ddlbench/analysis/tables.py",
    "the figure of that": "ddlbench/show/figures/latency.py",
    "its key of a study": "ddlbench/settings/study*.py ddlbench/settings/document.py",
    "where the rooms of members lie": "ddlbench/core/registry.py",
    "a rule that needs no queue is named where all such are": "Snakefile",
}
PROGRAM = r"\bspec\.(program\b|kind [!=]=)"
OF_PROGRAM = {
    "the kinds, each of which takes its own": "ddlbench/plan/kinds/*.py",
    "what starts a program": "ddlbench/run/program.py ddlbench/run/rank.py ddlbench/commands/new/trial.py",
    "what reads its steps": "ddlbench/run/readings/*.py",
}


@pytest.mark.parametrize(("asks", "of_kind"), [(INFERENCE, OF_INFERENCE), (PROGRAM, OF_PROGRAM)])
def test_nobody_else_asks_of_which_kind_a_job_is(asks: str, of_kind: dict[str, str]) -> None:
    allowed = {path for files in of_kind.values() for name in files.split() for path in WORKFLOW.glob(name)}
    others = [*WORKFLOW.rglob("*.py"), *WORKFLOW.rglob("*.smk"), WORKFLOW / "Snakefile"]
    asking = [
        f"{path.relative_to(WORKFLOW)}: {line.strip()}"
        for path in {*others} - allowed
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(asks, line)
    ]
    assert asking == []


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
