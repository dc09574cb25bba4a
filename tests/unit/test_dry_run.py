"""What `snakemake -n` prints: a line per rule that runs for a reason of its own, one for all that
follows.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.commands import dry_run, terminal
from ddlbench.commands.dry_run import ToMake
from ddlbench.patches.snakemake_lines import Message, Reason
from ddlbench.plan.runs import Plan

from tests.builders.plans import pick
from tests.builders.records import write_record
from tests.facts import missing

ABSENT = Reason(follows=False, missing=True, words=("output files have to be generated",))
FOLLOWS = Reason(follows=True, missing=False, words=("input files updated by another job",))
CODE = Reason(follows=False, missing=False, words=("code has changed since last execution",))


def rows(text: list[str]) -> dict[str, tuple[int, str]]:
    """Return number and reason of each rule that has a line, by its name."""
    parts = [line.split(maxsplit=2) for line in text if line.startswith("  ")]
    return {rule: (int(count), why) for rule, count, why in parts}


def test_a_study_of_which_nothing_is_done(
    demo: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = [ToMake("prepare", "mnist5k raw", ABSENT), ToMake("preflight", "", ABSENT)]
    jobs += [ToMake("train", name, ABSENT) for name in demo.runs]
    jobs += [
        ToMake("collect", "", Reason(True, True, ())),
        ToMake("frameworks", "", ABSENT),
        ToMake("page", "", FOLLOWS),
    ]
    text = dry_run.lines(demo, jobs)
    assert missing(text[0], "demo", "local", len(jobs)) == []
    found = rows(text)
    assert {rule: count for rule, (count, _) in found.items()} == {
        "prepare": 1,
        "preflight": 1,
        "train": len(demo.runs),
        "then": 3,
    }
    assert missing(found["prepare"][1], "mnist5k raw") == []
    assert missing(found["train"][1], f"of {len(demo.runs)}", dry_run.MISSING) == []
    assert missing(found["then"][1], "collect 1", "frameworks 1", "page 1") == []
    assert len(text) < 10


def test_a_run_says_which_setting_differs(
    demo: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second, third = [*demo.runs.values()][:3]
    for job, changes in ((first, {"base_lr": 7.0}), (second, {})):
        before = replace(job.spec, recipe=replace(job.spec.recipe, **changes))
        write_record(tmp_path / "results/runs", before, images=512)
    stopped = third.folder(Path("results")) / ".partial"
    stopped.mkdir(parents=True)
    forced = Reason(follows=False, missing=False, words=("forced",))
    jobs = [ToMake("train", job.spec.id, forced) for job in (first, second, third)]
    _, why = rows(dry_run.lines(demo, jobs))["train"]
    assert missing(why, "recipe.base_lr 7.0", "1 forced", "stopped") == []


def test_what_is_stale_by_itself_has_its_line(demo: Plan) -> None:
    jobs = [ToMake("figure", "throughput", CODE), ToMake("page", "", FOLLOWS)]
    found = rows(dry_run.lines(demo, jobs))
    assert [*found] == ["figure", "then"]
    assert missing(found["figure"][1], "throughput", *CODE.words) == []
    of_run = [
        ToMake("train", pick(demo).id, FOLLOWS),
        *jobs,
        ToMake("figure_data", "memory", ABSENT),
    ]
    assert [*rows(dry_run.lines(demo, of_run))] == ["train", "figure", "then"]


def test_few_reasons_are_told() -> None:
    assert dry_run._counted(["a", "a"]) == "a"
    text = dry_run._counted(["a", "a", "b", "c", "d", "e"])
    assert missing(text, "2 a", "1 b", "1 c", "2 for other reasons") == []


@pytest.mark.parametrize(("whole", "printed", "shown"), [(False, 1, 0), (True, 0, 2)])
def test_a_dry_run_is_summed_up_once(
    demo: Plan, capsys: pytest.CaptureFixture[str], whole: bool, printed: int, shown: int
) -> None:
    reason = SimpleNamespace(
        _updated_input_run=None, _missing_output=None, get_names=lambda: ["forced"]
    )
    rule = SimpleNamespace(name="page")
    job: Any = SimpleNamespace(rule=rule, is_norun=False, wildcards_dict={})
    target: Any = SimpleNamespace(
        rule=SimpleNamespace(name="all"), is_norun=True, wildcards_dict={}
    )
    dag = SimpleNamespace(needrun_jobs=lambda: iter([target, job]), reason=lambda job: reason)
    lines = terminal.Lines(
        SimpleNamespace(dag=dag, rules=[rule]), lambda: False, whole, sums_up=not whole
    )
    lines.plan = demo
    count = Message("counted", "Job stats: ...")
    assert sum(lines.shown(count) for _ in range(2)) == shown
    said = capsys.readouterr().out
    assert said.count("demo on") == printed and ("forced" in said) is bool(printed)
    assert lines.shown(Message("", "This was a dry-run")) is whole
    assert lines.shown(Message("warning", "a warning")) and lines.shown(
        Message("nothing", "Nothing to be done")
    )
