"""The page: its sentences are verdicts and intervals, nothing from a study is markup, every link
leads somewhere.
"""

import base64
import html
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis import frameworks, kernels
from ddlbench.analysis.tables import frame
from ddlbench.core import registry
from ddlbench.core.files import sha256
from ddlbench.show.page import about, explore, page_tables, picture, rows, spent, write

from tests.builders.results import bill_row, ran
from tests.facts import missing
from tests.unit.pages import EVIL, make


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `make` made a page."""
    return make(tmp_path_factory.mktemp("page")).parents[3]


@pytest.fixture
def page(made: Path, tmp_path: Path) -> Path:
    """A page in a copy of all that it was made from: a test may change it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "results/test/local/index.html"


def test_the_bill_says_what_it_does_not_know() -> None:
    known = bill_row(state="done", gpu_hours=2.0, energy_kwh=1.5, energy_measured=True, price=4.0)
    tiles = spent.tiles([known, bill_row(state="failed")], "GPUs", {})
    assert [much for _, much, _ in tiles] == [
        *("1 of 2", "2", spent.NOT_KNOWN, spent.NOT_KNOWN, "1.5", "4")
    ]
    assert not any("?" in note for _, _, note in tiles)


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("overlapping-runs deepspeed 2.13.0+cpu", "overlapping-runs deepspeed 2.13.0+cpu"),
        ("node0007,node0008,n0009", "node0007,|node0008,|n0009"),
        ("x" * 50, f"{'x' * 20}|{'x' * 20}|{'x' * 10}"),
        ("<b> & 0.1234567890123", "&lt;b&gt; &amp; 0.1234567890123"),
    ],
)
def test_long_words_may_break_between_their_parts(text: str, broken: str) -> None:
    assert write.breakable(text) == broken.replace("|", "<wbr>")


def embedded(text: str) -> list[dict[str, str | None]]:
    """The attributes of each image of a page."""
    images: list[dict[str, str | None]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: (
        images.append(dict(attributes)) if tag == "img" else None
    )  # type: ignore[method-assign]
    parser.feed(text)
    return images


def test_a_picture_is_an_image_of_its_file_with_its_caption(page: Path) -> None:
    svg = page.parent / "figures/one.svg"
    (image,) = embedded(page.read_text())
    assert (
        base64.b64decode((image["src"] or "").removeprefix("data:image/svg+xml;base64,"))
        == svg.read_bytes()
    )
    assert (image["alt"] or "").split(". ")[-2:] == ["A caption", "Made up: a test"]
    assert (image["width"], image["height"], image["class"]) == (
        "133",
        "67",
        "",
    )  # pixels of 100 and 50 points
    svg.write_text(svg.read_text().replace("100pt", "400pt"))
    (image,) = embedded(picture.image(svg, EVIL))
    assert (image["width"], image["class"], image["alt"]) == ("533", "wide", EVIL)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text("<html/>")
    with pytest.raises(ValueError, match=r"a\.svg"):
        picture.image(tmp_path / "a.svg", "A")


def test_a_page_is_one_file_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", text)
    addresses = [a for a in re.findall(r'href="([^"]*)"', text) if not a.startswith("data:")]
    assert len(addresses) > 20
    ids = set(re.findall(r'\bid="([^"]*)"', text))
    for address in addresses:
        if address.startswith("#"):
            assert address[1:] in ids, address
        else:
            assert (page.parent / address).exists(), address
    for made in ("record", "steps"):  # of each of the four runs
        assert text.count(f">{made}</a>") == 4
    assert text.count("download=") == 3
    assert "script-src &#39;sha256-" in text


def part(text: str, name: str) -> str:
    """A part of the page that is folded."""
    return text.split(f'part" id="{name}"')[1].split('<details class="')[0]


def test_each_section_has_its_data(page: Path) -> None:
    text = page.read_text()
    names = re.findall(r'<details class="[^"]*part" id="([^"]*)">', text)  # none of them is open
    assert {*names} >= {
        "runs",
        "comparisons",
        "losses",
        "verdicts",
        "planned",
        "nodes",
        "bill",
        "origin",
    }
    sections = {name: part(text, name) for name in names}
    # Plan against what it took: 90 s of 60 on 2 workers, for the three runs that a plan could tell.
    ((much, planned),) = re.findall(
        r"<dd>([\d.]+) <small>([^<]*they took[^<]*)</small>", sections["bill"]
    )
    assert much == "0.1" and missing(planned, 3, 0.15) == []
    # What a column is can be read without a pointer that hovers.
    assert re.search(r"<dt>images/s</dt><dd>[^<]+</dd>", sections["runs"])
    values = re.findall(r'data-v="([^"]*)"', sections["planned"])
    assert [float(value) for value in values] == [2, 1, 60, 90, 1.5] * 3
    assert sections["nodes"].count("<td>node") == 2
    # Claims that no run can judge stand apart: each table has its head, and one claim.
    assert sections["verdicts"].count("<tr>") == sections["not-testable"].count("<tr>") == 2
    assert missing(sections["preflight"], "64 MiB", "gloo", "20.0 ms") == []
    assert missing(sections["preflight"], "<td>warning</td><td>node1") == []
    # From a number back to the record: each row that rests on runs leads to theirs, and these to
    # the records.
    for table in ("comparisons", "losses", "planned"):
        for row in re.findall(r"<tr>(<td.*?)</tr>", sections[table], re.S):
            assert 'href="#run-' in row, row
    for name in ("runs.parquet", "losses.parquet", "one.csv"):
        assert f">{name}</a>" in sections["origin"]
        digest = sha256(next(page.parent.rglob(name)))
        assert digest in sections["origin"]


def test_what_models_cost_to_train_and_to_ask_is_on_the_page(page: Path, tmp_path: Path) -> None:
    assert 'id="t-inference"' not in page.read_text()  # of a study that asks no model
    asked = {"run": "asked-one", "model": "lenet", "batch": 4, "latency_p50_s": 0.0021, "n": None}
    frame("inference", [asked]).to_parquet(page.parent / "tables/inference.parquet")
    text = make(tmp_path, again=True).read_text()
    costs, inference = (part(text, name) for name in ("costs", "inference"))
    assert (
        costs.count("<tr>") == 3 and "<td>horovod</td>" in costs
    )  # one row per setting, none of the curve
    assert "node hours" in costs and "0.0021" in inference


def test_a_figure_says_how_many_of_its_runs_it_shows_and_names_those_that_have_a_row(
    page: Path,
) -> None:
    table = pd.DataFrame(
        {"run": ["a", "b", "c"], "status": ["success", "success", "failed"], "repeat": [1, 2, 1]}
    )
    figure = about.PageFigure("one", "T", "efficiency", "", ("a", "b", "c", "d"))
    shown = write._figure(figure, table, {"a"}, page.parent)
    assert missing(shown["made"], "2 runs", "2 more", "2 repeats") == []
    assert shown["runs"] == ["a"]


def test_a_point_to_explore_has_its_measure_and_then_its_intervals_ends_from_below() -> None:
    (series,) = explore.series(frame("runs", [*ran(500.0), *ran(900.0, workers=4)]))
    assert [point["workers"] for point in series["points"]] == [2, 4]
    rates = [point["rate"] for point in series["points"]]
    assert [rate for rate, _, _ in rates] == pytest.approx([500.0, 900.0])
    assert all(low < rate < high for rate, low, high in rates)


def test_the_same_results_make_the_same_page(page: Path, tmp_path: Path) -> None:
    before = page.read_bytes()
    make(tmp_path, again=True)
    assert page.read_bytes() == before
    # What is written is whole, or not there.
    (page.parent / "tables/runs.parquet").unlink()
    with pytest.raises(OSError, match=r"runs\.parquet"):
        make(tmp_path, again=True)
    assert page.read_bytes() == before


def test_nothing_that_a_study_says_is_markup(tmp_path: Path) -> None:
    text = make(tmp_path, title=EVIL).read_text()
    assert EVIL not in text
    tags: list[tuple[str, list[str]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append((tag, [name for name, _ in attrs]))  # type: ignore[method-assign]
    parser.feed(text)
    assert [tag for tag, _ in tags].count("script") == 1  # our own
    assert not {"iframe", "object"} & {tag for tag, _ in tags}
    assert all(
        (image["src"] or "").startswith("data:image/svg+xml;base64,") for image in embedded(text)
    )
    assert [
        name for _, names in tags for name in names if name.startswith("on") or name == "style"
    ] == []


def test_what_frameworks_do_is_on_the_page(page: Path) -> None:
    text = html.unescape(page.read_text().replace("<wbr>", ""))
    for row in frameworks.rows():
        assert (
            f"<td>{row['framework']}</td><td>{row['splits']}</td><td>{row['communicates']}</td>"
            in text
        )
        assert f"<td>{row['package']}</td><td>{row['version']}</td>" in text


def test_shares_of_kernels_stand_beside_those_of_their_figures_reference() -> None:
    shares = {f"{name}_percent": 20.0 for name in kernels.CLASSES}
    settings = {"model": "resnet50", "framework": "ddp", "loader": "torchvision", "workers": 4}
    table = pd.DataFrame([{"run": "a", "on": "device", "kernel_s": 1.0} | settings | shares])
    figure = about.PageFigure(
        "one", "", "kernel-shares", "", (), "config/references/aach2023-kernels.csv"
    )
    study = about.PageStudy("test", "", "local", "cuda", "GPU", "", (figure,), (), {})
    (row,) = page_tables._beside(study, table).to_dict("records")
    assert (row["communication_percent"], row["published_communication_percent"]) == (20, 22.4)
    alone = page_tables._beside(replace(study, figures=()), table)
    assert len(alone) == 1 and not [name for name in alone if name.startswith("published")]
    assert page_tables._beside(study, table[:0]).empty


def test_a_study_of_which_no_run_ended_well_has_a_page(tmp_path: Path) -> None:
    failed = tmp_path / "results/runs/one"
    (failed / "failed").mkdir(parents=True)
    (failed / "failed/failure.json").write_text('{"cause": "out of memory"}')
    text = make(tmp_path, figures=False, records=[failed]).read_text()
    assert 'class="ask"' not in text
    assert "<td>failed-runs</td>" in part(text, "audit") and "0 errors, 1 warning, " in part(
        text, "audit"
    )
    assert missing(text, "1 failed run", "out of memory", 'href="#failures"') == []
    assert 'id="t-failures"' in text and 'id="figures"' not in text and "<figure>" not in text


def test_values_of_a_run_are_in_the_unit_of_their_head(tmp_path: Path) -> None:
    run = {
        "run": "a",
        "status": "success",
        "energy_j": 2500.0,
        "final_top1": 0.75,
        "peak_resident_bytes": 3.0e9,
    }
    made = rows.runs(pd.DataFrame([run]), tmp_path, {})
    ((_, cells),) = made.rows
    shown = {head: cell.value for (head, _), cell in zip(made.columns, cells, strict=True)}
    assert (shown["energy [kJ]"], shown["top-1 [%]"], shown["memory [GB]"]) == (2.5, 75.0, 3.0)


def test_of_a_program_no_time_of_an_epoch_is_shown(tmp_path: Path) -> None:
    """All that was read of it counts as one epoch."""
    training = {"run": "a", "status": "success", "dataset": "mnist5k", "epoch_s": 2.5}
    program = training | {"run": "b", "dataset": registry.OWN}
    made = rows.runs(pd.DataFrame([training, program]), tmp_path, {})
    place = [head for head, _ in made.columns].index("epoch [s]")
    assert [cells[place].value for _, cells in made.rows] == [2.5, None]
    made = rows.runs(pd.DataFrame([program]), tmp_path, {})
    assert "epoch [s]" not in [head for head, _ in made.columns]


def test_what_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    table = pd.DataFrame({"run": [f"run {n}" for n in range(1500)], "machine": "here"})
    made = rows.plain("a", "A", "Means.", table, {"run": "The run.", "machine": "Of both."}, set())
    assert len(made.rows) == 200
    assert missing(made.means, "first 200", 1500, "machine here") == []
    made = rows.runs(table.assign(status="success"), tmp_path, {})
    assert len(made.rows) == 200
    assert missing(made.means, "first 200", 1500) == []
    made = rows.runs(table.head(1000).assign(status="success"), tmp_path, {})
    assert (len(made.rows), missing(made.means, "first")) == (1000, ["first"])
    names = [f"run-{n}" for n in range(150)]
    cell = rows.runs_cell(names, {*names})
    assert (cell.text, len(cell.links)) == ("150 runs", 12)
    assert cell.more.splitlines()[28:] == ["run-28", "run-29", "and 120 more"]
    assert rows.cell("a" * 2000).text == "a" * 2000
    assert rows.cell("a" * 5_000_000).text == "a" * 2000 + " ... (5000000 letters)"
