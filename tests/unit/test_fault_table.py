"""Tables of faults name tests that exist, their pages show them, and docs/messages.md explains
messages.
"""

import ast
from importlib import import_module

import pytest
from ddlbench.core import registry

from tests.conftest import ROOT
from tests.faults import FAULTS, page


def test_every_fault_is_tried_by_tests_that_exist() -> None:
    named = {test for fault in FAULTS for test in fault.tests}
    there = set()
    for file in (ROOT / "tests").glob("*/test_*.py"):
        functions = (
            node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)
        )
        there |= {f"{file.parent.name}/{function.name}" for function in functions}
    assert named - there == set()
    assert len(FAULTS) >= 40
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)


def test_the_page_shows_it() -> None:
    made = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert made == page(), "make it anew: python -m tests.faults > docs/faults.md"


def test_every_planted_fault_names_tests_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """And docs/measurements/planted.md shows their table. Blanks separate names, so that parameters
    with blanks are left out.
    """
    monkeypatch.syspath_prepend(ROOT / "bench")
    planted = import_module("planted")
    faults = [planted.read(path) for path in sorted(planted.PATCHES.glob("*.patch"))]
    named = {test.partition("[")[0] for fault in faults for test in fault.tests}
    there = set()
    for file in {test.partition("::")[0] for test in named}:
        if not (ROOT / file).exists():
            continue
        there.add(file)
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                there.add(f"{file}::{node.name}")
            elif isinstance(node, ast.ClassDef):
                functions = (part for part in node.body if isinstance(part, ast.FunctionDef))
                there |= {f"{file}::{node.name}::{function.name}" for function in functions}
    assert named - there == set()
    page = (ROOT / "docs/measurements/planted.md").read_text(encoding="utf-8")
    assert {*planted.table(faults).splitlines()} - {*page.splitlines()} == set()


MESSAGES = (
    *(
        "is held (",
        "will not start (",
        "It ended before its run began, on ",
        "is of an earlier attempt",
    ),
    *("SLURM takes no more jobs for now (", "jobs may be left (", "waits for other jobs to end ("),
    *(
        "that node does not see ",
        " does not see ",
        "no report from ranks ",
        "SLURM has no accounting here (",
    ),
    *("has other settings than this study's plan"),
    *("has a record already", "is being made by ", "its record could not be made"),
    *("is damaged and is ignored", "was the study edited?", "was killed ("),
    *("was killed for memory", "cannot be started: ", " pixels (recipe: image_size)"),
    *("SLURM cancelled the step", "the node failed", "failure.json could not be written"),
)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_page_says_what_a_message_means(message: str) -> None:
    """Each is a piece of the code and of a line in the page's tables, as long as it is one."""
    code = "".join(path.read_text() for path in registry.PACKAGE.rglob("*.py"))
    code = code.replace("{failed / FAILURE}", "failure.json")
    explained = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    assert message in code
    assert any(message in line for line in explained.splitlines() if line.startswith("|"))
