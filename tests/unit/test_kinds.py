"""Kinds of jobs: what those that one rule makes have in common, and how jobs are counted."""

import pytest
from ddlbench.core import kinds, registry

from tests.facts import missing


@pytest.mark.parametrize("name", registry.members("kinds"))
def test_kinds_whose_jobs_one_rule_makes_leave_the_same(name: str) -> None:
    kind = registry.member("kinds", name)
    of_rule = kinds.of_rule(kind.RULE)
    for part in ("WILDCARD", "FOLDER", "OUTPUTS", "LOG", "TABLE", "NOUN"):
        assert getattr(kind, part) == getattr(of_rule, part)


def test_jobs_are_counted_by_their_kind() -> None:
    assert kinds.counted([]) == "0 runs"
    assert kinds.counted(["train", "train"]) == "2 runs"
    said = kinds.counted(["infer", "train"], "failed ")
    assert missing(said, "1 failed run", "1 failed job", "inference") == []
