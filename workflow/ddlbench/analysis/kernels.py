"""Shares of a profiled run's kernel time: communication, input, computation, element-wise, other.

Source: Table 2 of Aach et al. 2023, J Big Data 10:96, doi:10.1186/s40537-023-00765-w. Its shares
are those of NCCL, of cuDNN (the convolutions, as its text explains) and of loading. `with_published` puts
ours next to them where both mean the same.
"""

import re
from typing import Any

import pandas as pd

from ddlbench.analysis.record import Record
from ddlbench.core import registry
from ddlbench.core.columns import Column, Why
from ddlbench.core.record import KERNELS

# What a file of published shares calls ours, where both mean the same on a GPU. Its `io_percent` is
# not among them: a native loader runs no kernels, and has a fifth of the time there.
PUBLISHED = {"allreduce_percent": "communication_percent", "cudnn_percent": "computation_percent"}
CLASSES = ("communication", "input", "computation", "elementwise", "other")
# The first class whose pattern is found in a kernel's name; none: other. The order matters: names
# of convolutions have `relu` in them, and those of kernels that a compiler fused have
# `convolution`.
_PATTERNS = (
    # Collectives of NCCL and Gloo, and what hands gradients to them and back.
    (
        "communication",
        r"nccl|gloo|c10d::|horovod|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
        r"|torch(\.|::)distributed|compressed_backend",
    ),
    # From the disk to the device: loaders' and decoders' kernels, copies to the device.
    ("input", r"dali|dataloader|nvjpeg|nvimgcodec|npp[is]_|memcpy ?h(ost)?to?d"),
    # What moves or makes memory without computing: before computation, because of its `aten::`.
    (
        "other",
        r"^memcpy|^memset|^aten::_?(copy_?|to|to_copy|empty\w*|new_\w+|zeros?\w*|ones\w*|full\w*|fill\w*|view\w*"
        r"|unsafe_view|reshape\w*|resize\w*|as_strided\w*|t|transpose\w*|permute|detach\w*|slice|select|narrow|split\w*"
        r"|chunk|unbind|expand\w*|squeeze\w*|unsqueeze\w*|contiguous|clone|cat|stack|alias|lift_fresh|item"
        r"|local_scalar_dense|pin_memory|is_pinned|set_|record_stream|result_type|unflatten\w*|flatten\w*)$",
    ),
    # Whatever library does it: cuDNN normalises and pools too.
    (
        "elementwise",
        r"^triton_(poi|red|per)|(batch|layer|group|instance|sync)_?norm|bn_(fw|bw)|(pooling|softmax)_(fw|bw)",
    ),
    (
        "computation",
        r"cudnn|cublas|cutlass|gemm|gemv|xmma|nvjet|winograd|convol|conv\dd|dgrad|wgrad|sm\d\d_|fft"
        r"|nchwtonhwc|nhwctonchw|attention|flash|fmha|mkldnn_linear|^triton_tem|(mm|linear|matmul)backward"
        r"|^aten::_?(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|matmul|linear|linear_backward|einsum|conv\w*)$",
    ),
    (
        "elementwise",
        r"elementwise|vectorized|reduce_kernel|softmax|nll_loss|cross_entropy|pool|relu|gelu|dropout|norm"
        r"|multi_tensor|foreach|adam|sgd|triton|nchw|nhwc|^aten::|^autograd::|backward|at::native::",
    ),
)
_MEANS = {
    "communication": "Collectives of NCCL and Gloo, and what hands gradients to them and back.",
    "input": "Loading, decoding and copies to the device.",
    "computation": "Convolutions and matrix products, attention among them.",
    "elementwise": "Element-wise operations, normalisation, pooling, loss and optimizer.",
    "other": "Everything else: mostly what moves or makes memory without computing.",
}
COLUMNS = (
    Column("run", "str", "The profiled run."),
    Column("model", "str", "Its model."),
    Column("framework", "str", "Its framework."),
    Column("loader", "str", "Its loader."),
    Column("workers", "int64", "Its number of workers."),
    Column("on", "str", "Where the time was spent: `device`, or `cpu` where no device was used."),
    Column(
        "kernel_s", "float64", "Time of all kernels in the profiled steps; it is the 100 %.", "s"
    ),
    *(Column(f"{name}_percent", "float64", _MEANS[name], "%") for name in CLASSES),
)


def kernel_class(name: str) -> str:
    """Return what a kernel or operator does, by its name: one of CLASSES.

    Upper and lower case are the same.
    """
    return next((k for k, pattern in _PATTERNS if re.search(pattern, name.lower())), "other")


def shares(kernels: pd.DataFrame) -> dict[str, Any] | None:
    """Return each class's share of the kernel time [%] in one run's `kernels.parquet` (see
    `train/profiler.py`).

    Kernels of the device count. Where there are none (CPUs), the operators' own time counts
    instead, and the loader's spans, because waiting for a loader has no operator. Kernels that ran
    at the same time all count with their whole time, as in the paper, so communication behind
    computation has its share too. None if nothing was recorded.
    """
    kinds = kernels["name"].map(kernel_class)
    where = "device" if (kernels["on"] == "device").any() else "cpu"
    counted = (kernels["on"] == where) & (
        ~kernels["annotation"] | ((where == "cpu") & (kinds == "input"))
    )
    total = float(kernels["self_s"].where(counted, 0.0).sum())
    if not total:
        return None
    by_kind = kernels["self_s"].where(counted, 0.0).groupby(kinds).sum()
    percent = {f"{name}_percent": 100 * float(by_kind.get(name, 0.0)) / total for name in CLASSES}
    return {"on": where, "kernel_s": total} | percent


def row(record: Record) -> dict[str, Any] | Why:
    """Return a profiled run's row of table `kernels`, or the reason why it has none."""
    spec = record.spec
    measured = None if record.kernels is None else shares(record.kernels)
    if measured is None:
        return Why(f"the profiler left no {KERNELS}")
    if spec.workers > 1 and measured["communication_percent"] == 0:
        return Why(f"the profiler cannot see how framework {spec.framework} communicates here")
    about = {
        "model": spec.model,
        "framework": spec.framework,
        "loader": spec.loader,
        "workers": spec.workers,
    }
    return {"run": spec.id} | about | measured


WITH_PUBLISHED = (
    *COLUMNS[1:6],
    *(
        Column(f"{prefix}{name}_percent", "float64", means, "%")
        for name in CLASSES
        for prefix, means in (
            ("", _MEANS[name]),
            ("published_", "The same as published; of CUDA kernels only."),
        )
        if not prefix or f"{name}_percent" in PUBLISHED.values()
    ),
    Column("doubt", "str", "What is wrong with the published row."),
    Column("run", "str", "Ours."),
)


def with_published(kernels: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return rows of table `kernels`, in the columns of WITH_PUBLISHED: our shares next to those of a file
    of `config/references`.

    No published share is put beside shares of a CPU's time, which measure something else. A loader
    is found by its family (`dali`).
    """
    theirs = published.rename(
        columns={name: f"published_{ours}" for name, ours in PUBLISHED.items()}
    )
    theirs = theirs.rename(columns={"loader": "family"}).astype({"workers": "int64"})
    keyed = kernels.assign(family=kernels["loader"].map(registry.family))
    rows = keyed.merge(theirs, on=["model", "family", "workers"], how="left")
    names = [f"published_{ours}" for ours in PUBLISHED.values()] + ["doubt"]
    rows = rows.reindex(columns=[*rows, *(name for name in names if name not in rows)])
    rows[names] = rows[names].astype(object).where(rows["on"] == "device", None)
    return rows.sort_values(["model", "loader", "framework", "workers"])[
        [column.name for column in WITH_PUBLISHED]
    ]
