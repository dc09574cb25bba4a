"""The table of faults names tests that exist, and docs/clusters.md shows it."""

from __future__ import annotations

import ast

from tests.conftest import ROOT
from tests.faults import FAULTS, table


def test_every_fault_is_tried_by_tests_that_exist() -> None:
    named = {test for fault in FAULTS for test in fault.tests}
    there = set()
    for file in {test.split("::")[0] for test in named}:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        there |= {f"{file}::{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert named - there == set()
    assert len(FAULTS) >= 40
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)


def test_the_page_shows_it() -> None:
    """`python -m tests.faults` prints it."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert "\n".join(table()) in page
