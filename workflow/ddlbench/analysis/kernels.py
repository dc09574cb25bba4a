"""Kernels to shares: how much of a profiled run's kernel time is communication, input, computation, as in Table 2 of
Aach et al. 2023, J Big Data 10:96, doi:10.1186/s40537-023-00765-w.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

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
SHARES = {
    "run": "str",
    "model": "str",
    "framework": "str",
    "loader": "str",
    "workers": "int64",
    "on": "str",
    "kernel_s": "float64",
} | {f"{name}_percent": "float64" for name in CLASSES}


def kind(name: str) -> str:
    """What a kernel or operator does, by its name: one of CLASSES. Upper and lower case are the same."""
    return next((k for k, pattern in _PATTERNS.items() if re.search(pattern, name.lower())), "other")


def shares(kernels: pd.DataFrame) -> dict[str, Any] | None:
    """Percent of the kernel time that each class has, of one run's `kernels.parquet` (see `profiler.py`).

    Kernels of the device count; where there are none (CPUs), the operators' own time, and the loader's spans, because
    waiting for a loader has no operator. Kernels that ran at the same time all count with their whole time, as in the
    paper, so communication behind computation has its share too. `kernel_s` is the time that is the 100 % [s], `on`
    where it was spent. None if nothing was recorded.
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
