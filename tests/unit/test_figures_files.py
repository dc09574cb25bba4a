"""What the command writes for a figure: its data, the same bytes in three formats, a word where
there is nothing.
"""

import html
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
from ddlbench.analysis.summary import COLUMNS as MEASURES
from ddlbench.core import registry
from ddlbench.show import figure_data
from ddlbench.show import make_figure as command
from ddlbench.show.figures import FigureMember, _style
from matplotlib.figure import Figure
from PIL import Image

from tests.builders.tables import SCALING, row, tables
from tests.unit.drawings import FIGURES, NOTHING, OPTIONS, REFERENCE, draw

# Measures that `row` does not give: a figure of another column needs no line here.
OTHERS: dict[str, object] = {
    column.name: 1 for column in MEASURES if column.type in ("float64", "Int64")
}


@pytest.mark.parametrize("plot", FIGURES)
def test_without_finished_runs_a_figure_says_so(plot: str) -> None:
    failed = OTHERS | row(float("nan"), float("nan")) | {"status": "failed"}
    shown = tables(failed)
    nothing = {name: table[:0] for name, table in shown.items()}
    for table in (
        nothing | {"runs": shown["runs"].assign(peak_resident_bytes=None, **NOTHING)},
        nothing,
    ):
        (axes,) = draw(plot, table, replace(OPTIONS, reference=REFERENCE)).axes
        assert [text.get_text() for text in axes.texts] == [_style.NOTHING]
        assert axes.get_xlabel()
        assert axes.get_ylabel()


@pytest.mark.parametrize("plot", FIGURES)
def test_a_figures_file_holds_its_data_to_the_last_digit(plot: str, tmp_path: Path) -> None:
    cable = {"bandwidth_mbit": 10} if plot == "throughput-bandwidth" else {}
    third = row(100 / 3, 1 / 3, workers=4, framework="1e5", loader="synthetic", form=None, **cable)
    base = row(7.0, workers=4, loader="synthetic", form=None, **cable)  # of maps, which show pairs
    one = row(0.1 + 0.2, 2 / 3, workers=8, global_batch=512, **cable)
    shown = tables(*(OTHERS | of for of in (one, third, row(7.0, workers=4, **cable), base)))
    member: FigureMember = registry.member("figures", plot)
    made = member.data(shown, OPTIONS)
    assert len(made) >= (
        1 if plot in ("accuracy-map", "efficiency-loss", "speed-up-map") else 3
    )  # bases are no rows
    figure_data.write(made, tmp_path / "a.csv")
    back = figure_data.read(tmp_path / "a.csv")
    assert list(back) == list(made)
    for name in made:
        ours, theirs = made[name].astype(object), back[name].astype(object)
        assert (
            ours.where(ours.notna(), None).tolist() == theirs.where(theirs.notna(), None).tolist()
        ), name
    figure_data.write(back, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def write_tables(folder: Path) -> None:
    for name, table in SCALING.items():
        table.to_parquet(folder / f"{name}.parquet")


def test_a_figure_has_the_same_bytes_in_three_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path)
    runs = SCALING["runs"]
    ours = list(runs.loc[runs["framework"] == "ddp", "run"])
    written = []
    for _ in range(2):
        command.write_data("throughput", tmp_path, ours, tmp_path / "out.csv", OPTIONS)
        command.draw("throughput", tmp_path / "out.csv", tmp_path / "out", OPTIONS)
        written.append({p.suffix: p.read_bytes() for p in tmp_path.glob("out.*")})
    assert written[0].keys() == {".csv", ".png", ".svg", ".pdf"}
    assert written[0] == written[1]
    assert figure_data.read(tmp_path / "out.csv")["throughput_images_per_s"].tolist() == [100, 150]
    full = Mock(side_effect=lambda path, **_: path.write_text("half") and 1 / 0)
    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(ZeroDivisionError):
        command.draw("throughput", tmp_path / "out.csv", tmp_path / "out", OPTIONS)
    assert not list(tmp_path.glob(".*"))  # nor half a figure


def test_a_picture_says_of_what_it_is_below_all_that_is_drawn(tmp_path: Path) -> None:
    """A picture on a slide has lost its page."""
    write_tables(tmp_path)
    command.write_data(
        "throughput", tmp_path, list(SCALING["runs"]["run"]), tmp_path / "out.csv", OPTIONS
    )
    heights = {}
    for about in ("", "demo, local, 2026-11-28"):
        command.draw(
            "throughput", tmp_path / "out.csv", tmp_path / "out", replace(OPTIONS, about=about)
        )
        with Image.open(tmp_path / "out.png") as image:
            heights[about] = image.height
        assert (">demo, local, 2026-11-28<" in (tmp_path / "out.svg").read_text()) is bool(about)
    assert [*heights.values()][1] == heights[""] + round(200 * _style.SIGNATURE)


def test_the_day_of_a_figure_is_that_of_its_newest_run(tmp_path: Path) -> None:
    runs = SCALING["runs"].assign(status="success")
    runs.assign(begun_s=[86400.0 * n for n in range(len(runs))]).to_parquet(
        tmp_path / "runs.parquet"
    )
    of = [*runs["run"][:2], "another"]
    shown = figure_data.shown(tmp_path, of)
    assert [None if pd.isna(day) else day for day in shown["day"]] == [
        "1970-01-01",
        "1970-01-02",
        None,
    ]
    assert figure_data.day(shown) == "1970-01-02"
    assert figure_data.day(shown[2:]) == ""


def test_a_figure_reads_only_its_runs(tmp_path: Path) -> None:
    write_tables(tmp_path)
    runs = list(SCALING["runs"]["run"])
    shown = figure_data.load(tmp_path, ("runs", "epochs"), runs[:3])
    assert set(shown) == {"runs", "epochs"}
    assert set(shown["runs"]["run"]) == set(shown["epochs"]["run"]) == set(runs[:3])


@pytest.mark.parametrize(
    "title", [r"$\frac{a}{ $x_1 $", "$", r"\$5 or $5", "</svg><script>x</script> %s {{ 1 }}"]
)
def test_a_title_is_drawn_as_it_stands(title: str, tmp_path: Path) -> None:
    write_tables(tmp_path)
    command.write_data(
        "throughput", tmp_path, command.selected(tmp_path), tmp_path / "out.csv", OPTIONS
    )
    options = replace(OPTIONS, title=title, device_name="$1 $")
    command.draw(
        "throughput", tmp_path / "out.csv", tmp_path / "out", options
    )  # raised where a formula was not closed
    shown = (tmp_path / "out.svg").read_text(encoding="utf-8")
    assert f">{title}</text>" in html.unescape(shown)


def test_naming_figures_does_not_import_matplotlib() -> None:
    code = """
import sys; from ddlbench.core import registry
names = registry.members("figures"); assert names, names
for n in names: assert registry.constant("figures", n, "TABLES") and registry.docstring("figures", n)
heavy = {"matplotlib", "pandas", "seaborn", "torch"} & set(sys.modules); assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.more
def test_seaborn_is_imported_by_what_draws_with_it_alone(tmp_path: Path) -> None:
    """It imports scipy.stats, which takes half a second: the plan, the tables and the other figures
    go without.
    """
    write_tables(tmp_path)
    code = """
import sys; from pathlib import Path
import ddlbench.commands.start, ddlbench.analysis.collect
from ddlbench.core import registry
from ddlbench.show import make_figure as command
from ddlbench.show.figures import Options
for plot in registry.members("figures"): registry.member("figures", plot)
home, of = Path(sys.argv[1]), Options("", "cpu", "")
command.write_data("throughput", home, command.selected(home), home / "a.csv", of)
command.draw("throughput", home / "a.csv", home / "a", of)
assert "matplotlib" in sys.modules and not {"seaborn", "scipy.stats"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
