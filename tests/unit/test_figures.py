"""Figures from small tables made by hand: what they say and draw, without looking at pixels."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis.intervals import over_repeats
from ddlbench.core import registry
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe
from ddlbench.settings.study import load_study
from ddlbench.show.figure_data import distinguishing, references
from ddlbench.show.figures import _labels, _looks, _scaling, _style, time_to_accuracy
from matplotlib.figure import Figure

from tests.builders.tables import MIB, SCALING, repeats, row, tables
from tests.facts import missing
from tests.unit.drawings import KERNELS, OPTIONS, REFERENCE, bars, draw, legend, lines, said


@pytest.mark.parametrize(
    "plot", ["training-time", "memory", "bytes-sent", "accuracy-batch-size", "speed-up-map"]
)
def test_a_run_that_was_killed_on_purpose_is_no_repeat(plot: str) -> None:
    member = registry.member("figures", plot)
    rows = [one for name in ("ddp", "horovod") for one in repeats(100.0, framework=name)]
    killed = [row(20.0, framework=name, repeat=1, interrupt_steps=6) for name in ("ddp", "horovod")]
    alone, beside = (member.data(tables(*some), OPTIONS) for some in (rows, [*rows, *killed]))
    assert len(alone) > 0
    assert len(beside) == len(alone)


def test_throughput() -> None:
    figure = draw("throughput", SCALING)
    (axes,) = figure.axes
    assert lines(axes) == {
        "ddp": [(4, 100), (8, 150)],
        "horovod": [(4, 80), (8, 120)],
        "ideal": [(4, 100), (8, 200)],  # from the best base
    }
    assert legend(figure) == ["ddp", "horovod", "ideal"]
    assert "n = 1: one run" in said(figure)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("workers (CPU core)", "throughput [images/s]")
    assert figure.get_suptitle() == "How it scales\ndali-cpu"  # what all lines share, once
    assert list(axes.get_xticks()) == [4, 8]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "8"]


@pytest.mark.parametrize(("rows", "axes", "figure"), [(1, ["y", "", ""], ""), (2, [""] * 6, "y")])
def test_rows_of_panels_share_one_name_of_their_axis(
    rows: int, axes: list[str], figure: str
) -> None:
    """One per row ran into the next where rows are low."""
    drawn = Figure(layout="constrained")
    drawn.subplots(rows, 3)
    _style.labels(drawn, "x", "y")
    assert [one.get_ylabel() for one in drawn.axes] == axes
    assert drawn.get_supylabel() == figure


OF_RUNS = (3 * 12 + 6) / (3 * 8 + 6)  # the whole training by 4 workers over that by 8


@pytest.mark.parametrize(
    ("plot", "changes", "x", "y", "at_8"),
    [
        ("speed-up", {"device": "cuda"}, "GPUs", "speed-up over 4 GPUs\n(training steps)", 1.5),
        (
            "speed-up",
            {"basis": "run"},
            "workers (CPU core)",
            "speed-up over 4 workers\n(the whole training)",
            OF_RUNS,
        ),
        ("efficiency", {}, "workers (CPU core)", "efficiency\n(training steps)", 0.75),
        (
            "efficiency",
            {"basis": "run"},
            "workers (CPU core)",
            "efficiency\n(the whole training)",
            OF_RUNS / 2,
        ),
    ],
)
def test_speed_up_and_efficiency_say_of_what(
    plot: str, changes: dict[str, str], x: str, y: str, at_8: float
) -> None:
    (axes,) = draw(plot, SCALING, replace(OPTIONS, **changes)).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == (x, y)
    assert lines(axes)["ddp"] == [(4, 1), (8, pytest.approx(at_8))]
    assert lines(axes)["ideal"] == [(4, 1), (8, 2 if plot == "speed-up" else 1)]


# Rates of three repeats on 4 and on 8 workers: their pairs are 1.5, 2 and 1.8, the ratio of their
# medians is 1.6.
PAIRED = [row(rate, workers=4, repeat=r) for r, rate in ((1, 100.0), (2, 80.0), (3, 110.0))]
PAIRED += [row(rate, workers=8, repeat=r) for r, rate in ((1, 150.0), (2, 160.0), (3, 198.0))]


@pytest.mark.parametrize(("plot", "of_one"), [("speed-up", 1.0), ("efficiency", 0.5)])
def test_dots_of_a_ratio_are_its_pairs_and_the_base_has_none(plot: str, of_one: float) -> None:
    data = registry.member("figures", plot).data(tables(*PAIRED), OPTIONS)
    base, more = (json.loads(each) for each in data["each"])
    assert base == []
    assert more == pytest.approx([1.5 * of_one, 2 * of_one, 1.8 * of_one])
    middle = data["speed_up" if plot == "speed-up" else "efficiency"].tolist()
    assert middle == pytest.approx([1.0, 1.8 * of_one])


def test_lines_with_bars_are_drawn_at_their_values() -> None:
    """Several lines once stood aside of their values: on logarithmic axes one above ideal was below
    it.
    """
    others = [
        row(
            2 * of["throughput_images_per_s"],
            **{k: of[k] for k in ("workers", "repeat")},
            framework="horovod",
        )
        for of in PAIRED
    ]
    (axes,) = draw("throughput", tables(*PAIRED, *others)).axes
    assert {*lines(axes)} == {"ddp", "horovod", "ideal"}
    drawn = [line for line in axes.get_lines() if line.get_label() in ("ddp", "horovod", "ideal")]
    assert [line.get_transform() == axes.transData for line in drawn] == [True] * 3


def test_ratios_have_a_tick_at_1_however_far_they_reach() -> None:
    """Ticks were at 2, 8, 32, 128 beside a published 230."""
    for beyond in (2.0, 230.0):
        rows = tables(
            *(row(100.0 * gain, workers=w) for w, gain in ((4, 1.0), (8, 0.6), (1024, beyond)))
        )
        (axes,) = draw("speed-up", rows).axes
        ticks = [float(tick) for tick in axes.get_yticks()]
        assert 1.0 in ticks and len(ticks) >= 3
        assert not [tick for tick in ticks if tick not in {2.0**n for n in range(-5, 10)}]


def test_a_long_legend_takes_nothing_from_the_panels() -> None:
    """Beside eight lines of legend, two panels were strips of half an inch."""
    frameworks, loaders = ("ddp", "fsdp", "horovod"), ("dali-cpu-only", "native")
    rows = [
        row(9.0 * w, framework=f, loader=x, workers=w, repeat=r)
        for f in frameworks
        for x in loaders
        for w in (4, 256)
        for r in (1, 2)
    ]
    figure = draw("efficiency", tables(*rows), replace(OPTIONS, reference=REFERENCE))
    assert len(said(figure)) >= 7
    assert min(axes.get_window_extent().height for axes in figure.axes) > 1.1 * figure.dpi


def test_panels_are_as_high_as_their_bars() -> None:
    """One bar in a panel was as thick as eight in the other."""
    shown = tables(
        row(9.0, loader="native"),
        *(row(9.0, loader="dali-cpu", workers=w) for w in (1, 2, 4, 8, 16)),
    )
    high, low = (axes.get_window_extent().height for axes in draw("memory", shown).axes)
    assert high > 3 * low


def test_shares_of_a_whole_have_no_dots_and_name_the_parts() -> None:
    """Each dot was at 100 %, and so was what the caption ranked."""
    shown = tables(row(9.0, profiled=True), row(9.0, profiled=True, repeat=2))
    figure = draw("kernel-shares", shown)
    assert not figure.axes[0].get_lines()
    assert missing(_style.caption(figure, ""), "50 (computation)", "5 (other) %") == []


def test_efficiency_with_published_numbers() -> None:
    shown = SCALING | {"runs": SCALING["runs"].assign(loader="dali-cpu-only")}
    figure = draw("efficiency", shown, replace(OPTIONS, reference=REFERENCE))
    (axes,) = figure.axes
    drawn = lines(axes)
    assert drawn["ddp"] == [(4, 1), (8, 0.75)]
    assert {y for _, y in drawn["ideal"]} == {1}
    # Of ResNet50 with DALI on the CPU: DDP's own, and what holds for any framework; nothing of DALI
    # on the GPU.
    assert drawn["Aach et al. 2023: about"] == [(1024, 0.76)]
    more = "Aach et al. 2023: more than"
    assert sorted(drawn[more]) == [(256, 0.85), (1024, 0.65), (1024, 0.75)]
    assert {line.get_label(): line.get_marker() for line in axes.get_lines()}[more] == "^"
    assert not [
        text.get_text() for text in axes.texts if text.get_text()
    ]  # they hold for any framework
    assert list(axes.get_xticks()) == [4, 8, 256, 1024]
    assert axes.get_ylim()[0] == 0


def test_published_rates_are_bars_beside_those_of_one_worker() -> None:
    """Those of the same recipe, and so of the same precision; a reference with other worker counts
    makes lines.
    """
    reference = pd.read_csv(CONFIG / "references/resnet50-one-gpu.csv")
    recipe = load_recipe("imagenet-fp16").at(256)
    shown = tables(*repeats(3000.0, workers=1, global_batch=256, recipe=recipe))
    (axes,) = draw("throughput", shown, replace(OPTIONS, reference=reference)).axes
    drawn, fp16 = bars(axes), reference[reference["precision"] == "fp16"]
    assert drawn == {
        "ddp, dali-cpu": [3000.0],
        **{
            source.split(",")[0]: [rate]
            for source, rate in zip(fp16["source"], fp16["value"], strict=True)
        },
    }
    assert [values[0] for values in drawn.values()] == sorted(
        (v[0] for v in drawn.values()), reverse=True
    )
    hollow = {
        round(bar.get_width(), 6)
        for bar in axes.patches
        if bar.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    }
    assert hollow == {*fp16["value"]}
    other = reference.assign(workers=[8] + [1] * (len(reference) - 1))
    (axes,) = draw("throughput", shown, replace(OPTIONS, reference=other)).axes
    assert not axes.patches


def test_the_study_of_one_gpu_shows_published_rates() -> None:
    """Each of its figures with a reference finds rates for the recipe of its runs."""
    plan = make_plan(load_study("one-gpu"), load_machine("workstation"))
    asked = [figure for figure in plan.study.figures if figure.reference]
    assert {figure.name for figure in asked} == {"throughput-comparable", "throughput-tf32"}
    for figure in asked:
        runs = [plan.runs[run].spec for block in figure.runs for run in plan.blocks[block]]
        reference = pd.read_csv(CONFIG / "references" / f"{figure.reference}.csv")
        rows = pd.DataFrame([spec.columns() for spec in runs])
        assert (
            len(
                references(
                    replace(OPTIONS, reference=reference),
                    "throughput",
                    rows.drop(columns="schedule"),
                )
            )
            >= 3
        )


def test_published_numbers_of_what_is_not_shown_stay_away() -> None:
    lenet = pd.DataFrame([row(1.0, model="lenet")])
    native = pd.DataFrame([row(1.0, loader="torchvision", framework="horovod")])
    options = replace(OPTIONS, reference=REFERENCE)
    assert references(
        options, "efficiency", native.assign(loader="native")
    ).empty  # ours, not the paper's
    assert references(options, "efficiency", lenet).empty
    assert set(references(options, "efficiency", native.drop(columns="schedule"))["value"]) == {
        0.5,
        0.24,
        0.45,
    }
    assert references(OPTIONS, "efficiency", native).empty


def test_repeats_are_a_median_with_its_interval() -> None:
    rates = (140.0, 150.0, 145.0)
    shown = tables(
        row(100.0, workers=4), *(row(x, workers=8, repeat=n) for n, x in enumerate(rates))
    )
    shown["runs"] = shown["runs"].assign(step_p5_s=0.08, step_median_s=0.1, step_p95_s=0.2)
    figure = draw("throughput", shown)
    (axes,) = figure.axes
    assert lines(axes)["ddp, dali-cpu"] == [(4, 100), (8, 145)]
    drawn = (c.get_segments() for c in axes.collections)
    interval, spread = (
        [tuple(p) for p in some[0]] for some in drawn if len(some) and len(some[0]) == 2
    )
    expected = over_repeats(rates)
    assert interval == [(8, pytest.approx(expected.low)), (8, pytest.approx(expected.high))]
    assert spread == [(4, pytest.approx(50)), (4, pytest.approx(125))]
    assert {text.split(":")[0] for text in said(figure) if "%" in text} == {"n = 3", "n = 1"}


JOINED = [
    "accuracy-batch-size",
    "accuracy-epochs",
    "loss-samples",
]  # what joins repeats, and says of how many


@pytest.mark.more
@pytest.mark.parametrize(
    ("plot", "changes"),
    [
        *(
            (plot, {"form": "webdataset"})
            for plot in (*JOINED, "step-times", "training-time", "throughput")
        ),
        *((plot, {"of_epochs": 9}) for plot in JOINED),
        *((plot, {"bandwidth_mbit": 10.0}) for plot in ("step-times", *JOINED)),
        *((plot, {"settings": "sequence=128"}) for plot in (*JOINED, "step-times", "throughput")),
    ],
)
def test_what_differs_in_a_setting_is_no_repeat(plot: str, changes: dict[str, Any]) -> None:
    shown = tables(row(100.0, form="raw"), row(100.0, form="raw", repeat=2))
    shown["runs"].loc[1, [*changes]] = [*changes.values()]
    figure = draw(plot, shown)
    assert not [text for text in (said(figure) if figure.legends else []) if "n = 2" in text]


def test_the_first_validation_of_a_program_that_reached_the_target_counts() -> None:
    shown = tables(row(9.0, workers=4))
    run = shown["runs"]["run"].iloc[0]
    said = [(0.5, 10.0), (0.75, 20.0), (0.6, 30.0)]
    shown["epochs"] = pd.DataFrame([{"run": run, "top1": 0.6, "validated_s": 30.0}])
    shown["validations"] = pd.DataFrame(
        [{"run": run, "top1": top1, "validated_s": at_s} for top1, at_s in said]
    )
    for target, reached_s in ((0.7, 20.0), (0.5, 10.0)):
        data = time_to_accuracy.data(shown, replace(OPTIONS, target=target))
        assert data["reached_s"].tolist() == [reached_s]


def test_a_ratio_has_as_many_repeats_as_pairs() -> None:
    """The baseline ran once, and the runs on more workers three times."""
    shown = tables(row(100.0, workers=4), *repeats(150.0, workers=8))
    for measure, counts in (("speed_up", [1, 1]), ("throughput_images_per_s", [1, 3])):
        assert _scaling.data(shown, OPTIONS, measure)["repeats"].tolist() == counts


def test_kernel_shares_of_two_recipes_or_forms_stand_apart() -> None:
    figure = draw("kernel-shares", tables(row(1.0, form="raw"), row(1.0, form="webdataset")))
    assert [axes.get_title() for axes in figure.axes] == ["raw", "webdataset"]
    figure = draw("kernel-shares", tables(row(1.0, bandwidth_mbit=10.0), row(1.0)))
    assert [axes.get_title() for axes in figure.axes] == ["10 Mbit/s", ""]


def test_kernel_shares_of_two_batches_of_one_worker_count_stand_apart() -> None:
    shown = tables(*(row(9.0, workers=4, global_batch=batch) for batch in (64, 256)))
    figure = draw("kernel-shares", shown, replace(OPTIONS, reference=KERNELS))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["batch 16 per worker", "batch 64 per worker"]
    assert all("published, 4" in bars(axes) for axes in figure.axes)
    # Where each worker count has one batch, its bars stand side by side, and so do published ones.
    strong = tables(*(row(9.0, workers=workers, global_batch=256) for workers in (4, 8)))
    (axes,) = draw("kernel-shares", strong, replace(OPTIONS, reference=KERNELS)).axes
    assert {"ddp, 4", "ddp, 8", "published, 4", "published, 8"} <= set(bars(axes))


def test_lines_and_panels_of_several_frameworks_loaders_and_models() -> None:
    loaders, frameworks = ("native", "synthetic"), ("ddp", "fsdp", "horovod")
    figure = draw(
        "efficiency",
        tables(*(row(9.0, framework=f, loader=x) for f in frameworks for x in loaders)),
    )
    assert [axes.get_title() for axes in figure.axes] == ["native", "synthetic"]
    assert set(lines(figure.axes[0])) == {"ddp", "fsdp", "horovod", "ideal"}
    # Four lines share a panel: figure 7 of Aach et al. 2023, and what was published of each.
    pairs = [(f, x) for f in ("ddp", "horovod") for x in ("torchvision", "dali-cpu-only")]
    shown = tables(
        *(row(9.0 * w, framework=f, loader=x, workers=w) for f, x in pairs for w in (4, 256))
    )
    (axes,) = draw("efficiency", shown, replace(OPTIONS, reference=REFERENCE)).axes
    program = draw(
        "speed-up", tables(*(row(9.0, model=name, loader=registry.OWN) for name in ("one", "two")))
    )
    assert program.get_suptitle().endswith("\nddp")
    drawn = lines(axes)
    assert {f"{f}, {x}" for f, x in pairs} < set(drawn)
    noted = {text.get_text() for text in axes.texts}
    assert {"ddp torchvision", "dali"} <= noted
    # Of one framework and loader lines are models.
    figure = draw("efficiency", tables(*(row(9.0, model=m) for m in ("resnet101", "resnet50"))))
    assert legend(figure) == ["resnet50", "resnet101", "ideal"]


def test_members_look_the_same_in_all_figures_and_differ_in_grey() -> None:
    frameworks, loaders = registry.members("frameworks"), registry.members("loaders")
    styles = {(f, x): _looks.member_style(f, x) for f in frameworks for x in loaders}
    assert len({(s["color"], s["fillstyle"]) for s in styles.values()}) == len(frameworks)
    assert len({(s["marker"], str(s["linestyle"])) for s in styles.values()}) == len(loaders)
    assert _looks.member_style("once", "upon")["marker"] not in {
        s["marker"] for s in styles.values()
    }
    two = ("hugging-face", "lightning")  # whose names have one colour
    assert len({_looks.member_style(name, "", two)["color"] for name in two}) == 2
    # Members that are added look different, too.
    looks = [_looks.nth_style(n) for n in range(3 * len(_looks.LINES))]
    assert len({(look["marker"], str(look["linestyle"])) for look in looks}) == len(looks)


def test_members_keep_their_colours() -> None:
    """Figures of two releases would else show one framework in two colours."""
    looks = {name: _looks.member_style(name) for name in _looks.FRAMEWORKS}
    assert {
        name: (look["color"], look["fillstyle"], look["marker"]) for name, look in looks.items()
    } == {
        "ddp": ("#004488", "full", "o"),
        "deepspeed": ("#bb5566", "none", "s"),
        "fsdp": ("#ddaa33", "right", "D"),
        "horovod": ("#117733", "top", "^"),
    }
    table = pd.DataFrame({"framework": "ddp", "loader": [*_looks.LOADERS]})
    styled, _ = _looks.name_lines(table, [], OPTIONS)
    drawn = zip(styled["line"], styled["style"], strict=True)
    assert {name: (look["color"], look["marker"]) for name, look in drawn} == {
        "dali-cpu": ("#332288", "o"),
        "dali-cpu-only": ("#aa4499", "s"),
        "dali-gpu": ("#66bbaa", "D"),
        "native": ("#882255", "^"),
        "spdl": ("#88ccee", "v"),
        "synthetic": ("#332288", "X"),
        "torchvision": ("#aa4499", "*"),
    }


def test_a_new_member_changes_nobodys_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework bagua had DDP's colour, and all others had that of the one before."""
    frameworks, loaders = (
        (*registry.members("frameworks"), "zero1"),
        (*registry.members("loaders"), "", "mine"),
    )
    pairs = [(framework, loader) for framework in frameworks for loader in loaders]
    before = {pair: _looks.member_style(*pair) for pair in pairs}
    for room in ("frameworks", "loaders"):
        folder = tmp_path / "train" / room
        folder.mkdir(parents=True)
        for name in (*registry.members(room), "aaa", "bagua"):
            (folder / f"{name.replace('-', '_')}.py").touch()
    monkeypatch.setattr(registry, "PACKAGE", tmp_path)
    monkeypatch.setattr(registry, "members", registry.members.__wrapped__)
    assert "bagua" in registry.members("frameworks") and "bagua" in registry.members("loaders")
    assert {pair: _looks.member_style(*pair) for pair in pairs} == before
    new = _looks.member_style("bagua", "bagua")
    assert new["color"] not in {_looks.member_style(name)["color"] for name in _looks.FRAMEWORKS}
    assert new["marker"] not in {
        _looks.member_style("ddp", name)["marker"] for name in _looks.LOADERS
    }


def test_variants_of_a_framework_look_different() -> None:
    names = ["ddp", *(f"zero{stage}" for stage in range(6))]
    shown = tables(*(row(9.0, framework=name, workers=w) for name in names for w in (4, 8)))
    for measure in ("efficiency", "accuracy-epochs"):
        axes = draw(measure, shown).axes[0]
        looks = {
            (line.get_color(), line.get_fillstyle())
            for line in axes.get_lines()
            if line.get_label() in set(lines(axes)) - {"ideal"}
        }
        assert len(looks) == len(names)


def test_step_times() -> None:
    shown = tables(*(row(9.0, workers=w, framework=f) for w in (4, 8) for f in ("ddp", "horovod")))
    shown["step_times"].loc[shown["runs"]["framework"] == "horovod", "communication_s"] = None
    figure = draw("step-times", shown)
    (axes,) = figure.axes
    assert bars(axes) == {
        "ddp, 4": [1, 3, 6, 10, 15],  # ms
        "horovod, 4": [1, 3, 6, 11],
        "ddp, 8": [1, 3, 6, 10, 15],
        "horovod, 8": [1, 3, 6, 11],
    }
    assert [text.get_text() for text in axes.texts] == ["", "?", "", "?"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "median step [ms]",
        "framework, workers\n(CPU core)",
    )
    parts = {
        "data wait",
        "forward",
        "backward",
        "communication",
        "optimizer",
        "communication not measured",
    }
    assert set(legend(figure)) == parts
    assert [text.split(":")[0] for text in said(figure) if "%" in text] == ["n = 1"]


def test_step_times_are_medians_of_repeats_and_have_a_panel_a_loader() -> None:
    shown = tables(*(row(9.0, loader=x, repeat=r) for x in ("native", "dali-cpu") for r in (1, 2)))
    shown["step_times"].loc[shown["runs"]["repeat"] == 2, "data_wait_s"] = 0.003
    figure = draw("step-times", shown)
    assert [axes.get_title() for axes in figure.axes] == ["dali-cpu", "native"]
    assert [bars(axes) for axes in figure.axes] == [{"ddp, 4": [2, 4, 7, 11, 16]}] * 2


@pytest.mark.parametrize(("plot", "longest"), [("step-times", 1014.0), ("memory", 4.88)])
def test_no_bar_is_cut_off_in_any_panel(plot: str, longest: float) -> None:
    shown = tables(*(row(9.0, loader=x) for x in ("dali-cpu", "native", "synthetic")))
    shown["step_times"].loc[1, "data_wait_s"] = 1.0
    shown["runs"]["peak_device_memory_bytes"] = [1.0, 5000 * MIB, 2.0]
    for axes in draw(plot, shown, replace(OPTIONS, device="cuda")).axes:
        assert axes.get_xlim()[0] == 0
        assert axes.get_xlim()[1] > longest


def test_memory_is_of_the_device_where_there_is_one() -> None:
    shown = tables(row(9.0), row(9.0, framework="zero3", options=(("framework", "deepspeed"),)))
    (axes,) = draw("memory", shown).axes
    assert bars(axes) == {"ddp, 4": [100, 150, 350, 1000], "zero3, 4": [100, 150, 350, 1000]}  # MiB
    assert [text.get_text() for text in axes.texts] == ["1,000 MiB, state 350"] * 2
    shown["runs"]["peak_device_memory_bytes"] = [500 * MIB, 400 * MIB]
    (axes,) = draw("memory", shown, replace(OPTIONS, device="cuda")).axes
    assert bars(axes) == {"ddp, 4": [100, 150, 350, 500], "zero3, 4": [100, 150, 350, 400]}


def test_lines_of_one_number_of_workers_are_bars_the_best_first() -> None:
    """Eleven markers stood on one another."""
    rates = {"ddp": (9.0, 9.2), "horovod": (7.0, 7.2), "deepspeed": (8.0,)}
    of = [
        row(rate, framework=name, repeat=n)
        for name, two in rates.items()
        for n, rate in enumerate(two, 1)
    ]
    figure = draw("throughput", tables(*of))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ddp", "deepspeed", "horovod"]
    assert [round(patch.get_width(), 1) for patch in axes.patches] == [9.1, 8.0, 7.1]
    assert [text.get_text() for text in axes.texts] == ["9.1", "8", "7.1"]
    said = _style.caption(figure, registry.member("figures", "throughput").__doc__)
    assert (
        missing(said, "Throughput on 4 workers", "Bars", "medians") == []
        and "logarithmic" not in said
    )


def test_the_shortest_training_of_a_worker_count_stands_first() -> None:
    rates = {"ddp": 5.0, "deepspeed": 9.0, "horovod": 7.0}
    rows = [
        row(rate * w, framework=name, workers=w) for w in (1, 2) for name, rate in rates.items()
    ]
    (axes,) = draw("training-time", tables(*rows)).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"{name}, {w}" for w in (1, 2) for name in ("deepspeed", "horovod", "ddp")]


OF_KERNELS = replace(OPTIONS, reference=KERNELS)


def test_labels_of_published_points_do_not_lie_on_each_other() -> None:
    """Nor on another point: 0.45 and less than 0.24 on 512 workers, 0.44 on 256."""
    reference = REFERENCE.assign(framework=REFERENCE["framework"].replace("any", "ddp"))
    names = ("ddp", "horovod", "zero-1")
    shown = tables(
        *(
            row(9.0 * w, workers=w, loader="torchvision", framework=f)
            for w in (4, 1024)
            for f in names
        )
    )
    figure = draw("efficiency", shown, replace(OPTIONS, reference=reference))
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.published if label.get_text()]
    markers = [_labels._marker(label) for label in figure.published]
    assert len(boxes) >= 5
    assert not [1 for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]
    assert not [1 for a in boxes for b in markers if a.overlaps(b)]


def test_kernel_shares_beside_published_ones() -> None:
    shown = tables(row(9.0, workers=4, profiled=True))
    (axes,) = draw("kernel-shares", shown, replace(OPTIONS, reference=KERNELS)).axes
    drawn = bars(axes)
    assert drawn["ddp, 4"] == [20, 30, 80, 95, 100]
    assert drawn["published, 4"] == [
        15.4,
        37.4,
        69.9,
    ]  # DALI's row; of the rest nothing was published
    assert drawn["published, 1024"] == [46.18, 57.74, 75.05]
    assert len(drawn) == 1 + 5  # every second number of workers
    torch = draw(
        "kernel-shares",
        tables(row(9.0, workers=4, profiled=True, loader="torchvision")),
        OF_KERNELS,
    )
    drawn = bars(torch.axes[0])
    assert drawn["published, 512"][0] == 82.61  # the last of this loader's, which the source quotes
    (note,) = [one for one in torch.notes if "Not drawn" in one]
    assert missing(note, 16, 64, 256) == []
    pale = {patch.get_alpha() for patch in axes.patches}
    assert pale == {1.0, 0.45}
    assert len(bars(draw("kernel-shares", shown).axes[0])) == 1
    # Runs of two lengths are one panel: published shares stood in both.
    longer = tables(row(9.0, profiled=True), row(9.0, workers=8, epochs=2, profiled=True))
    assert len(draw("kernel-shares", longer, replace(OPTIONS, reference=KERNELS)).axes) == 1


def test_bars_of_a_panel_are_of_one_loader() -> None:
    shown = tables(row(9.0, loader="native"), row(9.0, loader="synthetic", epochs=2, of_epochs=90))
    figure = draw("step-times", shown)
    assert [axes.get_title() for axes in figure.axes] == ["native", "synthetic"]
    assert [list(bars(axes)) for axes in figure.axes] == [["ddp, 4"], ["ddp (extrapolated), 4"]]
    shown = tables(row(9.0, loader="native"), row(9.0, loader="synthetic", framework="horovod"))
    assert len(draw("memory", shown).axes) == 2
    # Runs of some epochs say so.
    shown = tables(*(row(9.0 * w, workers=w, epochs=2, of_epochs=90) for w in (4, 8)))
    assert legend(draw("throughput", shown)) == ["ddp, dali-cpu (extrapolated)", "ideal"]
    assert list(bars(draw("step-times", shown).axes[0])) == [
        "ddp (extrapolated), 4",
        "ddp (extrapolated), 8",
    ]


@pytest.mark.parametrize("plot", ["step-times", "memory", "kernel-shares"])
def test_parts_of_bars_differ_in_grey(plot: str) -> None:
    (axes,) = draw(plot, tables(row(9.0))).axes
    looks = {}
    for patch in axes.patches:
        red, green, blue, _ = patch.get_facecolor()
        looks[(round(0.3 * red + 0.59 * green + 0.11 * blue, 1), patch.get_hatch())] = patch
    assert len(looks) == len(axes.patches)


def test_accuracy_by_batch_size() -> None:
    shown = tables(
        *(row(9.0, 0.8, workers=w, schedule=s) for w in (4, 64) for s in ("step", "cosine")),
        row(9.0, 0.6, workers=64, repeat=2),
        row(9.0, float("nan"), workers=8),  # synthetic data
    )
    figure = draw("accuracy-batch-size", shown, replace(OPTIONS, reference=REFERENCE))
    (axes,) = figure.axes
    assert lines(axes)["step"] == [(256, 80), (4096, 70)]
    assert lines(axes)["cosine"] == [(256, 80), (4096, 80)]
    assert (65536, 52) not in lines(axes)["Aach et al. 2023: about"]  # exponential is not shown
    assert (65536, 41) in lines(axes)["Aach et al. 2023: about"]
    assert "step, cosine" in [text.get_text() for text in axes.texts]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "global batch size [images]",
        "top-1 accuracy [%]",
    )
    assert legend(figure) == ["cosine", "step", "Aach et al. 2023: about"]


def test_published_times_of_whole_trainings() -> None:
    """In the unit of the axis, amid the bars of so many workers."""
    shown = tables(
        *(
            row(9.0, framework=f, repeat=r) | {"full_train_s": 50_000.0}
            for f in ("ddp", "horovod")
            for r in (1, 2)
        ),
        row(9.0, workers=8) | {"full_train_s": 25_000.0},
        row(9.0, workers=4, model="resnet101") | {"full_train_s": 80_000.0},
    )
    figure = draw("training-time", shown, replace(OPTIONS, reference=REFERENCE))
    resnet101, resnet50 = sorted(figure.axes, key=lambda axes: axes.get_title())
    assert lines(resnet50)["Aach et al. 2023: about"] == [(13.0, 0.5)]
    assert "Aach et al. 2023: about" not in lines(resnet101)
    assert figure.axes[-1].get_xlabel() == "training time [h]" and "training" not in said(
        figure
    )  # the axis says it
    assert legend(figure)[-1] == "Aach et al. 2023: about"


def test_accuracy_by_epoch() -> None:
    changes = [{"schedule": s, "global_batch": b} for s in ("step", "cosine") for b in (32, 64)]
    shown = tables(*(row(9.0, 0.9, **c) for c in changes), row(9.0, 0.3, **changes[0], repeat=2))
    figure = draw("accuracy-epochs", shown)
    assert [axes.get_title() for axes in figure.axes] == ["batch size 32", "batch size 64"]
    assert lines(figure.axes[0])["step"] == [
        (1, pytest.approx(20)),
        (2, pytest.approx(40)),
        (3, pytest.approx(60)),
    ]
    # A band where there are repeats, and its place in the legend.
    assert [len(axes.collections) for axes in figure.axes] == [2, 0]
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == (
        "epoch",
        "top-1 accuracy [%]",
    )
    figure = draw("accuracy-epochs", SCALING)
    assert legend(figure) == ["ddp", "horovod"]


def test_learning_rate() -> None:
    shown = tables(*(row(9.0, schedule=s, repeat=r) for s in ("step", "cosine") for r in (1, 2)))
    (axes,) = draw("learning-rate", shown).axes
    last = 0.1 / 3
    assert lines(axes) == {
        s: [(0, 0.1), (1, 0.05), (2, last), (3, last)] for s in ("step", "cosine")
    }
    assert {line.get_drawstyle() for line in axes.get_lines()} == {"steps-post"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epochs trained", "learning rate")


def test_panels_are_told_apart_by_as_few_columns_as_needed() -> None:
    rows = pd.DataFrame(
        {"line": [1, 1, 1], "a": [1, 2, 2], "b": [10, 20, 20], "c": [1, 1, 1], "d": [5, 6, 7]}
    )
    assert distinguishing(rows, ["line"], ["a", "b", "c", "d"]) == ["a", "d"]


@pytest.mark.parametrize(
    ("plot", "value"), [("throughput", 700.0), ("speed-up", 9.0), ("efficiency", 0.7)]
)
def test_published_numbers_of_scaling_are_drawn(plot: str, value: float) -> None:
    number = {
        "model": "resnet50",
        "framework": "any",
        "loader": "dali",
        "workers": 64,
        "global_batch": 4096,
    }
    number |= {
        "schedule": "",
        "quantity": plot,
        "relation": "approx",
        "value": value,
        "source": "Somebody 2020, p. 1",
    }
    figure = draw(plot, SCALING, replace(OPTIONS, reference=pd.DataFrame([number])))
    assert lines(figure.axes[0])["Somebody 2020: about"] == [(64, value)]
    assert list(figure.axes[0].get_xticks()) == [4, 8, 64]
    assert "Somebody 2020: about" in legend(figure)
