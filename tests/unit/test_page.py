"""The page: its sentences are verdicts and intervals, nothing from a study is markup, every link leads somewhere."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import comparisons, frameworks, kernels
from ddlbench.analysis.tables import frame
from ddlbench.audit import _findings
from ddlbench.core.files import sha256
from ddlbench.core.plural import rounded
from ddlbench.plan.row import Row
from ddlbench.show.figures import _hover
from ddlbench.show.page import about, answer, picture, rows, spent, tables, write

from tests.unit.pages import EVIL, EVIL_SVG, make

NOTHING = {
    "runs": frame("runs", []),
    "losses": pd.DataFrame(),
    "costs": frame("costs", []),
    "verdicts": pd.DataFrame(columns=["verdict", "claim", "source", "place", "hardware", "runs"]),
}


def compared(**values: Any) -> pd.DataFrame:
    row: dict[str, Any] = dict.fromkeys((c.name for c in comparisons.COLUMNS), "x")
    row |= {"compared": "framework", "left": "ddp", "right": "horovod", "with": "native", "model": "resnet50"}
    row |= {"workers": 64, "global_batch": 4096, "epochs": 2, "ratio": 1.07, "low": 1.06, "high": 1.09, "n": 3}
    row |= {"verdict": "faster", "more_repeats": None, "more_worker_hours": None, "runs": "a b"}
    return pd.DataFrame([row | values])


def said(monkeypatch: pytest.MonkeyPatch, audit: tuple[dict[str, str], ...] = (), **values: Any) -> answer.Answer:
    monkeypatch.setattr(answer, "_scaling", lambda *_: iter(()))
    return answer.answer(NOTHING | {"comparisons": compared(**values)}, audit, "GPUs")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "With native on 64 GPUs, ddp is 6 to 9 % faster than horovod."),
        ({"low": 4.0, "high": 5.2}, "With native on 64 GPUs, ddp is 4 to 5.2 times as fast as horovod."),
        (
            {"verdict": "slower", "low": 0.91, "high": 0.94},
            "With native on 64 GPUs, ddp is 6 to 9 % slower than horovod.",
        ),
        (
            {"verdict": "cannot tell", "low": 0.9, "high": 1.2, "more_repeats": 4, "more_worker_hours": 30.0},
            "With native on 64 GPUs, ddp and horovod cannot be told apart: ddp is 0.9 to 1.2 times as fast as horovod. "
            "4 more repeats would probably tell, about 30 hours of GPUs.",
        ),
        (
            {"verdict": "cannot tell", "low": 0.9, "high": 1.2, "more_repeats": 7988, "more_worker_hours": 89.0},
            "With native on 64 GPUs, ddp and horovod cannot be told apart: ddp is 0.9 to 1.2 times as fast as horovod. "
            "Not even 100 more repeats would tell.",
        ),
        ({"workers": 1}, "With native on 1 GPU, ddp is 6 to 9 % faster than horovod."),
    ],
)
def test_a_sentence_is_a_verdict_with_its_interval(
    values: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = said(monkeypatch, **values).said
    assert one.words == words
    assert one.sure == "95 % interval, 3 pairs of runs"
    assert one.runs == ("a", "b")


def test_sentences_name_the_settings_that_differ_and_those_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_scaling", lambda *_: iter(()))
    settings = [{"model": model, "recipe": recipe} for model in ("lenet", "vit") for recipe in ("a", "b", "c", "d")]
    table = pd.concat([compared(**one) for one in settings])
    found = answer.answer(NOTHING | {"comparisons": table}, (), "GPUs")
    begins = {one.words.split(":")[0] for one in found.said}
    assert begins == {"lenet, a", "lenet, b", "lenet, c", "lenet, d", "vit, a", "vit, b"}
    assert found.said[0].words == "lenet, a: with native on 64 GPUs, ddp is 6 to 9 % faster than horovod."
    assert found.open == ("2 of 8 comparisons of frameworks with repeats are told in the tables below only.",)


def test_sentences_name_bandwidths_and_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_scaling", lambda *_: iter(()))
    table = pd.concat([compared(bandwidth_mbit=mbit, epochs=n) for mbit in (10.0, None) for n in (2, 90)])
    found = answer.answer(NOTHING | {"comparisons": table}, (), "GPUs")
    begins = [one.words.split(":")[0] for one in found.said]
    assert begins == ["2 epochs, 10 Mbit/s", "90 epochs, 10 Mbit/s", "2 epochs", "90 epochs"]


def test_one_pair_of_runs_makes_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(monkeypatch, n=1, low=None, high=None, verdict="cannot tell")
    assert found.said == ()
    assert found.open[0].startswith("1 of 1 comparisons of frameworks rest on one pair of runs")


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.62, 0.76, True), (0.3, 0.95, True), (0.5, 1.4, True), (0.11, 3.66, False), (0.33, 1.63, False)],
)
def test_an_efficiency_that_answers_nothing_is_left_open(
    low: float, high: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row: dict[str, Any] = dict.fromkeys(answer.SERIES, "x") | {"framework": "ddp", "loader": "native"}
    row |= {"workers": 2, "ref_workers": 1, "repeats": 2, "efficiency_low": low, "efficiency_high": high}
    monkeypatch.setattr(answer, "scaling", lambda *_: pd.DataFrame([row]))
    monkeypatch.setattr(answer, "_runs_of", lambda *_: ["a", "b"])
    found = answer.answer(NOTHING | {"comparisons": compared().head(0)}, (), "workers")
    if told:
        assert found.said[0].words.startswith(f"ddp with native keeps {rounded(100 * low, 2)} to ")
    else:
        assert found.said == ()
        assert found.open[0].startswith("1 of 1 series over workers have intervals of efficiency too wide")


def test_a_loader_that_reads_two_forms_is_named_with_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = dict.fromkeys(answer.SERIES, "x") | {"framework": "ddp", "loader": "native", "workers": 2}
    row |= {"ref_workers": 1, "repeats": 3, "efficiency_low": 0.6, "efficiency_high": 0.7}
    made = pd.DataFrame([row | {"form": form} for form in ("raw", "webdataset")])
    monkeypatch.setattr(answer, "scaling", lambda *_: made)
    monkeypatch.setattr(answer, "_runs_of", lambda *_: ["a", "b"])
    found = answer.answer(NOTHING | {"comparisons": compared().head(0)}, (), "workers")
    begins = [one.words.split(" keeps")[0] for one in found.said]
    assert begins == ["ddp with native (raw)", "ddp with native (webdataset)"]


def test_a_sentence_about_runs_that_cannot_be_compared_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {column.name: "" for column in _findings.COLUMNS}
    error = row | {"rule": "same-precision", "severity": "error", "runs": "b; c", "evidence": "fp16 and fp32"}
    found = said(monkeypatch, (error,))
    assert found.said[0].unfair == ("same-precision",)
    assert found.findings == (("same-precision", (error,)),)
    assert said(monkeypatch, (error | {"severity": "warning"},)).said[0].unfair == ()
    assert said(monkeypatch, (error | {"runs": "c"},)).said[0].unfair == ()


def test_the_bill_says_what_it_does_not_know() -> None:
    fields: dict[str, Any] = dict.fromkeys(Row.__dataclass_fields__) | {"rule": "train"}
    known = Row(
        **fields | {"state": "done", "gpu_hours": 2.0, "energy_kwh": 1.5, "energy_measured": True, "price": 4.0}
    )
    tiles = {what: much for what, much, _ in spent.tiles([known, Row(**fields | {"state": "failed"})], "GPUs", {})}
    assert tiles == {
        "runs done": "1 of 2",
        "GPU hours used": "2",
        "GPU hours planned": "?",
        "GPU hours to come": "?",
        "energy [kWh]": "1.5",
        "price [None]": "4",
    }


def test_only_shapes_of_a_picture_come_into_the_page(tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text(EVIL_SVG)
    made = str(picture.inline(tmp_path / "a.svg", "f1", EVIL))
    assert re.findall(r"<(\w+)", made) == ["svg", "path", "use", "title"]
    assert "alert" not in made.replace(made[made.index("aria-label") : made.index("viewBox")], "").replace(
        "&lt;script&gt;alert(3)&lt;/script&gt;", ""
    )
    assert 'id="f1-m1"' in made and 'href="#f1-m1"' in made and 'fill="#ff0000"' in made


def test_a_page_is_one_file_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    page = make(tmp_path)
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


def test_each_section_has_its_data(tmp_path: Path) -> None:
    page = make(tmp_path)
    text = page.read_text()
    sections = {one[0]: one[1] for one in re.findall(r'<h2 id="([^"]*)">(.*?)</section>', text, re.S)}
    assert sections.keys() >= {"answer", "runs", "comparisons", "losses", "verdicts", "planned", "nodes"}
    # Plan against what it took: 90 s of 60 on 2 workers, for the three runs that a plan could tell.
    assert "0.1 <small>for 3 of them, before any record; they took 0.15</small>" in sections["answer"]
    # What a column is can be read without a pointer that hovers.
    assert "<dt>images/s</dt><dd>Over all workers, warm-up cut.</dd>" in sections["runs"]
    planned = re.findall(r'data-v="([^"]*)"', sections["planned"])
    assert [float(value) for value in planned] == [2, 1, 60, 90, 1.5, 60 / 3600, 90 / 3600] * 3
    assert sections["nodes"].count("<td>node") == 2
    assert "all-reduce of 64 MiB by gloo: 20.0 ms" in sections["preflight"]
    # From a number back to the record: each row that rests on runs leads to theirs, and these to the records.
    for table in ("comparisons", "losses", "planned"):
        for row in re.findall(r"<tr>(<td.*?)</tr>", sections[table], re.S):
            assert 'href="#run-' in row, row
    for name in ("runs.parquet", "losses.parquet", "one.csv"):
        assert f">{name}</a>" in sections["origin"]
        digest = sha256(next(page.parent.rglob(name)))
        assert digest in sections["origin"]


def test_claims_that_no_run_can_judge_are_folded_away(tmp_path: Path) -> None:
    text = make(tmp_path).read_text()
    judged, other = (
        text[text.index(f'<h2 id="{name}"') :].split("</section>")[0] for name in ("verdicts", "not-testable")
    )
    assert "<details><summary>1 rows</summary>" in other.split("<p>")[0]
    assert judged.count("<tr>") == other.count("<tr>") == 2  # its head, and one claim
    said = text[text.index('<h2 id="answer"') : text.index("<h3>Audit")]
    assert "claims that sources make" not in said


def test_what_models_cost_to_train_and_to_ask_is_on_the_page(tmp_path: Path) -> None:
    page = make(tmp_path)
    assert 'id="t-inference"' not in page.read_text()  # of a study that asks no model
    asked = {"run": "asked-one", "model": "lenet", "batch": 4, "latency_p50_s": 0.0021, "n": None}
    frame("inference", [asked]).to_parquet(page.parent / "tables/inference.parquet")
    text = make(tmp_path, again=True).read_text()
    costs, inference = (
        text[text.index(f'<h2 id="{name}"') :].split("</section>")[0] for name in ("costs", "inference")
    )
    assert costs.count("<tr>") == 3 and "<td>horovod</td>" in costs  # one row per setting, none of the curve
    assert "node hours" in costs and "0.0021" in inference


def test_the_same_results_make_the_same_page(tmp_path: Path) -> None:
    page = make(tmp_path)
    before = page.read_bytes()
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
    assert not {"img", "iframe", "object"} & {tag for tag, _ in tags}
    assert [name for _, names in tags for name in names if name.startswith("on") or name == "style"] == []


def test_what_frameworks_do_is_on_the_page(tmp_path: Path) -> None:
    text = html.unescape(make(tmp_path).read_text())
    for row in frameworks.rows():
        assert f"<td>{row['framework']}</td><td>{row['splits']}</td><td>{row['communicates']}</td>" in text
        assert f"<td>{row['package']}</td><td>{row['version']}</td>" in text


def test_shares_of_kernels_stand_beside_those_of_their_figures_reference() -> None:
    shares = {f"{name}_percent": 20.0 for name in kernels.CLASSES}
    settings = {"model": "resnet50", "framework": "ddp", "loader": "torchvision", "workers": 4}
    table = pd.DataFrame([{"run": "a", "on": "device", "kernel_s": 1.0} | settings | shares])
    figure = about.Figure("one", "", "kernel-shares", "", (), "config/references/aach2023-kernels.csv")
    study = about.Study("test", "", "local", "cuda", "GPU", "", (figure,), (), {})
    (row,) = tables._beside(study, table).to_dict("records")
    assert (row["communication_percent"], row["published_communication_percent"]) == (20, 22.4)
    alone = tables._beside(replace(study, figures=()), table)
    assert len(alone) == 1 and not [name for name in alone if name.startswith("published")]
    assert tables._beside(study, table[:0]).empty


def test_no_figure_is_needed(tmp_path: Path) -> None:
    assert "<figure>" not in make(tmp_path, figures=False).read_text()


def test_a_study_of_which_no_run_ended_well_has_a_page(tmp_path: Path) -> None:
    failed = tmp_path / "results/runs/one"
    (failed / "failed").mkdir(parents=True)
    (failed / "failed/failure.json").write_text('{"cause": "out of memory"}')
    text = make(tmp_path, figures=False, records=[failed]).read_text()
    assert "No run has ended well yet." in text
    assert "failed-runs: 1" in text  # the audit's finding
    assert 'id="t-failures"' in text and 'id="figures"' not in text


def test_marks_say_their_values() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2, float("nan")], [10.0, 0.5, 1.0], marker="o", label="a <b>")
    axes.plot([1, 2], [3, 4], label="no marks")
    axes.bar([1], [7.0], label="bar")
    axes.set_xlabel("workers")
    axes.set_ylabel("images/s")
    marks = _hover.name(figure)
    assert marks == {
        "points-0": ["a <b>\nworkers: 1\nimages/s: 10", "a <b>\nworkers: 2\nimages/s: 0.5"],
        "bar-1": ["bar\nimages/s: 7"],
    }
    svg = '<g id="points-0"><defs/><use x="1"/><use x="2"/></g><g id="bar-1"><path/></g>'
    titled = _hover.titled(svg, marks)
    assert titled.count("<title>") == 3
    assert '<use x="2"><title>a &lt;b&gt;\nworkers: 2\nimages/s: 0.5</title></use>' in titled
    other = svg.replace('<use x="2"/>', "").replace("points-0", "points-9")
    assert _hover.titled(other, {"points-9": ["a", "b"]}) == other  # one mark for two points: nobody can tell which


def test_what_is_written_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make(tmp_path)
    before = page.read_bytes()
    (page.parent / "tables/runs.parquet").unlink()
    with pytest.raises(OSError, match=r"runs\.parquet"):
        make(tmp_path, again=True)
    assert page.read_bytes() == before
    assert write.FIRST[0] == "efficiency"


def test_a_long_table_is_cut_and_says_so() -> None:
    table = pd.DataFrame({"run": [f"run {n}" for n in range(1500)], "machine": "here"})
    made = rows.plain("a", "A", "Means.", table, {"run": "The run.", "machine": "Of both."}, set())
    assert len(made.rows) == 1000
    assert made.means == "Means. The first 1000 of 1500 rows. All rows: machine here."


def test_of_very_many_runs_the_first_are_shown(tmp_path: Path) -> None:
    table = pd.DataFrame({"run": [f"run-{n}" for n in range(1500)], "status": "success"})
    made = rows.runs(table, tmp_path, {})
    assert len(made.rows) == 1000
    assert made.means.endswith("The first 1000 of 1500 rows.")


def test_a_cell_of_very_many_runs_names_some() -> None:
    names = [f"run-{n}" for n in range(150)]
    cell = rows.runs_cell(names, {*names})
    assert (cell.text, len(cell.links)) == ("150 runs", 12)
    assert cell.more.splitlines()[98:] == ["run-98", "run-99", "and 50 more"]


def test_a_long_text_is_cut_and_says_so() -> None:
    assert rows.cell("a" * 2000).text == "a" * 2000
    assert rows.cell("a" * 5_000_000).text == "a" * 2000 + " ... (5000000 letters)"
