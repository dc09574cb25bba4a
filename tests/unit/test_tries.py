"""Nodes on which jobs fail before they begin, by what `sacct --duplicates` says of all tries."""

from typing import Any

import pytest
from ddlbench.slurm import tries
from ddlbench.slurm.tries import Try

ROW = "ddlbench_7|{}|{}|{}|{}"


def test_tries_that_did_not_begin_are_told_from_those_that_did(command: Any) -> None:
    """`command` puts scripts in the place of SLURM's."""
    rows = [
        ROW.format("REQUEUED", "0:0", 3, "n[1-2]"),  # a prolog failed
        ROW.format("REQUEUED", "0:0", 7200, "n[1-2]"),  # it gave way to another job
        ROW.format("FAILED", "0:53", 0, "n3"),  # its log could not be opened
        ROW.format("NODE_FAIL", "0:0", 40, "n3"),
        ROW.format("CANCELLED by 1000", "0:0", 5, "n3"),
        ROW.format("COMPLETED", "0:0", 900, "n3"),
        ROW.format("FAILED", "1:0", 5, "n3"),  # its own fault
        ROW.format("PENDING", "0:0", 0, "None assigned"),
        ROW.format("RUNNING", "0:0", 5, "n3"),
        "another|NODE_FAIL|0:0|40|n3",
    ]
    command(
        "sacct", "case \"$*\" in *--duplicates*) printf '%s\\n' " + " ".join(f"'{row}'" for row in rows) + ";; esac"
    )
    command("scontrol", 'case "$3" in "n[1-2]") echo n1; echo n2;; *) echo "$3";; esac')
    found = tries.tries()
    assert [one.failed for one in found] == [True, False, True, True, False, False, False]
    assert [sorted(one.nodes) for one in found[1:3]] == [["n1", "n2"], ["n3"]]


def on(failed: bool, *names: str) -> Try:
    return Try(frozenset(names), failed)


def test_the_node_is_blamed_and_not_those_that_were_there_most_often() -> None:
    """n1 is in every try; with n9 four of four failed."""
    some = [on(False, "n1", f"n{2 + i % 6}") for i in range(60)] + [on(True, "n1", "n9")] * 4 + [on(True, "n1", "n2")]
    (said,) = tries.lines(some)
    assert said.startswith(
        "n9: 4 of 4 tries with it failed before the job began, 1 of 61 without it; exclude_nodes: [n9]"
    )


@pytest.mark.parametrize(
    ("some", "said"),
    [
        ([on(False, "n1"), on(False, "n2")], []),
        ([], []),
        ([on(True, f"n{i}") for i in range(20)], ["20 of 20 tries failed before the job began; no node stands out"]),
        ([on(True, "n1"), *[on(False, "n2")] * 5], ["1 of 6 tries failed before the job began; no node stands out"]),
    ],
)
def test_chance_blames_nobody(some: list[Try], said: list[str]) -> None:
    assert tries.lines(some) == said
