"""torchvision 0.26 to 0.29, where its compiled part does not fit torch: timm and loader `torchvision`
need none of that part.

Importing a CUDA-built torchvision beside a CPU-built torch fails on two operators that it describes
to the compiler: their signatures are in the part that could not be loaded. Without a guard: nothing
is done where that part loads.

Upstream (pytorch/vision): `_meta_registrations.py` registers fake kernels of `nms` and `qnms`
although `extension.py` found that `_C.so` cannot be loaded, so `import torchvision` raises
"operator torchvision::nms does not exist" in place of the warning that is meant. Registering them
only if `_has_ops()` is true would patch it.
"""

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def apply() -> None:
    """Let torchvision be imported without its compiled part: define the signatures of the operators
    it describes.
    """
    import torch

    torchvision = find_spec("torchvision")
    if torchvision is None or torchvision.origin is None:
        return
    if _compiled_part_loads(Path(torchvision.origin).parent):
        return  # it defines them itself: twice would end the process
    for operator in ("nms", "qnms"):
        signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{operator}", signature)


def _compiled_part_loads(package: Path) -> bool:
    """Return whether the compiled part can be loaded: `_C.so`, from torchvision 0.29 on
    `_C_stable.so`.
    """
    for library in package.glob("_C*.so"):
        try:
            ctypes.CDLL(str(library))
        except OSError:
            continue
        return True
    return False
