"""Figures of cost, of checkpoints, of memory under ZeRO, of one-bit optimizers and of a slow
network.
"""

from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.analysis import claim_verdicts, claims, comparisons
from ddlbench.analysis.sheets import Terms, costs
from ddlbench.analysis.tables import frame
from ddlbench.core import registry
from ddlbench.settings.config import CONFIG
from ddlbench.show.figures import _style
from matplotlib.figure import Figure

from tests.builders.plans import run_spec
from tests.builders.tables import MIB, row, tables
from tests.unit.drawings import OPTIONS, bars, draw, legend, lines, said

SIZES = pd.read_csv(CONFIG / "references/model-sizes.csv")
ZERO1 = (("framework", "deepspeed"), ("zero_stage", 1))
ZERO3 = (("framework", "deepspeed"), ("zero_stage", 3))


def panels(figure: Figure) -> dict[str, tuple[list[str], dict[str, list[float]]]]:
    """By title: the models, and what each framework holds of them."""
    return {
        axes.get_title(): (
            [label.get_text() for label in axes.get_yticklabels()],
            {name: [x for x, _ in points] for name, points in lines(axes).items()},
        )
        for axes in figure.axes
    }


def test_models_that_were_not_run_stand_apart() -> None:
    """ResNet-50 was run; of larger models only those are shown that are five times as large as the
    one before.
    """
    shown = tables(row(9.0, framework="deepspeed"), row(9.0, framework="zero1", options=ZERO1))
    figure = draw("zero-memory", shown, replace(OPTIONS, reference=SIZES))
    found = panels(figure)
    assert [*found] == ["measured", "computed, not run"]
    assert found["measured"] == (
        ["resnet50\n26.2 M"],
        {"deepspeed": [350 / 1024], "zero1": [350 / 1024]},
    )  # what `row` gives
    names, computed = found["computed, not run"]
    assert names == [
        "vgg16\n138 M",
        "vit_giant_patch14_224\n1,013 M",
        "vit_7b_patch16_dinov3\n6,720 M",
    ]
    numbers = [
        138_357_544,
        1_012_611_432,
        6_720_127_976,
    ]  # of 4 bytes: weights, gradients, momentum on 4 workers
    for framework, size in (("deepspeed", 12), ("zero1", 8 + 4 / 4)):
        assert computed[framework] == pytest.approx([n * size / 2**30 for n in numbers])
    assert any("ZeRO" in text for text in said(figure))
    assert not [
        patch for axes in figure.axes for patch in axes.patches
    ]  # a bar has no length on a logarithmic axis


def test_each_optimizer_has_a_panel_and_its_own_formula() -> None:
    """Adam keeps two numbers per parameter where SGD keeps one."""
    adam = {"optimizer": "adamw", "optimizer_bytes": 400 * MIB}
    shown = tables(row(9.0), row(9.0) | adam)
    found = panels(draw("zero-memory", shown, replace(OPTIONS, reference=SIZES)))
    measured = {title: held for title, (_, held) in found.items() if "measured" in title}
    by_optimizer = {title.split(",")[0]: held["ddp"] for title, held in measured.items()}
    assert by_optimizer == {"sgd": [350 / 1024], "adamw": [550 / 1024]}
    computed = {
        title.split(",")[0]: held for title, (_, held) in found.items() if "not run" in title
    }
    for optimizer, each in (("sgd", 12), ("adamw", 16)):
        assert computed[optimizer]["ddp"][0] == pytest.approx(138_357_544 * each / 2**30)


def test_a_model_that_fits_under_stage_3_alone_is_computed_for_the_others() -> None:
    """Runs that had no memory left leave no value of their own, and do not take those of the others
    along.
    """
    big = {"model": "vit_huge_patch14_224", "workers": 4}
    held = {"parameters_bytes": 632_045_800, "gradients_bytes": 1.0, "optimizer_bytes": 1.0}
    shown = [
        row(9.0, framework=name, options=options)
        for name, options in (("deepspeed", ()), ("zero3", ZERO3))
    ]
    shown.append(row(9.0, framework="zero3", options=ZERO3, **big) | held)
    found = panels(draw("zero-memory", tables(*shown), replace(OPTIONS, reference=SIZES)))
    names, measured = found["measured"]
    assert names == ["resnet50\n26.2 M", "vit_huge_patch14_224\n632 M"]
    assert measured["zero3"][1] == pytest.approx((632_045_800 + 2) / 2**30)
    names, computed = found["computed, not run"]
    assert names[0] == "vit_huge_patch14_224\n632 M"
    assert computed["deepspeed"][0] == pytest.approx(12 * 632_045_800 / 2**30)


def test_the_chosen_interval_stands_beside_the_best() -> None:
    figure = draw("checkpoint-intervals", tables(row(9.0, workers=4), row(9.0, workers=8)))
    drawn = lines(figure.axes[0])
    assert drawn["4 workers"] == [(1.0, 9.0), (1500.0, 20.0)]
    assert {x for x, _ in drawn["chosen: 30 min"]} == {30}
    assert {"Daly's best", "Young's best"} <= set(said(figure))
    rows = [row(9.0, workers=4, global_batch=batch) for batch in (256, 512)] + [
        row(9.0, workers=1, global_batch=64)
    ]
    batches = draw("checkpoint-intervals", tables(*rows))
    assert [axes.get_title() for axes in batches.axes] == [
        "batch 64 per worker",
        "batch 128 per worker",
    ]
    assert "1 worker" in said(batches)


def test_what_is_not_known_is_said_in_place_of_a_curve() -> None:
    shown = tables(row(9.0))
    unknown = (
        shown["costs"]
        .iloc[:1]
        .assign(loss_percent=float("nan"), loss_node_hours=None, why="nobody knows")
    )
    figure = draw("checkpoint-intervals", shown | {"costs": unknown})
    assert [text.get_text() for text in figure.axes[0].texts] == ["nobody knows"]
    assert "?" in [
        text.get_text() for text in draw("cost", shown | {"costs": unknown}).axes[0].texts
    ]
    assert "+3 %" in [text.get_text() for text in draw("cost", shown).axes[0].texts]


def test_interrupted_runs_are_compared_only_by_what_an_interruption_took() -> None:
    """Horovod's restarts take longer; its throughput, of interrupted runs, is in no comparison and
    in no verdict.
    """
    rows = []
    for name, took in (("horovod", 9.0), ("zero-1", 3.0)):
        for repeat in (1, 2, 3, 4):
            of = {
                "device": "cuda",
                "dataset": "imagenet",
                "recipe": "aach2023",
                "global_batch": 256,
            }
            spec = run_spec(framework=name, repeat=repeat, interrupt_steps=60, **of)
            measures = {
                "restart_s": took + repeat / 100,
                "throughput_images_per_s": took,
                "full_train_s": took,
            }
            rows.append(spec.columns() | {"status": "success"} | measures)
    runs = frame("runs", rows)
    table = claim_verdicts.verdicts(
        claims.read(CONFIG / "references/claims.csv"), runs, frame("kernels", [])
    ).set_index("id")
    assert table.loc["comparison2022-spot", "verdict"] == claim_verdicts.SUPPORTED
    assert (
        table.loc["comparison2022-deepspeed-above-horovod-throughput", "verdict"]
        == claim_verdicts.NOT_TESTABLE
    )
    assert comparisons.rows(runs) == []
    assert costs.rows(runs, costs.Terms()) == []


CABLES = tables(
    *(
        row(rate * bandwidth / 10, framework=framework, workers=2, bandwidth_mbit=bandwidth)
        for framework, rate in (("deepspeed", 100.0), ("onebit", 300.0))
        for bandwidth in (10, 100)
    ),
    row(500.0, framework="deepspeed", workers=2),
)


def test_loss_over_samples() -> None:
    (axes,) = draw("loss-samples", tables(row(1.0), row(1.0, framework="horovod"))).axes
    assert lines(axes)["ddp"] == [(1.2, 2.0), (2.4, 1.0), (3.6, 2 / 3)]
    assert axes.get_xlabel() == "images trained on [thousands]"


def test_images_per_joule_stay_on_more_workers_at_best() -> None:
    """3600 images of each run; of one run nobody knows the energy."""
    shown = tables(
        row(100.0, workers=1) | {"energy_j": 900.0},
        row(180.0, workers=2) | {"energy_j": 1200.0},
        row(300.0, workers=4) | {"energy_j": None},
        row(90.0, workers=1, framework="horovod") | {"energy_j": 1800.0},
        row(150.0, workers=2, framework="horovod") | {"energy_j": 1800.0},
    )
    (axes,) = draw("images-per-joule", shown).axes
    drawn = lines(axes)
    assert drawn["ddp"] == [(1, 4.0), (2, 3.0)]
    assert drawn["horovod"] == [(1, 2.0), (2, 2.0)]
    assert drawn["ideal"] == [(1, 4.0), (2, 4.0)]
    assert axes.get_ylabel() == "energy efficiency [images/J]"


def test_throughput_over_bandwidth_leaves_out_runs_without_one() -> None:
    figure = draw("throughput-bandwidth", CABLES)
    (axes,) = figure.axes
    assert lines(axes) == {
        "deepspeed": [(10, 100), (100, 1000)],
        "onebit": [(10, 300), (100, 3000)],
    }
    assert legend(figure) == ["deepspeed", "onebit"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "100"]


def test_a_study_without_bandwidths_has_nothing_to_show() -> None:
    (axes,) = draw("throughput-bandwidth", tables(row(1.0))).axes
    assert _style.NOTHING in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(("node", "kilobytes"), [(4, 100.0), (2, 50.0)])
def test_bytes_sent_are_a_steps_and_a_nodes(node: int, kilobytes: float) -> None:
    """1 500 000 bytes over 3 epochs of 1200 / 256 = 5 steps, from 4 workers on one node, or on
    two.
    """
    (axes,) = draw(
        "bytes-sent", tables(row(1.0, workers=4, workers_per_node=node, global_batch=256))
    ).axes
    assert bars(axes) == {"ddp, 4": [kilobytes]}


def test_bytes_of_a_large_message_are_written_out() -> None:
    rows = [
        row(1.0, workers=4, global_batch=256) | {"network_sent_bytes": sent}
        for sent in (18_100_000, 150_000)
    ]
    rows[1] |= {"framework": "onebit", "run": "other"}
    (axes,) = draw("bytes-sent", tables(*rows)).axes
    assert [text.get_text() for text in axes.texts] == ["1,207", "10"]


def of_terms(terms: Terms, fast: float = 1.0) -> Figure:
    """Price over time of two frameworks, of which the second is half as fast, on one and on two
    nodes.
    """
    rows = [
        row(fast * rate, framework=name, workers=workers, workers_per_node=4)
        | {"nodes": workers // 4}
        for name, by in (("ddp", 1.0), ("horovod", 0.5))
        for workers, rate in ((4, by), (8, 1.6 * by))
    ]
    runs = frame("runs", rows)
    return draw("price-time", {**tables(*rows), "costs": pd.DataFrame(costs.rows(runs, terms))})


def test_price_over_time_is_that_of_whole_nodes_with_the_workers_beside_each_point() -> None:
    figure = of_terms(Terms(None, 5.0, "EUR", None))
    (axes,) = figure.axes
    drawn = lines(axes)
    for name, by in (("ddp", 1), ("horovod", 2)):
        took_h = [(3600 * by + 6) / 3600, (3600 * by / 1.6 + 6) / 3600]
        assert [x for x, _ in drawn[name]] == pytest.approx(took_h)
        assert [y for _, y in drawn[name]] == pytest.approx([5 * took_h[0], 2 * 5 * took_h[1]])
    assert sorted(text.get_text() for text in axes.texts) == ["4", "4", "8", "8"]
    unpriced = lines(of_terms(Terms(None, None, None, None)).axes[0])["ddp"]
    assert [y for _, y in unpriced] == pytest.approx([y / 5 for _, y in drawn["ddp"]])


@pytest.mark.parametrize(("fast", "unit", "first"), [(1e3, "s", 9.6), (10.0, "min", 6.1)])
def test_short_trainings_have_their_time_in_a_unit_that_can_be_read(
    fast: float, unit: str, first: float
) -> None:
    """A training of ten seconds stood at 0.003 h."""
    (axes,) = of_terms(Terms(None, 5.0, "EUR", None), fast).axes
    assert axes.get_xlabel().endswith(f"[{unit}]")
    assert lines(axes)["ddp"][0][0] == pytest.approx(first)


def test_hours_of_nodes_are_no_price_beside_prices() -> None:
    """A setting without a price stood among the others at its node hours."""
    shown = tables(row(9.0, workers=4), row(9.0, workers=8))
    priced = shown["costs"]["workers"] == 4
    shown["costs"] = shown["costs"].assign(
        cost=[50.0 if known else None for known in priced], currency="EUR"
    )
    made = registry.member("figures", "price-time").data(shown, OPTIONS)
    assert made[["workers", "price"]].values.tolist() == [[4, 50.0]]


def test_losses_of_a_weak_and_of_a_strong_series_stand_apart() -> None:
    """A run of four workers is in both."""
    kinds = [("weak", n, 64 * n) for n in (1, 2)] + [(None, 4, 256)]
    kinds += [("strong", n, 256) for n in (1, 2)]
    rows = [
        row(100.0 * n, workers=n, global_batch=batch) | {"scaling": kind}
        for kind, n, batch in kinds
    ]
    made = tables(*rows)
    data = registry.member("figures", "efficiency-loss").data(made, OPTIONS)
    assert sorted(zip(data["workers"], data["global_batch"].fillna(0), strict=True)) == [
        (2, 0),
        (2, 256),
        (4, 0),
        (4, 256),
    ]
    assert len(draw("efficiency-loss", made).axes) == 2
