"""Kinds of jobs: those that one rule makes share all that is said of it; and how jobs are
counted.
"""

from ddlbench.core import kinds, registry

from tests.facts import missing


def test_rules_have_names_folders_and_tables_of_their_own() -> None:
    rules = kinds.job_rules()
    assert len(rules) == len({rule.name for rule in rules}) == len({rule.folder for rule in rules})
    assert [rule.name for rule in rules if rule.trains] == ["train"] == [rules[0].name]
    assert {registry.member("kinds", name).RULE for name in registry.members("kinds")} == {*rules}


def test_jobs_are_counted_by_their_kind() -> None:
    assert kinds.counted([]) == "0 runs"
    assert kinds.counted(["train", "train"]) == "2 runs"
    said = kinds.counted(["infer", "train"], "failed ")
    assert missing(said, "1 failed run", "1 failed job", "inference") == []
