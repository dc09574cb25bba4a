"""Shares of a profiled run's kernel time: communication, input, computation, other.

Source: Table 2 of Aach et al. 2023, J Big Data 10:96, doi:10.1186/s40537-023-00765-w.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from ddlbench.analysis.read import Record
from ddlbench.columns import Column, Why
from ddlbench.record import KERNELS

CLASSES = ("communication", "input", "computation", "other")
# The first class whose pattern is found in a kernel's name; none: other.
_PATTERNS = {
    # Collectives of NCCL and Gloo, and what hands gradients to them and back.
    "communication": r"nccl|gloo|c10d::|horovod|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|torch(\.|::)distributed|compressed_backend",
    # From the disk to the device: loaders' and decoders' kernels, copies to the device.
    "input": r"dali|dataloader|nvjpeg|nvimgcodec|npp[is]_|memcpy ?h(ost)?to?d",
    # What moves or makes memory without computing: before computation, because of its `aten::`.
    "other": r"^memcpy|^memset|^aten::_?(copy_?|to|to_copy|empty\w*|new_\w+|zeros?\w*|ones\w*|full\w*|fill\w*|view\w*"
    r"|unsafe_view|reshape\w*|resize\w*|as_strided\w*|t|transpose\w*|permute|detach\w*|slice|select|narrow|split\w*"
    r"|chunk|unbind|expand\w*|squeeze\w*|unsqueeze\w*|contiguous|clone|cat|stack|alias|lift_fresh|item"
    r"|local_scalar_dense|pin_memory|is_pinned|set_|record_stream|result_type|unflatten\w*|flatten\w*)$",
    "computation": r"cudnn|cublas|cutlass|gemm|gemv|xmma|nvjet|winograd|convol|conv\dd|dgrad|wgrad|sm\d\d_|mkldnn"
    r"|batch_?norm|layer_?norm|bn_(fw|bw)|elementwise|vectorized|reduce_kernel|softmax|nll_loss|cross_entropy|pool"
    r"|relu|gelu|dropout|attention|flash|fmha|multi_tensor|foreach|fft|nchw|nhwc|triton|adam|sgd"
    r"|^aten::|^autograd::|backward|at::native::",
}
_MEANS = {
    "communication": "Collectives of NCCL and Gloo, and what hands gradients to them and back.",
    "input": "Loading, decoding and copies to the device.",
    "computation": "Convolutions, matrix products and everything between them.",
    "other": "Everything else: mostly what moves or makes memory without computing.",
}
COLUMNS = (
    Column("run", "str", "The profiled run."),
    Column("model", "str", "Its model."),
    Column("framework", "str", "Its framework."),
    Column("loader", "str", "Its loader."),
    Column("workers", "int64", "Its number of workers."),
    Column("on", "str", "Where the time was spent: `device`, or `cpu` where no device was used."),
    Column("kernel_s", "float64", "Time of all kernels in the profiled steps; it is the 100 %.", "s"),
    *(Column(f"{name}_percent", "float64", _MEANS[name], "%") for name in CLASSES),
)


def kind(name: str) -> str:
    """What a kernel or operator does, by its name: one of CLASSES. Upper and lower case are the same."""
    return next((k for k, pattern in _PATTERNS.items() if re.search(pattern, name.lower())), "other")


def shares(kernels: pd.DataFrame) -> dict[str, Any] | None:
    """Each class's share of the kernel time [%] in one run's `kernels.parquet` (see `rank/profiler.py`).

    Kernels of the device count. Where there are none (CPUs), the operators' own time counts instead, and the loader's
    spans, because waiting for a loader has no operator. Kernels that ran at the same time all count with their whole
    time, as in the paper, so communication behind computation has its share too. None if nothing was recorded.
    """
    kinds = kernels["name"].map(kind)
    where = "device" if (kernels["on"] == "device").any() else "cpu"
    counted = (kernels["on"] == where) & (~kernels["annotation"] | ((where == "cpu") & (kinds == "input")))
    total = float(kernels["self_s"].where(counted, 0.0).sum())
    if not total:
        return None
    by_kind = kernels["self_s"].where(counted, 0.0).groupby(kinds).sum()
    percent = {f"{name}_percent": 100 * float(by_kind.get(name, 0.0)) / total for name in CLASSES}
    return {"on": where, "kernel_s": total} | percent


def row(record: Record) -> dict[str, Any] | Why:
    """A profiled run's row of table `kernels`, or the reason why it has none."""
    spec = record.spec
    measured = None if record.kernels is None else shares(record.kernels)
    if measured is None:
        return Why(f"the profiler left no {KERNELS}")
    if spec.workers > 1 and measured["communication_percent"] == 0:
        return Why(f"the profiler cannot see how framework {spec.framework} communicates here")
    about = {"model": spec.model, "framework": spec.framework, "loader": spec.loader, "workers": spec.workers}
    return {"run": spec.id} | about | measured
