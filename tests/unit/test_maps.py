"""Maps of settings: what a framework changes in each, in order of operations; what is missing is
seen as missing.
"""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis.significance import CANNOT_TELL, FASTER, SLOWER, difference
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.show import figure_data
from ddlbench.show.figures import _style, accuracy_map, speed_up_map
from ddlbench.show.page import picture
from matplotlib.axes import Axes

from tests.builders.tables import SCALING, SPEC
from tests.facts import missing
from tests.unit.drawings import OPTIONS, draw

FLOPS = {"vit_base_patch16_224": 1e11, "resnet50": 5e8, "lenet5": 4e6}
TIME = {"vit_base_patch16_224": 900.0, "resnet50": 90.0, "lenet5": 9.0}


def runs(gains: dict[str, float], repeats: int = 3) -> pd.DataFrame:
    """DDP and DeepSpeed on two data sets, so many times as fast with DeepSpeed; ViT with pictures
    of another size.
    """
    rows = []
    for model, gain in gains.items():
        size = 224 if model.startswith("vit") else 32
        recipe = replace(SPEC.recipe, name=f"set-{size}" if size == 224 else "set", image_size=size)
        for dataset in ("cifar10", "cifar100"):
            for framework in ("ddp", "deepspeed"):
                for repeat in range(1, repeats + 1):
                    own = {"model": model, "dataset": dataset, "recipe": recipe, "loader": "native"}
                    spec = replace(SPEC, framework=framework, repeat=repeat, **own)
                    faster = gain if framework == "deepspeed" else 1.0
                    time = TIME[model] / faster * (1 + 0.002 * repeat * (framework == "ddp"))
                    measures = {
                        "status": "success",
                        "full_train_s": 3 * time,
                        "epoch_s": time,
                        "final_top1": 0.5,
                    }
                    measures |= {"flops_per_image": FLOPS[model]}
                    if framework == "deepspeed":
                        measures["final_top1"] += 0.01 + 0.001 * repeat
                    rows.append(spec.columns() | measures)
    return pd.DataFrame(rows)


def numbers(axes: Axes) -> dict[tuple[int, int], str]:
    """The numbers of a map's cells by column and row; the intervals beneath them left out."""
    return {(int(x), int(y)): words.split()[0] for (x, y), words in said(axes).items()}


def said(axes: Axes) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in axes.texts}


def test_speed_up_of_each_setting_by_operations() -> None:
    table = runs({"vit_base_patch16_224": 8.0, "lenet5": 1.0, "resnet50": 2.0})
    options = replace(OPTIONS, basis="run")
    data = speed_up_map.data({"runs": table}, options)
    assert set(data["framework"]) == {"deepspeed"} and len(data) == 6
    assert data[data["model"] == "resnet50"]["value"].tolist() == pytest.approx([2, 2], rel=0.01)
    figure = draw("speed-up-map", {"runs": table}, options)
    axes = figure.axes[0]
    named = [t.get_text().split(",")[0] for t in axes.get_yticklabels()]
    assert named == ["lenet5", "resnet50", "vit_base_patch16_224"]
    assert [t.get_text() for t in axes.get_xticklabels()] == [
        "cifar10\nset",
        "cifar100\nset",
    ]  # ViT's set is that set
    assert numbers(axes) == {
        (x, y): v for y, v in enumerate(("1.00", "2.01", "8.03")) for x in (0, 1)
    }
    assert missing(figure.axes[-1].get_ylabel(), "ddp", "over") == []
    assert said(axes)[0.5, 2.5] == "8.03\n7.99 to 8.07"
    assert {text.get_weight() for text in axes.texts} == {
        "bold",
        "normal",
    }  # by half a percent: not significantly different
    assert min(text.get_fontsize() for text in axes.texts) >= _style.SMALL
    cells = axes.collections[0]
    assert min(cells.cmap(cells.norm(1.0))) > 0.95  # white
    assert {0.5, 1, 2} <= {*figure.axes[-1].get_yticks()}


def test_single_runs_decide_nothing_and_have_no_interval() -> None:
    table = runs({"lenet5": 1.0}, repeats=1)
    data = speed_up_map.data({"runs": table}, OPTIONS)
    assert not data["told"].any() and data["low"].isna().all()
    axes, bar = draw("speed-up-map", {"runs": table}).axes
    assert [text.get_text() for text in bar.get_yticklabels()] == ["0.8", "1", "1.25"]
    assert {*said(axes).values()} == {"1.00"}
    assert {text.get_rotation() for text in axes.get_yticklabels()} == {
        0
    }  # few models' names stood upright


def test_a_setting_that_lacks_a_side_is_hatched() -> None:
    table = runs({"lenet5": 1.0, "resnet50": 2.0})
    gone = (
        (table["model"] == "lenet5")
        & (table["dataset"] == "cifar100")
        & (table["framework"] == "ddp")
    )
    axes = draw("accuracy-map", {"runs": table[~gone]}).axes[0]
    assert axes.patch.get_hatch()  # is seen where no cell lies on it
    assert axes.collections[0].get_array().mask.tolist() == [[False, True], [False, False]]
    assert numbers(axes) == {(0, 0): "+1.2", (0, 1): "+1.2", (1, 1): "+1.2"}


def test_a_map_keeps_its_colours_on_a_dark_page(tmp_path: Path) -> None:
    """Turned around, 1 was black, and the caption says that it is white."""
    draw("speed-up-map", {"runs": runs({"lenet5": 1.0})}).savefig(tmp_path / "map.svg")
    draw("throughput", SCALING).savefig(tmp_path / "lines.svg")
    css = Path(picture.__file__).with_name("page.css").read_text(encoding="utf-8")
    assert re.search(r"\.picture img\.colours \{\s*filter: none;\s*\}", css)
    made = {name: picture.image(tmp_path / f"{name}.svg", "A") for name in ("map", "lines")}
    assert re.search('<img class="[^"]*colours', made["map"])
    assert not re.search('<img class="[^"]*colours', made["lines"])


def test_nothing_to_compare_is_an_empty_map(tmp_path: Path) -> None:
    table = runs({"lenet5": 1.0})
    for some in (table[:0], table[table["framework"] == "ddp"]):
        plot = "accuracy-map" if some.empty else "speed-up-map"
        assert [text.get_text() for text in draw(plot, {"runs": some}).axes[0].texts] == [
            _style.NOTHING
        ]
    figure_data.write(accuracy_map.data({"runs": table}, OPTIONS), tmp_path / "map.csv")
    assert figure_data.read(tmp_path / "map.csv")["told"].tolist() == [True, True]


def test_a_difference_by_hand() -> None:
    ours, theirs = {1: 3.0, 2: 5.0, 3: 4.0}, {1: 1.0, 2: 2.0, 3: 2.0}
    found = difference(ours, theirs)
    assert (found.middle, found.n) == (2.0, 3)
    half = 4.302653 / 3  # Student's t of 2 degrees, times the spread 1 / sqrt(3), over sqrt(3)
    assert (found.low, found.high) == pytest.approx((7 / 3 - half, 7 / 3 + half), rel=1e-5)
    assert found.verdict == FASTER
    assert difference(theirs, ours).verdict == SLOWER
    assert (
        difference({1: 1.0}, {1: 1.0}).verdict
        == difference({1: 2.0}, {2: 1.0}).verdict
        == CANNOT_TELL
    )
    assert difference({1: 2.0, 2: 2.0}, {3: 1.0}).middle == 1.0


def test_claims_of_liang2023_are_of_models_that_the_study_trains() -> None:
    """A claim once named models that it lacks, and was never testable."""
    models = {
        job.spec.model
        for job in make_plan(load_study("liang2023"), load_machine("slurm")).runs.values()
    }
    claims = pd.read_csv(CONFIG / "references/claims.csv", keep_default_na=False)
    sides = claims.loc[claims["source"] == "liang2023", "left"]
    named = {
        m
        for side in sides
        for part in side.split(";")
        if part.startswith("model=")
        for m in part[6:].split("|")
    }
    assert named and named <= models
