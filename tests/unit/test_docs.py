"""What the pages link to exists, sections included."""

import re
from pathlib import Path

import pytest
from ddlbench.core import registry

from tests.conftest import ROOT

MEASURED = Path("docs/measurements")
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/*.md", "docs/measurements/*.md", "config/*.md", "bench/*.md", "results/README.md")
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
    assert [str(page) for page in PAGES if page.parent == Path("docs") and f"]({page})" not in text] == []


def test_every_measurement_is_listed() -> None:
    text = (ROOT / MEASURED / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.parent == MEASURED and f"]({page.name})" not in text] == ["README.md"]


# "Faster" needs a verdict (`analysis/statistics.py`). Here stand the words that say so of sides without one.
SAYS_WHO_WINS = re.compile(
    r"\b(?:faster|fastest|quicker|quickest|outperforms?|wins?|winner|best framework|best loader"
    r"|(?:ddp|horovod|deepspeed|fsdp|dali|native) (?:is|are|runs) (?:better|slower))\b",
    re.I,
)


@pytest.mark.parametrize("name", registry.members("figures"))
def test_no_caption_says_who_is_faster(name: str) -> None:
    assert SAYS_WHO_WINS.findall(registry.docstring("figures", name)) == []


WITH_NUMBERS = [Path(name) for name in ("README.md", "docs/prediction.md", "bench/README.md")]
WITH_NUMBERS += [page for page in PAGES if page.parent == MEASURED]


@pytest.mark.parametrize("page", WITH_NUMBERS, ids=str)
def test_no_page_with_numbers_says_who_is_faster(page: Path) -> None:
    assert SAYS_WHO_WINS.findall((ROOT / page).read_text(encoding="utf-8")) == []


def test_such_words_are_found() -> None:
    said = "DDP is faster. Horovod wins; the fastest loader; native is slower than dali; the slowest rank is waited for"
    assert SAYS_WHO_WINS.findall(said) == ["faster", "wins", "fastest", "native is slower"]


# Snakemake takes every word behind --config up to the next option for a setting: a target there ends in a traceback.
TARGET_BEHIND_SETTINGS = re.compile(r"snakemake [^#`\n]*--config(?: \w+=(?:'[^']*'|[^\s`']+))+ +[a-z_]+(?=[\s`,.:]|$)")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_command_has_its_target_behind_its_settings(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        assert TARGET_BEHIND_SETTINGS.findall((ROOT / page).read_text(encoding="utf-8")) == []


def test_a_target_behind_settings_is_seen() -> None:
    assert TARGET_BEHIND_SETTINGS.search("`snakemake --config what_if='{a: 4}' what_if`")
    assert not TARGET_BEHIND_SETTINGS.search("`snakemake verdicts --config study=a machine=b` says")
    assert not TARGET_BEHIND_SETTINGS.search("snakemake --config study=mine -n   # what")
