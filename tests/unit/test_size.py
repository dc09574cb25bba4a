"""The house stays small: lines of the package and of the tests, words of the pages that people write, rooms."""

from pathlib import Path

import pytest
from ddlbench.core import registry

from tests.conftest import ROOT
from tests.unit.test_rooms import ROOMS

SHORTEN = (
    "shorten before you add: merge what says the same, delete what nobody uses, take a well-kept library that is "
    "installed already. A lower count lowers the limit; raise it only where the commit says what the lines buy"
)
MADE = {Path("docs/audit.md"), Path("docs/columns.md"), Path("docs/faults.md"), Path("config/README.md")}
MADE |= {Path("docs/measurements/untried.md")}
WRITTEN = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "config/*.md", "bench/*.md", "results/README.md")


def words(text: str) -> int:
    """Words and numbers; the bars of tables and the signs of lists are none."""
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


@pytest.mark.parametrize(("folder", "limit"), [(registry.PACKAGE, 38_490), (ROOT / "tests", 32_945)])
def test_lines_of_code(folder: Path, limit: int) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))
    assert lines <= limit, f"{folder.name} has {lines} lines of at most {limit}: {SHORTEN}"


def test_words_of_pages() -> None:
    """What is made from the code does not count, nor do bars of tables; what was measured does."""
    assert words("| `a b` | 3 |\n|---|---|\n- x") == 4
    pages = {path for pattern in WRITTEN for path in ROOT.glob(pattern)} - {ROOT / page for page in MADE}
    assert len(pages) > 20
    written = sum(words(page.read_text(encoding="utf-8")) for page in pages)
    assert written <= 25_000, f"docs have {written} words of at most 25000: {SHORTEN}"


def test_rooms_of_the_package() -> None:
    assert len(ROOMS) <= 16, f"{len(ROOMS)} entries at the top of the package of at most 16: {SHORTEN}"
