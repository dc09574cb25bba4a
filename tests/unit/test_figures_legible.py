"""Each figure as a page shows it, wide and on a phone: letters of 7 points, none on another, none
beyond the edge.

Texts are read from the SVG itself, with the places that it gives them; how wide they are,
matplotlib's font says.
"""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from ddlbench.settings.config import CONFIG
from ddlbench.show.figures import Tables, _style
from ddlbench.show.page import picture
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import text_to_path

from tests.builders.tables import MIB, row, tables
from tests.unit.drawings import FIGURES, KERNELS, OPTIONS, REFERENCE, draw
from tests.unit.test_maps import runs

pytestmark = pytest.mark.more

PHONE = 358.0  # pixels of 390 that a page leaves for a figure
PIXELS = 96 / 72  # of a point
LEAST = 7.0  # points
SIZES = pd.read_csv(CONFIG / "references/model-sizes.csv")
REFERENCES = {"kernel-shares": KERNELS, "zero-memory": SIZES}


def study(
    frameworks: tuple[str, ...],
    loaders: tuple[str, ...],
    workers: tuple[int, ...],
    cable: float | None = None,
) -> Tables:
    """Two repeats of each, of which one pair is so noisy that its interval goes over hundreds of
    times.
    """
    rows = [
        row(
            100.0
            * n
            * (1 + place / 9)
            * (1 + (0.9 if (place, n) == (0, workers[-1]) else 0.02) * repeat),
            framework=framework,
            loader=loader,
            workers=n,
            repeat=repeat,
            options=(("framework", "deepspeed"), ("zero_stage", place % 4)),
            bandwidth_mbit=cable and cable * n,
        )
        | {"peak_resident_bytes": 1234.5 * MIB * n}
        for place, framework in enumerate(frameworks)
        for loader in loaders
        for n in workers
        for repeat in (1, 2)
    ]
    return tables(*rows)


LONG = ("ddp", "onebit-adam-tables", "zero-one-adam-full")
STUDIES = {
    "three frameworks, three loaders": (
        ("ddp", "deepspeed", "horovod"),
        ("dali-cpu-only", "native", "spdl"),
        (1, 2),
    ),
    "long names, many workers": (LONG, ("native",), (4, 16, 64, 256, 1024)),
    "one framework, which makes panels low": (("ddp",), ("native",), (1, 2)),
}
ONE = study(("ddp",), ("synthetic",), (1, 2))


def drawn(plot: str, of: str, folder: Path) -> Path:
    """The SVG of a figure as the workflow writes it."""
    shown = study(*STUDIES[of], cable=10.0 if plot == "throughput-bandwidth" else None)
    if plot.endswith("-map"):
        shown = {"runs": runs({"vit_base_patch16_224": 8.0, "lenet5": 0.8, "resnet50": 2.0})}
    reference = REFERENCES.get(plot, REFERENCE)
    svg = folder / "figure.svg"
    draw(plot, shown, replace(OPTIONS, reference=reference)).savefig(svg)
    return svg


def texts(svg: Path) -> Iterator[tuple[str, float, Outline]]:
    """Each text with its size [points] and its outline in the picture's points."""
    for element in ElementTree.parse(svg).iter(f"{picture.SVG}text"):
        style = dict(part.strip().split(": ", 1) for part in element.get("style", "").split(";"))
        words, size = element.text or "", float(style["font-size"].removesuffix("px"))
        font = FontProperties(
            family="DejaVu Sans", weight=int(style.get("font-weight", 400)), size=10
        )
        width, height, descent = text_to_path.get_text_width_height_descent(
            words, font, ismath=False
        )
        width, height, descent = (length * size / 10 for length in (width, height, descent))
        left = {"middle": -width / 2, "end": -width}.get(style.get("text-anchor", ""), 0.0)
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("transform", ""))]
        rotated = "rotate" in element.get("transform", "")
        if "translate" in element.get("transform", ""):
            x, y, turn = numbers[0], numbers[1], numbers[2] if rotated else 0.0
        else:
            x, y, turn = (
                float(element.get("x", 0)),
                float(element.get("y", 0)),
                numbers[0] if rotated else 0.0,
            )
        cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        corners = [
            (left, descent),
            (left + width, descent),
            (left + width, descent - height),
            (left, descent - height),
        ]
        yield (
            words,
            size,
            Outline(
                [(x + cos * u - sin * v, y + sin * u + cos * v) for u, v in [*corners, corners[0]]]
            ),
        )


# Daily that which has the longest names.
DAILY = [
    pytest.param(of, marks=() if of == "long names, many workers" else pytest.mark.slow)
    for of in STUDIES
]


@pytest.mark.parametrize("of", DAILY)
@pytest.mark.parametrize("plot", FIGURES)
def test_letters_can_be_read_wide_and_on_a_phone(plot: str, of: str, tmp_path: Path) -> None:
    svg = drawn(plot, of, tmp_path)
    width, height = (
        float(n) for n in ElementTree.parse(svg).getroot().get("viewBox", "").split()[2:]
    )
    scale = (
        min(1.0, PHONE / (width * PIXELS)) if width <= picture.NARROW else 1.0
    )  # a wide one is scrolled
    found = list(texts(svg))
    assert found, "its text is no text"
    small = [words for words, size, _ in found if size * scale < LEAST]
    assert not small, f"letters of under {LEAST} points on a phone: {small}"
    cut = [
        text
        for text, _, box in found
        if box.vertices.min() < -1 or (box.vertices > (width + 1, height + 1)).any()
    ]
    assert not cut, f"beyond the edge: {cut}"
    pairs = itertools.combinations([(words, box) for words, _, box in found if words.strip()], 2)
    over = [(one, other) for (one, a), (other, b) in pairs if a.intersects_path(b, filled=True)]
    assert not over, f"on one another: {over}"


def test_titles_of_panels_beside_long_names_are_not_cut(tmp_path: Path) -> None:
    of = [
        (model, x)
        for model in ("mobilenet_v3_large_100", "resnet50")
        for x in ("dali-cpu-only", "native")
    ]
    figure = draw(
        "step-times",
        tables(*(row(9.0, framework=2 * LONG[2], model=model, loader=x) for model, x in of)),
    )
    figure.savefig(svg := tmp_path / "figure.svg")
    assert (
        max(box.vertices[:, 0].max() for _, _, box in texts(svg)) < 72 * figure.get_figwidth() + 1
    )


def test_a_figure_is_small_and_keeps_its_text(tmp_path: Path) -> None:
    """A bar's hatch of dots took 450 kB."""
    svg = drawn("step-times", "three frameworks, three loaders", tmp_path)
    assert svg.stat().st_size < 100_000
    assert "data wait" in {words for words, _, _ in texts(svg)}


@pytest.mark.parametrize("plot", ["throughput", "speed-up", "efficiency"])
def test_two_noisy_repeats_stretch_no_axis(plot: str) -> None:
    rows = [
        row(100.0 * w * (1 + noise * r), workers=w, repeat=r)
        for w, noise in ((1, 0.01), (2, 0.9))
        for r in (1, 2)
    ]
    (axes,) = draw(plot, tables(*rows)).axes
    highest = max(
        y for line in axes.get_lines() for y in line.get_ydata() if line.get_label() != "ideal"
    )
    assert axes.get_ylim()[1] < 3 * highest


@pytest.mark.parametrize("plot", FIGURES)
def test_a_caption_begins_with_the_result_of_its_figure(plot: str) -> None:
    shown = {"runs": runs({"lenet5": 0.8})} if plot.endswith("-map") else ONE
    shown = study(("ddp",), ("native",), (1, 2), 10.0) if plot == "throughput-bandwidth" else shown
    words = _style.caption(draw(plot, shown, OPTIONS), "How to read it.")
    assert re.search(r"\d", words.split("How to read it.")[0]), words


def test_a_picture_carries_its_caption(tmp_path: Path) -> None:
    _style.save(draw("throughput", ONE), tmp_path / "said", "5 < 6. How to read it.")
    assert picture.caption(tmp_path / "said.svg") == "5 < 6. How to read it."
    on_cpus, on_gpus = "On CPUs the process.", "On GPUs tensors."
    kinds = f"Peak. {on_gpus} {on_cpus}"  # nothing about what the figure has not
    assert _style.caption(Figure(), kinds, "cpu") == f"Peak.\n{on_cpus}"
    assert _style.caption(Figure(), kinds, "cuda") == f"Peak.\n{on_gpus}"


def test_below_a_picture_stand_its_result_and_one_sentence_on_how_to_read_it() -> None:
    figure = draw("throughput", ONE)
    figure.note("A note.")
    short, rest = _style.caption(figure, "The first. The second.").split("\n")
    assert short == f"{figure.result} The first."
    assert rest == "The second. A note."
