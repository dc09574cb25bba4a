"""What the pages link to exists, sections included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/*.md", "config/*.md", "bench/*.md", "results/README.md")
    for path in ROOT.glob(pattern)
)


def anchors(page: Path) -> set[str]:
    """What GitHub calls the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, section = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not section or section in anchors(target), link


def test_the_first_pages_are_linked() -> None:
    """README leads to every other page of the docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [str(page) for page in PAGES if page.parts[0] == "docs" and f"]({page})" not in text]
    assert missing == []
