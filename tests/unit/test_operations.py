"""DeepSpeed's tables of operations and messages become ours. `deepspeed/` holds what DeepSpeed 0.19.6 really wrote
about three steps of resnet8_half with eight pictures of 32 pixels, and PyTorch's own count.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis import operations
from ddlbench.analysis.collect import collect
from ddlbench.core import registry
from ddlbench.core.columns import Why
from ddlbench.core.record import COMMS, FLOPS, FLOPS_COUNTED
from ddlbench.show.figures.operations import shown_modules

from tests.unit.drawings import OPTIONS, legend
from tests.unit.records import SPEC, seal_again, write_record

LEFT = Path(__file__).parent / "deepspeed"
TEXT = (LEFT / FLOPS).read_text(encoding="utf-8")
COUNTED = json.loads((LEFT / FLOPS_COUNTED).read_text(encoding="utf-8"))
LOG = (LEFT / COMMS).read_text(encoding="utf-8")
RESNET = replace(SPEC, model="resnet8_half")


def made() -> pd.DataFrame:
    return pd.DataFrame(operations.rows(operations.parse(TEXT), COUNTED, RESNET)).set_index("module")


def test_every_module_of_the_model_is_there() -> None:
    profile = operations.parse(TEXT)
    assert (profile.batch, profile.forward_s) == (8, pytest.approx(0.00635))
    # 9 modules, of which 3 hold one that holds 5
    assert len(profile.modules) == 1 + 9 + 3 * (1 + 5)
    table = made()
    assert table.index[0] == "(model)"
    assert table.loc["5.convolutions.3", ["kind", "depth", "parameters"]].tolist() == ["Conv2d", 3, 9220]
    assert table.loc["3", "kind"] == "_Residual"


def test_deepspeed_and_pytorch_count_the_same_operations_of_one_picture() -> None:
    table = made()
    ours, theirs = table["deepspeed_flops_per_image"], table["torch_flops_per_image"]
    assert theirs["(model)"] == 6_341_248
    assert theirs["6"] == ours["6"] == 0  # a pooling layer, which neither counts
    assert (ours - theirs).abs().max() <= 0.005 * theirs.max()
    assert ours.tolist() == pytest.approx(theirs.tolist(), rel=0.005)  # DeepSpeed writes two decimals


def test_a_time_that_cannot_be_is_null() -> None:
    """DeepSpeed 0.19.6 misses the start of the whole model, and writes the time since 1970."""
    table = made()
    assert "1.8 Gs" in TEXT
    assert pd.isna(table.loc["(model)", "forward_s"])
    assert table.loc["0", "forward_s"] == pytest.approx(0.00259)
    assert table["forward_s"].dropna().max() < 0.00635


def test_modules_that_torch_writes_in_one_line_are_each_a_module() -> None:
    counts = "0 = 0% Params, 0 MACs = 0% MACs, 1 us = 0% latency, 0 FLOPS"
    text = TEXT.replace(
        "  (6): Adaptive", f"  (9): ModuleList(\n    {counts}\n    (2-4): 3 x Identity({counts})\n  )\n  (6): Adaptive"
    )
    places = [".".join(module.path) for module in operations.parse(text).modules]
    assert [place for place in places if place.startswith("9")] == ["9", "9.2", "9.3", "9.4"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text[: text.index("\n)\n")],  # only the end of the model is missing
        lambda text: text.replace("batch size per GPU", "batch"),
        lambda text: text.replace("MACs,", "things,"),
    ],
)
def test_a_damaged_profile_is_a_reason(change: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / FLOPS).write_text(change(TEXT))
    assert str(operations.of_run(tmp_path, RESNET)).startswith("flops.txt")


def test_published_counts_stand_beside_whole_models_of_their_size_only() -> None:
    published = operations.read_published()
    assert published["resnet50", 224][0] == 2 * 4.089e9
    rows = [
        {"model": "resnet50", "image_size": size, "module": module}
        for size in (32, 224)
        for module in ("(model)", "layer1")
    ]
    found = [row["published_flops_per_image"] for row in operations.add_published(rows, published)]
    assert found == [None, None, 2 * 4.089e9, None]


def test_messages_by_operation_and_size() -> None:
    rows = operations.parse_messages(LOG)
    assert {row["operation"] for row in rows} == {"broadcast", "all_reduce"}
    gradients = rows[-1]
    weights = 4 * sum(p["parameters"] for p in operations.rows(operations.parse(TEXT), {}, RESNET)[:1])
    assert gradients["message_bytes"] == pytest.approx(weights, rel=0.001)  # one message of all gradients for each step
    assert (gradients["messages"], gradients["bytes"]) == (3, 3 * gradients["message_bytes"])


@pytest.mark.parametrize("text", ["", "all_reduce\n", LOG.replace("KB", "kilobytes"), LOG.replace("all_reduce", "a b")])
def test_a_damaged_log_of_messages_is_a_reason(text: str, tmp_path: Path) -> None:
    (tmp_path / COMMS).write_text(text)
    assert isinstance(operations.messages(tmp_path, SPEC), Why)


def test_collect_writes_both_tables_and_reads_them_again_when_they_change(tmp_path: Path) -> None:
    folder = write_record(tmp_path, RESNET)
    plain = write_record(tmp_path, replace(RESNET, repeat=2))
    for name in (FLOPS, FLOPS_COUNTED, COMMS):
        shutil.copy(LEFT / name, folder)
    seal_again(folder)
    for _ in range(2):  # the second time from the summary
        collect([folder, plain], tmp_path / "tables")
        table = pd.read_parquet(tmp_path / "tables/operations.parquet")
        assert set(table["run"]) == {RESNET.id}
        assert table["torch_flops_per_image"].max() == 6_341_248
        assert pd.read_csv(tmp_path / "tables/messages.csv")["messages"].sum() == 26
    (folder / COMMS).write_text("\n".join(LOG.splitlines()[:3]))
    (folder / FLOPS).write_text("cut off")
    seal_again(folder)
    collect([folder, plain], tmp_path / "tables")
    assert pd.read_csv(tmp_path / "tables/messages.csv")["messages"].tolist() == [6]
    assert pd.read_parquet(tmp_path / "tables/operations.parquet").empty
    assert len(pd.read_parquet(tmp_path / "tables/runs.parquet")) == 2
    reasons = pd.read_parquet(tmp_path / "tables/not_measured.parquet").set_index("column")["reason"]
    assert reasons["operations"].startswith("flops.txt")


def test_the_figure_cuts_a_model_into_as_many_modules_as_can_be_read() -> None:
    table = made().reset_index()
    shown = list(table.loc[shown_modules(table), "module"])
    leaves = [f"{block}.convolutions.{layer}" for block in (3, 4, 5) for layer in (0, 3)]
    assert shown == ["(model)", "0", *leaves, "8"]
    wide = pd.concat([table, *(table[table["module"] == "8"].assign(module=f"9.{n}", depth=2) for n in range(25))])
    wide = pd.concat([wide, table[table["module"] == "8"].assign(module="9")])
    assert list(wide.loc[shown_modules(wide), "module"]) == ["(model)", "0", "3", "4", "5", "8", "9"]


def test_the_figure_has_a_bar_of_each_counter_and_what_was_published() -> None:
    rows = operations.rows(operations.parse(TEXT), COUNTED, RESNET)
    rows = operations.add_published(rows, {("resnet8_half", RESNET.recipe.image_size): (7e6, "somebody")})
    member = registry.member("figures", "operations")
    data = member.data({"operations": pd.DataFrame(rows)}, OPTIONS)
    figure = member.draw(data, OPTIONS)
    (axes,) = figure.axes
    widths = [bar.get_width() for bar in axes.patches]
    assert len(widths) == 2 * 9
    assert max(widths) == pytest.approx(6.341, rel=0.001)
    assert legend(figure) == ["DeepSpeed's profiler", "PyTorch's counter", "published: whole model"]


def test_a_counter_that_an_older_record_lacks_has_no_bars() -> None:
    member = registry.member("figures", "operations")
    data = member.data({"operations": pd.DataFrame(operations.rows(operations.parse(TEXT), {}, RESNET))}, OPTIONS)
    figure = member.draw(data, OPTIONS)
    assert len(figure.axes[0].patches) == 9
    assert legend(figure) == ["DeepSpeed's profiler"]


@pytest.mark.slow
def test_published_counts_are_those_of_the_models_here() -> None:
    """By PyTorch's counter on the meta device. Published ones have two to five digits."""
    from ddlbench.train import models

    for (name, size), (flops, by) in operations.read_published().items():
        counted = models.forward_flops(models.build(name, 1000, size), size)[""]
        assert counted == pytest.approx(flops, rel=0.005), (name, by)
