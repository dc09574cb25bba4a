"""Studies that did not go as planned: nothing false is said of them, on the page or in the
terminal.
"""

import pandas as pd
import pytest
from ddlbench.answers import Certainty
from ddlbench.settings.config import complain
from ddlbench.show.page import shown, write

from tests.builders.results import NOISE, only, ran
from tests.facts import missing

FAILURES = pd.DataFrame({"rule": ["train"] * 3, "cause": ["out of memory", None, "killed"]})


def test_sides_with_different_numbers_of_runs_are_compared_by_the_pairs_that_there_are() -> None:
    rows = [
        *ran(1000.0, (*NOISE, 0.0, 0.02), framework="ddp"),
        *ran(900.0, (0.0,), framework="horovod"),
    ]
    answer = only(rows, "framework")
    assert answer.over and (answer.over.n, answer.over.low) == (1, None)
    assert answer.certainty is Certainty.FEW and answer.settles and answer.settles.repeats == 2
    sizes = [*ran(1.0, global_batch=32, top1=0.9), *ran(1.0, (0.0,), global_batch=256, top1=0.9)]
    batch = only(sizes, "batch")
    assert [row.n for row in batch.rows] == [3, 1] and batch.certainty is Certainty.FEW


def test_a_ratio_that_says_nothing_is_not_drawn() -> None:
    rows = [*ran(1000.0, framework="ddp"), *ran(900.0, (0.0, -0.999999, 0.01), framework="horovod")]
    answer = only(rows, "framework")
    assert answer.certainty is Certainty.AHEAD
    assert [shown.drawn(row) for row in answer.rows if not row.taken] == [False]


def test_what_is_in_no_answer_is_said() -> None:
    refused = pd.DataFrame({"run": ["a"]})
    both = write._lost({"failures": FAILURES, "refused": refused})
    assert (
        missing(both, "3 failed runs", "killed", "no report", "out of memory", "1 refused record")
        == []
    )
    assert write._lost({"failures": FAILURES[:0], "refused": refused[:0]}) == ""


@pytest.mark.parametrize(("failed", "section"), [(1, "failures"), (0, "refused")])
def test_what_is_in_no_answer_is_linked_by_its_table_not_by_words(
    failed: int, section: str
) -> None:
    assert (
        write._lost_in(
            {"failures": FAILURES[:failed], "refused": pd.DataFrame({"run": ["failed"]})}
        )
        == section
    )


def test_a_comparison_with_one_run_that_is_not_shown_is_not_shown() -> None:
    tables = {
        "runs": pd.DataFrame({"run": ["a", "b", "c"]}),
        "comparisons": pd.DataFrame({"runs": ["a b", "b c", "c"]}),
    }
    few = write._only(tables, ["a", "b"], [])
    assert [*few["runs"]["run"]] == ["a", "b"]
    assert [*few["comparisons"]["runs"]] == ["a b"]


def test_the_terminal_says_names_as_they_are() -> None:
    assert (
        missing(complain("a.yaml", "variants", "zé", "allowed: b"), "a.yaml: variants", '"zé"', "b")
        == []
    )
