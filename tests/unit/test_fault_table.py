"""The table of faults names tests that exist, and docs/clusters.md shows it."""

from __future__ import annotations

import ast

from tests.conftest import ROOT
from tests.faults import FAULTS, table


def test_every_fault_is_tried_by_tests_that_exist() -> None:
    named = {test for fault in FAULTS for test in fault.tests}
    there = set()
    for file in (ROOT / "tests").glob("*/test_*.py"):
        functions = (node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))
        there |= {f"{file.parent.name}/{function.name}" for function in functions}
    assert named - there == set()
    assert len(FAULTS) >= 40
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)


def test_the_page_shows_it() -> None:
    """`python -m tests.faults` prints it."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert "\n".join(table()) in page
