"""What the pages link to exists, sections included."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

MEASURED = Path("docs/measurements")
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/measurements/*.md",
        "config/*.md",
        "bench/*.md",
        "results/README.md",
    )
    for path in ROOT.glob(pattern)
)


def anchors_of(text: str) -> set[str]:
    """What GitHub calls the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", text, re.M)
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
        assert not section or section in anchors_of(target.read_text(encoding="utf-8")), link


def test_the_first_pages_are_linked() -> None:
    """README leads to every other page of the docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [
        str(page) for page in PAGES if page.parent == Path("docs") and f"]({page})" not in text
    ] == []


def test_the_site_leads_to_every_page() -> None:
    shown = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(shown) == sorted(
        {str(page) for page in PAGES if page.parent != MEASURED} | {f"{MEASURED}/README.md"}
    )


@pytest.mark.slow
def test_the_site_is_whole_and_asks_no_network() -> None:
    """`make docs`; it is strict about links between pages, not about those to other files."""
    folder = Path(os.environ.get("DDLBENCH_DOCS", Path.home() / ".cache/ddlbench/docs-venv"))
    if not (folder / "installed").exists():
        pytest.skip("mkdocs is not installed: make docs")
    subprocess.run(["make", "docs"], cwd=ROOT, check=True, timeout=600)
    for page in {*(ROOT / "site/html").rglob("*.html")} - {
        ROOT / "site/html/404.html"
    }:  # that is a server's
        for tag, link in re.findall(
            r'<(a|link|script|img)\b[^>]* (?:href|src)="([^"#]+)', page.read_text("utf-8")
        ):
            assert tag == "a" or not link.startswith(("http:", "https:", "//")), (page, link)
            assert re.match("https?:|mailto:|data:", link) or (page.parent / link).exists(), (
                page,
                link,
            )


def test_every_measurement_is_listed() -> None:
    text = (ROOT / MEASURED / "README.md").read_text(encoding="utf-8")
    assert [
        page.name for page in PAGES if page.parent == MEASURED and f"]({page.name})" not in text
    ] == ["README.md"]


# Snakemake takes every word behind --config up to the next option for a setting: a target there
# ends in a traceback.
TARGET_BEHIND_SETTINGS = re.compile(
    r"snakemake [^#`\n]*--config(?: \w+=(?:'[^']*'|[^\s`']+))+ +[a-z_]+(?=[\s`,.:]|$)"
)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_command_has_its_target_behind_its_settings(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        assert TARGET_BEHIND_SETTINGS.findall((ROOT / page).read_text(encoding="utf-8")) == []


def test_a_target_behind_settings_is_seen() -> None:
    assert TARGET_BEHIND_SETTINGS.search("`snakemake --config data='{sources: 4}' page`")
    assert not TARGET_BEHIND_SETTINGS.search("`snakemake verdicts --config study=a machine=b` says")
    assert not TARGET_BEHIND_SETTINGS.search("snakemake --config study=mine -n   # what")
