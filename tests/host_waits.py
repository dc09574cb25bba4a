"""What would make a host wait for its GPU, counted where there is none."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class HostWaits(TorchDispatchMode):
    """Counts numbers read from tensors, and tensors made of the host's numbers, which are copied to the device.

    A copy from pageable memory waits for all that the stream has to do before.
    """

    OPERATORS = ("aten._local_scalar_dense", "aten.lift_fresh")

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if name in self.OPERATORS:
            self.count[name] += 1
        return func(*args, **(kwargs or {}))
