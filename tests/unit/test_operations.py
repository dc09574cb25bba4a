"""DeepSpeed's counts of operations and messages become tables. `deepspeed/` holds what DeepSpeed
0.19.6 really counted of resnet8_half and eight pictures of 32 pixels, its log of messages of three
steps, and PyTorch's own count.

Shares of kernel time: of profiled runs' records, and which kernel is of which kind.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.analysis.kernels import CLASSES, kernel_class, shares, with_published
from ddlbench.analysis.published_operations import read_published
from ddlbench.analysis.sheets import messages, operations
from ddlbench.core import registry
from ddlbench.core.columns import Why
from ddlbench.core.record import COMMS, FLOPS, FLOPS_COUNTED, KERNELS
from ddlbench.settings.config import CONFIG
from ddlbench.show.figures.operations import shown_modules
from ddlbench.train import profiler

from tests.builders.records import SPEC, seal_again, write_record
from tests.facts import missing
from tests.unit.drawings import OPTIONS, legend

LEFT = Path(__file__).parent / "deepspeed"
PROFILE = json.loads((LEFT / FLOPS).read_text(encoding="utf-8"))
COUNTED = json.loads((LEFT / FLOPS_COUNTED).read_text(encoding="utf-8"))
LOG = (LEFT / COMMS).read_text(encoding="utf-8")
RESNET = replace(SPEC, model="resnet8_half")


def made() -> pd.DataFrame:
    return pd.DataFrame(operations.rows(PROFILE, COUNTED, RESNET)).set_index("module")


def test_every_module_of_the_model_is_there() -> None:
    table = made()
    # 9 modules, of which 3 hold one that holds 5
    assert len(table) == 1 + 9 + 3 * (1 + 5)
    assert table.index[0] == "(model)"
    assert table.loc["5.convolutions.3", ["kind", "depth", "parameters"]].tolist() == [
        "Conv2d",
        3,
        9216,
    ]
    assert table.loc["3", "kind"] == "_Residual"


def test_deepspeed_and_pytorch_count_the_same_operations_of_one_picture() -> None:
    table = made()
    ours, theirs = table["deepspeed_flops_per_image"], table["torch_flops_per_image"]
    assert theirs["(model)"] == 6_341_248
    assert theirs["6"] == ours["6"] == 0  # a pooling layer, which neither counts
    assert ours.tolist() == theirs.tolist()


def test_a_module_takes_as_long_as_its_parts_at_least() -> None:
    took = made()["forward_s"]
    assert took["(model)"] >= took["5"] >= took["5.convolutions"] >= took["5.convolutions.3"] > 0


@pytest.mark.parametrize(
    "profile",
    [
        {},
        [],
        {"images": 8},
        PROFILE | {"images": 0},
        {
            "images": 8,
            "modules": [
                {"module": "", "kind": "Linear", "parameters": 1, "macs": -1, "forward_s": 1.0}
            ],
        },
        {
            "images": 8,
            "modules": [
                {"module": "", "kind": "Linear", "parameters": 1, "macs": None, "forward_s": 1.0}
            ],
        },
        {"images": 8, "modules": [{"module": ""}]},
    ],
    ids=str,
)
def test_a_damaged_profile_is_a_reason(profile: Any, tmp_path: Path) -> None:
    (tmp_path / FLOPS).write_text(json.dumps(profile))
    assert str(operations.of_run(tmp_path, RESNET)).startswith(FLOPS)


def test_a_profile_that_is_cut_off_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / FLOPS).write_text(json.dumps(PROFILE)[:100])
    assert str(operations.of_run(tmp_path, RESNET)).startswith(FLOPS)


def test_published_counts_stand_beside_whole_models_of_their_size_only() -> None:
    published = read_published()
    assert published["resnet50", 224][0] == 2 * 4.089e9
    rows = [
        {"model": "resnet50", "image_size": size, "module": module}
        for size in (32, 224)
        for module in ("(model)", "layer1")
    ]
    found = [row["published_flops_per_image"] for row in operations.add_published(rows, published)]
    assert found == [None, None, 2 * 4.089e9, None]


def test_messages_by_operation_and_size() -> None:
    rows = messages.parse(LOG)
    assert {row["operation"] for row in rows} == {"broadcast", "all_reduce"}
    gradients = rows[-1]
    weights = 4 * sum(p["parameters"] for p in operations.rows(PROFILE, {}, RESNET)[:1])
    assert gradients["message_bytes"] == pytest.approx(
        weights, rel=0.001
    )  # one message of all gradients for each step
    assert (gradients["messages"], gradients["bytes"]) == (3, 3 * gradients["message_bytes"])


@pytest.mark.parametrize(
    "text", ["", "all_reduce\n", LOG.replace("KB", "kilobytes"), LOG.replace("all_reduce", "a b")]
)
def test_a_damaged_log_of_messages_is_a_reason(text: str, tmp_path: Path) -> None:
    (tmp_path / COMMS).write_text(text)
    assert isinstance(messages.of_run(tmp_path, SPEC), Why)


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
    reasons = pd.read_parquet(tmp_path / "tables/not_measured.parquet").set_index("column")[
        "reason"
    ]
    assert reasons["operations"].startswith(FLOPS)


def test_the_figure_cuts_a_model_into_as_many_modules_as_can_be_read() -> None:
    table = made().reset_index()
    shown = list(table.loc[shown_modules(table), "module"])
    leaves = [f"{block}.convolutions.{layer}" for block in (3, 4, 5) for layer in (0, 3)]
    assert shown == ["(model)", "0", *leaves, "8"]
    wide = pd.concat(
        [
            table,
            *(table[table["module"] == "8"].assign(module=f"9.{n}", depth=2) for n in range(25)),
        ]
    )
    wide = pd.concat([wide, table[table["module"] == "8"].assign(module="9")])
    assert list(wide.loc[shown_modules(wide), "module"]) == [
        "(model)",
        "0",
        "3",
        "4",
        "5",
        "8",
        "9",
    ]


def test_the_figure_has_a_bar_of_each_counter_and_what_was_published() -> None:
    rows = operations.rows(PROFILE, COUNTED, RESNET)
    rows = operations.add_published(
        rows, {("resnet8_half", RESNET.recipe.image_size): (7e6, "somebody")}
    )
    member = registry.member("figures", "operations")
    data = member.data({"operations": pd.DataFrame(rows)}, OPTIONS)
    figure = member.draw(data, OPTIONS)
    (axes,) = figure.axes
    widths = [bar.get_width() for bar in axes.patches]
    assert len(widths) == 2 * 9
    assert max(widths) == pytest.approx(6.341, rel=0.001)
    assert legend(figure) == ["DeepSpeed's profiler", "PyTorch's counter", "published: whole model"]


@pytest.mark.slow
def test_published_counts_are_those_of_the_models_here() -> None:
    """By PyTorch's counter on the meta device. Published ones have two to five digits."""
    from ddlbench.train import models

    for (name, size), (flops, by) in read_published().items():
        counted = models.forward_flops(models.build(name, 1000, size), size)[""]
        assert counted == pytest.approx(flops, rel=0.005), (name, by)


def test_kernel_shares_of_profiled_runs(tmp_path: Path) -> None:
    profiled = [replace(SPEC, timed=False, profiled=True, repeat=repeat) for repeat in (1, 2, 3)]
    folders = [write_record(tmp_path / f"r{spec.repeat}", spec) for spec in profiled]
    rows = [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "device", 3.0, False),
        ("nccl:all_reduce", "device", 3.0, True),  # the span of the same kernel
        ("Memcpy HtoD (Pinned -> Device)", "device", 1.0, False),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32", "device", 3.0, False),
        ("void at::native::vectorized_elementwise_kernel<4>", "device", 1.0, False),
        ("Memset (Device)", "device", 2.0, False),
        ("aten::conv2d", "cpu", 100.0, False),  # the operator that launched a kernel
    ]
    frame = pd.DataFrame(rows, columns=["name", "on", "self_s", "annotation"]).assign(calls=1)
    frame.to_parquet(folders[0] / "kernels.parquet")
    frame[3:].to_parquet(
        folders[1] / "kernels.parquet"
    )  # two workers, and no communication is to be seen
    for folder in folders[:2]:
        seal_again(folder)
    collect([*folders, write_record(tmp_path / "timed")], tmp_path / "tables")
    (row,) = pd.read_parquet(tmp_path / "tables/kernels.parquet").to_dict("records")
    assert (row["run"], row["model"], row["workers"], row["loader"]) == (
        profiled[0].id,
        "lenet",
        2,
        "native",
    )
    assert (row["on"], row["kernel_s"]) == ("device", 10)
    percent = [row[f"{name}_percent"] for name in CLASSES]
    assert percent == pytest.approx([30, 10, 30, 10, 20])
    table = pd.read_parquet(tmp_path / "tables/not_measured.parquet")
    why = table[table["column"] == "communication_percent"].set_index("run")["reason"].to_dict()
    assert [*why] == [profiled[1].id, profiled[2].id]
    assert (
        missing(why[profiled[1].id], "framework ddp")
        == missing(why[profiled[2].id], "kernels.parquet")
        == []
    )


def test_kernel_shares_without_a_device() -> None:
    rows = [
        ("gloo:all_reduce", 2.0, False),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1.0, True),
        ("ProfilerStep*", 50.0, True),
        ("aten::addmm", 3.0, False),
        ("aten::native_batch_norm", 1.0, False),
        ("aten::copy_", 1.0, False),
    ]
    frame = pd.DataFrame(rows, columns=["name", "self_s", "annotation"]).assign(calls=1, on="cpu")
    found = shares(frame)
    percents = dict(zip(CLASSES, (25.0, 12.5, 37.5, 12.5, 12.5), strict=True))
    assert found == {"on": "cpu", "kernel_s": 8.0} | {
        f"{name}_percent": share for name, share in percents.items()
    }
    assert shares(frame[:0]) is None


KINDS = {
    "communication": [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t",
        "gloo:all_reduce",
        "c10d::allreduce_",
        "torch.distributed.ddp.reducer::copy_bucket_to_grad",
        "torch::distributed::reducer::mul_out",
    ],
    "input": [
        "Memcpy HtoD (Pinned -> Device)",
        "[CUDA memcpy HtoD]",
        "void dali::kernels::slice_flip_normalize::SliceNormalizeKernel_2D<float, unsigned char>",
        "nvjpeg::decoder::idct_kernel",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    ],
    "computation": [
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
        "ampere_sgemm_128x64_tn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized>",
        "ampere_scudnn_128x64_relu_interior_nn_v1",  # a convolution of cuDNN's
        (
            "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true,"
            " (cudnnKernelDataType_t)2>"
        ),
        "aten::mkldnn_convolution",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    ],
    "elementwise": [
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1>",
        "void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, float>",
        "void cudnn::pooling_fw_4d_kernel<float, float>",
        "aten::cudnn_batch_norm",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",  # no collective
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<lambda>",
        "triton_poi_fused_convolution_relu_0",
        "aten::topk",
        "aten::threshold_backward",
    ],
    "other": [
        "Memcpy DtoD (Device -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memset (Device)",
        "aten::copy_",
        "aten::as_strided",
        "aten::t",
        "cudaLaunchKernel",
        "a kernel that nobody knows",
    ],
}


@pytest.mark.parametrize(
    ("expected", "name"), [(k, name) for k, names in KINDS.items() for name in names]
)
def test_kernels_are_told_apart_by_name(expected: str, name: str) -> None:
    assert kernel_class(name) == expected


def test_ours_stand_beside_what_was_published_of_the_same() -> None:
    """Table 2 of Aach et al. 2023: its communication and its cuDNN; its I/O is of something else.
    On CPUs none is.
    """
    ours = {
        "model": "resnet50",
        "framework": "ddp",
        "workers": 512,
        "kernel_s": 1.0,
        "on": "device",
    }
    ours |= {f"{name}_percent": 20.0 for name in CLASSES}
    rows = [ours | {"run": f"{loader}-{on}", "loader": loader, "on": on} for loader, on in (
        ("torchvision", "device"), ("dali-cpu", "device"), ("synthetic", "device"), ("torchvision", "cpu"),
    )]  # fmt: skip
    published = pd.read_csv(CONFIG / "references/aach2023-kernels.csv")
    found = with_published(pd.DataFrame(rows), published).set_index("run")
    names = ["published_communication_percent", "published_computation_percent"]
    assert found.loc["torchvision-device", names].tolist() == [82.61, 5.52]
    assert found.loc["dali-cpu-device", names].tolist() == [43.48, 20.02]
    assert found.loc[["synthetic-device", "torchvision-cpu"], names].isna().all(axis=None)
    assert [name for name in found if name.startswith("published_")] == names
    assert len(found) == len(rows)


PROFILED = replace(SPEC, timed=False, profiled=True, workers=1)


@pytest.mark.parametrize("done", [0, 13])
def test_rank_0_leaves_the_kernels_of_the_last_steps(tmp_path: Path, done: int) -> None:
    import torch

    steps = 8
    step = profiler.start(PROFILED, 0, tmp_path, steps, done)
    for number in range(done, PROFILED.epochs * steps):
        with torch.profiler.record_function("a span of ours"):
            torch.ones(64, 64) @ torch.ones(64, 64)
            if number < 9:
                torch.ones(4).sin()  # before the steps that are profiled
        step()
    table = pd.read_parquet(tmp_path / KERNELS).set_index("name")
    assert list(table) == ["on", "calls", "self_s", "annotation"]
    assert table.loc["aten::mm", "calls"] == {0: 5, 13: 1}[done]
    assert table.loc["aten::mm", "self_s"] > 0
    assert set(table["on"]) == {"cpu"}
    assert table.loc["a span of ours", "annotation"]
    assert not table.loc["aten::mm", "annotation"]
    assert "aten::sin" not in table.index


def test_a_span_that_took_less_than_its_parts_has_no_time_of_its_own() -> None:
    """PyTorch's profiler says so of FSDP's backward pass on GPUs; a record with a negative time
    would be refused.
    """
    of = SimpleNamespace(name="CPU")
    event = SimpleNamespace(
        key="post", count=1, device_type=of, self_cpu_time_total=-29e3, is_async=False
    )
    assert profiler._row(SimpleNamespace(**vars(event), is_user_annotation=True))["self_s"] == 0


def test_nobody_else_profiles(tmp_path: Path) -> None:
    for spec, rank in ((SPEC, 0), (PROFILED, 1)):
        step = profiler.start(spec, rank, tmp_path, 2)
        for _ in range(4):
            step()
    assert not list(tmp_path.iterdir())


def test_nsys_goes_before_ranks_of_profiled_runs(tmp_path: Path) -> None:
    prefix = profiler.nsys_prefix(PROFILED, "/opt/bin/nsys", Path("results/x"), 0)
    assert prefix == (
        "/opt/bin/nsys", "profile", "--trace=nvtx,osrt", "--sample=none", "--force-overwrite=true",
        "--output=results/x/nsys-%h-%p",
    )  # fmt: skip
    assert profiler.nsys_prefix(SPEC, "/opt/bin/nsys", tmp_path, 0) == ()
    assert profiler.nsys_prefix(PROFILED, None, tmp_path, 0) == ()
    assert profiler.nsys_prefix(PROFILED, "/opt/bin/nsys", tmp_path, 1) == ()
