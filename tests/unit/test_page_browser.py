"""The page in a real browser: nothing complains, tables sort and filter, it fits a phone, no study
gets a script in.

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
COLUMN = (
    "[...document.querySelectorAll('#t-runs tbody tr:not([hidden])')].map(row =>"
    " row.cells[{}].textContent.trim())"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.more)])
def test_it_fits_a_phone_and_paper_and_nothing_complains(
    browser: Browser, page: Path, dark: bool, media: str
) -> None:
    width = 390 if media == "screen" else 717  # A4 without Chromium's margins
    browser.open(page, width=width, height=844, dark=dark, media=media)
    assert browser.complaints == []
    tables = "details.table" if media == "print" else "nothing"  # which print across
    assert (
        browser.evaluate(
            "Math.max(...[...document.querySelectorAll('main > *')].filter(one =>"
            f" !one.matches('{tables}')).map(one => one.getBoundingClientRect().left"
            " + one.scrollWidth))"
        )
        <= width
    )
    if media == "screen":
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # On paper nothing can be clicked, but names of runs are still there.
    assert (
        browser.evaluate(
            "document.querySelector('#t-losses tbody a').getBoundingClientRect().width"
        )
        > 0
    )
    assert browser.evaluate("getComputedStyle(document.body).color") == (
        "rgb(230, 233, 238)"
        if dark and media == "screen"
        else "rgb(27, 31, 36)"
        if media == "screen"
        else "rgb(0, 0, 0)"
    )


def test_paper_breaks_words_between_their_parts_only(browser: Browser, page: Path) -> None:
    """Each word of each table, up to a hyphen or a place where the page lets it break, is on one
    line; wide tables print across.
    """
    browser.open(page, width=1040, media="print")
    broken = """[...document.querySelectorAll('details.table td, details.table th')].flatMap(cell => {
        const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
        for (let node = walk.nextNode(); node; node = walk.nextNode())
          for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(one => one.top)).size > 1) found.push(word[0]);
          }
        return found; })"""
    assert browser.evaluate(broken) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1040


def test_a_link_opens_what_is_folded_and_paper_shows_it(browser: Browser, page: Path) -> None:
    row = "document.querySelector('#t-runs tbody tr')"
    seen = f"{row}.checkVisibility({{contentVisibilityAuto: true}})"
    browser.open(page)
    assert browser.evaluate(seen) is False
    browser.evaluate(f"location.hash = {row}.id; new Promise(requestAnimationFrame)")
    assert browser.evaluate(seen) is True
    browser.open(page, media="print")
    assert browser.evaluate(seen) is True


def test_numbers_stand_under_their_headings_and_paper_has_no_claims_that_cannot_be_judged(
    browser: Browser, page: Path
) -> None:
    aligned = (
        "[...document.querySelectorAll('#t-losses th')].map((head, n) =>"
        " [head, document.querySelector('#t-losses tbody tr').cells[n]])"
        ".filter(([, cell]) => cell.className === 'n').map(([head]) => getComputedStyle({}).textAlign)"
    )
    wanted = "getComputedStyle(document.querySelector('#not-testable')).display"
    for media, head, shown in (
        ("screen", "head.querySelector('button')", True),
        ("print", "head", False),
    ):
        browser.open(page, media=media)
        assert {*browser.evaluate(aligned.format(head))} == {"right"}
        assert (browser.evaluate(wanted) != "none") is shown


def test_the_answer_is_on_the_first_screen_and_leaves_no_column_empty(
    browser: Browser, page: Path
) -> None:
    for width in (700, 1000, 1500):
        browser.open(page, width=width)
        ends = browser.evaluate(
            "[...document.querySelectorAll('.ask')].map(one => [one.getBoundingClientRect().right, "
            "one.querySelector('.dots').getBoundingClientRect().right])"
        )
        assert ends and all(abs(part - figure) < 2 for part, figure in ends)
    browser.open(page, width=390, height=844)
    small = "document.querySelector('.dots').getBoundingClientRect()"
    assert browser.evaluate(f"{small}.top") < 844 and browser.evaluate(f"{small}.right") <= 390
    apart = (
        "[...document.querySelectorAll('.dots tfoot svg')].every(svg => [...svg.children].map(text"
        " => text"
    )
    apart += (
        ".getBoundingClientRect()).filter(at => at.width).every((at, n, all) => !n || all[n -"
        " 1].right < at.left))"
    )
    assert browser.evaluate(apart) is True


OPEN = "document.querySelectorAll('details').forEach((part) => { part.open = true; })"


def test_tables_sort_and_filter_by_keyboard_too(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate(OPEN)
    head = "document.querySelectorAll('#t-runs th')[{}]"
    names = browser.evaluate(
        "[...document.querySelectorAll('#t-runs th')].map(one => one.textContent)"
    )
    framework, repeat = names.index("framework"), names.index("repeat")
    browser.evaluate(f"{head.format(repeat)}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.evaluate(COLUMN.format(repeat)) == ["1", "1", "2", "2"]
    browser.press("Enter", 13)
    assert browser.evaluate(COLUMN.format(repeat)) == ["2", "2", "1", "1"]
    assert browser.evaluate(f"{head.format(repeat)}.getAttribute('aria-sort')") == "descending"
    assert (
        browser.evaluate(COLUMN.format(framework)) == ["ddp", "horovod"] * 2
    )  # equals keep their order
    field = "document.querySelector('input[data-table=t-runs]')"
    browser.evaluate(f"{field}.value = 'HOROVOD r2'; {field}.dispatchEvent(new Event('input'))")
    assert browser.evaluate(COLUMN.format(framework)) == ["horovod"]
    assert (
        browser.evaluate("document.querySelector('output[data-of=t-runs]').textContent")
        == "1 of 4 rows"
    )
    # A link to a run that the filter hides shows it.
    browser.evaluate(
        "location.hash = document.querySelector('#t-runs tr[hidden]').id; new"
        " Promise(requestAnimationFrame)"
    )
    assert len(browser.evaluate(COLUMN.format(framework))) == 4
    # So does the same link when it is clicked again.
    browser.evaluate(f"{field}.value = 'nothing'; {field}.dispatchEvent(new Event('input'))")
    assert browser.evaluate(COLUMN.format(framework)) == []
    browser.evaluate(
        "document.querySelector(`a[href='${location.hash}']`).click(); new Promise(done =>"
        " setTimeout(done, 50))"
    )
    assert len(browser.evaluate(COLUMN.format(framework))) == 4
    assert browser.complaints == []


def test_a_figure_is_enlarged_and_put_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    wide = "document.querySelector('.picture img').getBoundingClientRect().width"
    before = browser.evaluate(wide)
    browser.evaluate("document.querySelector('button.zoom').click()")
    assert browser.evaluate(wide) > 2 * before
    browser.press("Escape", 27)
    assert browser.evaluate("document.querySelector('dialog').open") is False
    assert (
        browser.evaluate("new Promise(done => setTimeout(done, 50)).then(() => " + wide + ")")
        == before
    )
    assert browser.complaints == []


def test_a_figures_picture_is_drawn_and_can_be_saved(browser: Browser, page: Path) -> None:
    browser.open(page)
    of = "document.querySelector('.picture img')"
    assert browser.evaluate(
        f"{of}.decode().then(() => [{of}.naturalWidth, {of}.naturalHeight])"
    ) == [133, 67]
    link = browser.evaluate("(one => [one.download, one.href])(document.querySelector('a.same'))")
    assert link == ["one.svg", browser.evaluate(f"{of}.src")]
    assert browser.complaints == []


def test_series_can_be_explored(browser: Browser, page: Path) -> None:
    browser.open(page)
    box = "document.getElementById('explore')"
    marks = f"[...{box}.querySelectorAll('circle')].map(one => one.getAttribute('aria-label'))"
    change = "one.dispatchEvent(new Event('input', {bubbles: true}))"
    names = browser.evaluate(marks)
    assert [name.split(", ")[0] for name in names] == ["ddp and native", "horovod and native"]
    texts = f"[...{box}.querySelectorAll('svg text[text-anchor=end]')].map(one => one.textContent)"
    ticks = [float(text.replace(",", "")) for text in browser.evaluate(texts)]
    assert 3 <= len(ticks) <= 6
    assert ticks == pytest.approx([n * ticks[1] for n in range(len(ticks))])
    assert f"{ticks[1]:.0e}"[0] in "125"  # round numbers
    browser.evaluate(f"{box}.querySelector('circle').focus()")  # as by Tab
    assert browser.evaluate(f"{box}.querySelector('output').textContent") == names[0]
    for name in ("relative", "log"):
        browser.evaluate(
            f"(one => {{ one.click(); {change}; }})({box}.querySelector('[name={name}]'))"
        )
    assert browser.evaluate(marks)[0].startswith("ddp and native, 2 workers: 1")
    browser.evaluate(f"(one => {{ one.click(); {change}; }})({box}.querySelector('[data-series]'))")
    assert len(browser.evaluate(marks)) == 1
    browser.evaluate(
        f"(one => {{ one.value = 'speed'; {change}; }})({box}.querySelector('select'))"
    )
    assert browser.evaluate(marks) == ["horovod and native, 2 workers: 1"]
    assert browser.complaints == []


def test_no_study_gets_a_script_into_it(browser: Browser, tmp_path: Path) -> None:
    page = make(tmp_path, title=EVIL)
    browser.open(page)
    assert (
        browser.evaluate("document.querySelector('.picture img').decode().then(() => 'drawn')")
        == "drawn"
    )
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.complaints == []
    assert browser.evaluate("document.querySelector('h1').textContent") == EVIL
    # Were something to slip through, the page's policy would stop it.
    text = page.read_text().replace(
        "<main>", "<main><script>window.hacked=1</script><p onclick='1'>", 1
    )
    (page.parent / "slipped.html").write_text(text)
    browser.open(page.parent / "slipped.html")
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert "Content Security Policy" in " ".join(browser.complaints)


def _fetch(wheels: Path) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--timeout",
        "10",
        "--retries",
        "1",
    ]
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
    """axe-core's script, fetched once into the cache of tests; its pin and digest are in
    envs/axe.txt.
    """
    pin = AXE.read_text().splitlines()[-1].split()[0]
    wheels = Path.home() / ".cache/ddlbench" / pin.replace("==", "-")
    wheels.mkdir(parents=True, exist_ok=True)
    with FileLock(wheels / "lock"):
        if not [*wheels.glob("*.whl")]:
            _fetch(wheels)
        (found,) = wheels.glob("*.whl")
    with zipfile.ZipFile(found) as wheel:
        return wheel.read("axe_playwright_python/axe.min.js").decode()


@pytest.mark.more
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(browser: Browser, page: Path, axe: str, dark: bool) -> None:
    browser.open(page, dark=dark)
    browser.evaluate(f"{OPEN}; {axe};0")
    found = (
        "axe.run().then(all => all.violations.map(one => [one.id, one.impact, one.nodes[0].html]))"
    )
    assert browser.evaluate(found) == []
    # It would find something.
    browser.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button><img"
        " src=x>')"
    )
    assert [id for id, *_ in browser.evaluate(found)] == ["button-name", "image-alt"]
