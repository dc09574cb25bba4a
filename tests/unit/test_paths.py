"""Files that pages and docstrings name are there: a map that leads to a file that is gone is worse
than none.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlbench.core import registry

from tests.conftest import ROOT

# A path with at least one folder, to a kind of file that the project keeps.
PATH = re.compile(
    r"(?<![\w/.<>{}*$~:-])((?:[\w.-]+/)+[\w.-]+\.(?:py|smk|md|csv|yaml|jinja|js|css|sh|toml|c|ddl))(?![\w/{}<>*])"
)
# Where a path may begin: the package's own files are named from its folder, a room's from the room.
BEGINNINGS = (ROOT, ROOT / "workflow", registry.PACKAGE, registry.PACKAGE / "train")
# Folders that only a run, an install or a user makes, and those of packages.
NOT_OURS = ("results/", "site/", ".venv/", "mine/", "path/to/", "deepspeed/", "torch/")
# Files that a page tells a reader to make.
EXAMPLES = {
    "config/datasets/digits.yaml",
    "config/machines/mine.yaml",
    "config/models/nets.py",
    "config/models/nets/wide.py",
    "config/programs/gpt.yaml",
    "config/studies/first.yaml",
    "config/studies/mine.yaml",
    "train/loaders/my_loader.py",
}
# Files of other projects, by the names that these have for them.
OF_OTHERS = {
    "image_classification/tensorflow2/lars_optimizer.py",
    "imagenet/main.py",
    "runtime/comm/compressed.py",
    "script/__init__.py",
}
PAGES = sorted(
    page
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/measurements/*.md",
        "config/*.md",
        "bench/*.md",
        "results/*.md",
    )
    for page in ROOT.glob(pattern)
    if page.name != "CHANGELOG.md"  # it tells of files that went
)
SOURCES = sorted(
    [*registry.PACKAGE.rglob("*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/*.py")]
)
RULES = [
    ROOT / "Snakefile",
    ROOT / "workflow/Snakefile",
    *sorted(ROOT.glob("workflow/rules/*.smk")),
]


def docstrings(source: Path) -> Iterator[str]:
    """Yield the docstrings of a file: its own, and those of its classes and functions."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def missing(text: str, beside: Path) -> list[str]:
    """Return the paths in a text that lead nowhere, from none of the places where a path may
    begin.
    """
    named = (
        {name for name in PATH.findall(text) if not name.startswith(NOT_OURS)}
        - EXAMPLES
        - OF_OTHERS
    )
    return sorted(
        name
        for name in named
        if not any((start / name).exists() for start in (*BEGINNINGS, beside, beside.parent))
    )


def test_a_path_that_leads_nowhere_is_found() -> None:
    text = (
        "`plan/bill.py`, [here](docs/gone.md), results/<study>/x.csv, {name}/y.py, core/nothing.py"
    )
    assert missing(text, ROOT) == ["core/nothing.py", "docs/gone.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8"), page.parent) == []


def test_files_that_docstrings_name_are_there() -> None:
    lost = {
        str(source.relative_to(ROOT)): missing(" ".join(docstrings(source)), source.parent)
        for source in SOURCES
    }
    assert {source: names for source, names in lost.items() if names} == {}


def test_files_that_comments_of_rules_name_are_there() -> None:
    lost = {rules.name: missing(rules.read_text(encoding="utf-8"), rules.parent) for rules in RULES}
    assert {name: paths for name, paths in lost.items() if paths} == {}
