"""What would make a host wait for its GPU, or keep it busy in every step, counted where there is
none.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class HostWaits(TorchDispatchMode):
    """Counts numbers read from tensors, and tensors made of the host's numbers, which are copied to
    the device.

    A copy from pageable memory waits for all that the stream has to do before. Looks at what memory
    holds are counted too: of all gradients, one takes as long as the rest of a step, so they belong
    into the first step only.
    """

    OPERATORS = ("aten._local_scalar_dense", "aten.lift_fresh")
    LOOKS = ("bytes_of", "tensors_in")
    ROOMS = ("frameworks", "patches")

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if name in self.OPERATORS:
            self.count[name] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Any:
        sys.setprofile(self._called)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_name in self.LOOKS
            and Path(code.co_filename).parent.name in self.ROOMS
        ):
            self.count[f"{code.co_name} looks at memory"] += 1
