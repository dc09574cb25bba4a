"""torchvision, where its compiled part does not fit torch: timm and loader `torchvision` need none of that."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def mend() -> None:
    """Let a CUDA-built torchvision be imported beside a CPU-built torch.

    Its compiled part cannot load there, and importing it then fails on two operators that it describes to the
    compiler; defining their signatures first is enough. Does nothing where the compiled part loads.
    """
    import torch

    torchvision = find_spec("torchvision")
    if torchvision is None or torchvision.origin is None:
        return
    try:
        ctypes.CDLL(str(Path(torchvision.origin).parent / "_C.so"))
    except OSError:
        for operator in ("nms", "qnms"):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", signature)
