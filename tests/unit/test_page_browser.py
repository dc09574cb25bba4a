"""The page in a real browser: nothing complains, tables sort and filter, it fits a phone, no study gets a script in.

Needs Chromium (Debian's `chromium`); without it these tests are skipped.
"""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.browser import CHROMIUM, Browser
from tests.conftest import ROOT
from tests.unit.pages import EVIL, make

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
AXE = ROOT / "envs/axe.txt"
COLUMN = "[...document.querySelectorAll('#t-runs tbody tr:not([hidden])')].map(row => row.cells[{}].textContent.trim())"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_and_paper_and_nothing_complains(browser: Browser, page: Path, dark: bool, media: str) -> None:
    width = 390 if media == "screen" else 717  # A4 without Chromium's margins
    browser.open(page, width=width, height=844, dark=dark, media=media)
    assert browser.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # On paper nothing can be clicked, but names of runs are still there.
    assert browser.evaluate("document.querySelector('#t-losses tbody a').getBoundingClientRect().width") > 0
    assert browser.evaluate("getComputedStyle(document.body).color") == (
        "rgb(230, 233, 238)"
        if dark and media == "screen"
        else "rgb(27, 31, 36)"
        if media == "screen"
        else "rgb(0, 0, 0)"
    )


def test_sentences_that_are_folded_on_a_screen_are_on_paper(browser: Browser, tmp_path: Path) -> None:
    page = make(tmp_path)
    sentence = "document.querySelector('.said details li')"
    page.write_text(
        page.read_text().replace("</h2>", "</h2><ul class='said'><li>a<details><summary>1 more</summary>"
                                 "<ul><li>folded</li></ul></details></li></ul>", 1)
    )  # fmt: skip
    for media, seen in (("screen", False), ("print", True)):
        browser.open(page, media=media)
        assert browser.evaluate(f"{sentence}.checkVisibility({{contentVisibilityAuto: true}})") is seen


def test_tables_sort_and_filter_by_keyboard_too(browser: Browser, page: Path) -> None:
    browser.open(page)
    head = "document.querySelectorAll('#t-runs th')[{}]"
    names = browser.evaluate("[...document.querySelectorAll('#t-runs th')].map(one => one.textContent)")
    framework, repeat = names.index("framework"), names.index("repeat")
    browser.evaluate(f"{head.format(repeat)}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.evaluate(COLUMN.format(repeat)) == ["1", "1", "2", "2"]
    browser.press("Enter", 13)
    assert browser.evaluate(COLUMN.format(repeat)) == ["2", "2", "1", "1"]
    assert browser.evaluate(f"{head.format(repeat)}.getAttribute('aria-sort')") == "descending"
    assert browser.evaluate(COLUMN.format(framework)) == ["ddp", "horovod"] * 2  # equals keep their order
    field = "document.querySelector('input[data-table=t-runs]')"
    browser.evaluate(f"{field}.value = 'HOROVOD r2'; {field}.dispatchEvent(new Event('input'))")
    assert browser.evaluate(COLUMN.format(framework)) == ["horovod"]
    assert browser.evaluate("document.querySelector('output').textContent") == "1 of 4 rows"
    # A link to a run that the filter hides shows it.
    browser.evaluate(
        "location.hash = document.querySelector('#t-runs tr[hidden]').id; new Promise(requestAnimationFrame)"
    )
    assert len(browser.evaluate(COLUMN.format(framework))) == 4
    # So does the same link when it is clicked again.
    browser.evaluate(f"{field}.value = 'nothing'; {field}.dispatchEvent(new Event('input'))")
    assert browser.evaluate(COLUMN.format(framework)) == []
    browser.evaluate(
        "document.querySelector(`a[href='${location.hash}']`).click(); new Promise(done => setTimeout(done, 50))"
    )
    assert len(browser.evaluate(COLUMN.format(framework))) == 4
    assert browser.complaints == []


def test_a_figure_is_enlarged_and_put_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    wide = "document.querySelector('.picture svg').getBoundingClientRect().width"
    before = browser.evaluate(wide)
    browser.evaluate("document.querySelector('button.zoom').click()")
    assert browser.evaluate(wide) > 2 * before
    browser.press("Escape", 27)
    assert browser.evaluate("document.querySelector('dialog').open") is False
    assert browser.evaluate("new Promise(done => setTimeout(done, 50)).then(() => " + wide + ")") == before
    assert browser.complaints == []


def test_no_study_gets_a_script_into_it(browser: Browser, tmp_path: Path) -> None:
    page = make(tmp_path, title=EVIL)
    browser.open(page)
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.complaints == []
    assert browser.evaluate("document.querySelector('h1').textContent") == EVIL
    # Were something to slip through, the page's policy would stop it.
    text = page.read_text().replace("<main>", "<main><script>window.hacked=1</script><p onclick='1'>", 1)
    (page.parent / "slipped.html").write_text(text)
    browser.open(page.parent / "slipped.html")
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert "Content Security Policy" in " ".join(browser.complaints)


def _fetch(wheels: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--timeout", "10", "--retries", "1"]
    asked = subprocess.run(
        [*pip, "download", "--no-deps", "--require-hashes", "-d", wheels, "-r", AXE],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "HASHES" not in asked.stderr, asked.stderr  # another file than the one that is pinned
    if asked.returncode:
        pytest.skip(f"axe-core cannot be fetched here: {asked.stderr.strip().splitlines()[-1:]}")


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's script, fetched once into the cache of tests; its pin and digest are in envs/axe.txt."""
    pin = AXE.read_text().splitlines()[-1].split()[0]
    wheels = Path.home() / ".cache/ddlbench" / pin.replace("==", "-")
    wheels.mkdir(parents=True, exist_ok=True)
    with FileLock(wheels / "lock"):
        if not [*wheels.glob("*.whl")]:
            _fetch(wheels)
        (found,) = wheels.glob("*.whl")
    with zipfile.ZipFile(found) as wheel:
        return wheel.read("axe_playwright_python/axe.min.js").decode()


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(browser: Browser, page: Path, axe: str, dark: bool) -> None:
    browser.open(page, dark=dark)
    browser.evaluate(f"{axe};0")
    found = "axe.run().then(all => all.violations.map(one => [one.id, one.impact, one.nodes[0].html]))"
    assert browser.evaluate(found) == []
    # It would find something.
    browser.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button><img src=x>')")
    assert [id for id, *_ in browser.evaluate(found)] == ["button-name", "image-alt"]
