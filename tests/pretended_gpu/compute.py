"""Computes what is asked of the pretended GPU: each operator on CUDA tensors, by the CPU, on the
same memory.

Allocation, views, copies between host and device, streams, events and collectives stay PyTorch's
own for CUDA.
"""

import atexit
import ctypes
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = str(Path(__file__).resolve().parents[2])
PACKAGE = str(Path(ROOT, "workflow/ddlbench")) + "/"
aten = torch.ops.aten
# What PyTorch does itself, on device memory as on any other.
THEIR_OWN = {
    *(
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.empty_like.default,
        aten.new_empty.default,
    ),
    *(
        aten.new_empty_strided.default,
        aten._local_scalar_dense.default,
        aten.is_pinned.default,
        aten.resize_.default,
    ),
    *(
        aten._pin_memory.default,
        aten.record_stream.default,
        aten.detach.default,
        aten.set_.source_Storage,
    ),
    *(aten.set_.source_Storage_storage_offset, aten.set_.source_Tensor),
}
KEYS = torch._C._TorchDispatchModeKey
NAMESPACES = ("c10d", "_c10d", "prim", "profiler", "inductor")


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor on the same memory, of the same shape and strides."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    raw = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(raw, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=tensor.dtype).set_(
        flat, tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def on_device(here: torch.Tensor) -> torch.Tensor:
    """The same values in new memory of the current device."""
    there = torch.empty_strided(
        here.shape, here.stride(), dtype=here.dtype, device=torch.cuda.current_device()
    )
    if here.numel():
        alias(there).copy_(here)
    return there


class Computing(TorchDispatchMode):
    """Enter it for the rest of the process. A compiled model is compiled all the same; see
    `rank.py`.

    What is computed while a stream is captured is computed again, on the same memory, when its
    graph is launched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.library = ctypes.CDLL(None) if torch.cuda.is_available() else None
        if self.library is not None:
            self._launched = ctypes.CFUNCTYPE(None, ctypes.c_long)(self.launched)
            self.library.gpu_on_launch(self._launched)

    def launched(self, graph: int) -> None:
        with torch.no_grad():
            for again in self.graphs[graph]:
                again()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat, spec = pytree.tree_flatten((args, kwargs))
        tensors = [x for x in flat if isinstance(x, torch.Tensor)]
        asked = any(isinstance(x, torch.device) and x.type == "cuda" for x in flat)
        if not asked and not any(x.is_cuda for x in tensors):
            return SPECIAL.get(str(func), func)(*args, **kwargs)
        if any(
            torch._C._get_dispatch_mode(key) for key in (KEYS.FAKE, KEYS.PROXY, KEYS.FUNCTIONAL)
        ):
            return func(*args, **kwargs)  # torch.compile looks at what is asked
        if (
            func.namespace in NAMESPACES
            or func in THEIR_OWN
            or any(isinstance(x, FakeTensor) for x in tensors)
        ):
            return func(*args, **kwargs)
        if any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in tensors if x.is_cuda):
            return NotImplemented  # a sharded tensor goes first, and asks again with what is inside
        returns = func._schema.returns
        if any(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            if not func._can_decompose():
                return func(*args, **kwargs)  # a view
            with self:  # a view or a copy, as it comes; autograd would have taken it apart
                return func.decompose(*args, **kwargs)
        if func in (aten.copy_.default, aten._to_copy.default) and self.crosses(func, args, kwargs):
            return func(*args, **kwargs)
        return self.compute(SPECIAL.get(str(func), func), flat, spec)

    def crosses(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether it copies bytes as they are between host and device: then CUDA does."""
        if func is aten.copy_.default:
            to, source = args[:2]
            alike = (
                to.dtype == source.dtype
                and to.shape == source.shape
                and to.stride() == source.stride()
            )
            return to.is_cuda != source.is_cuda and alike and source.is_contiguous()
        (source,) = args
        device, dtype = kwargs.get("device"), kwargs.get("dtype") or source.dtype
        there = device is not None and torch.device(device).type != source.device.type
        return there and dtype == source.dtype and source.is_contiguous()

    def compute(self, func: Callable[..., Any], flat: list[Any], spec: Any) -> Any:
        """What the operator gives on aliases: tensors that it was given, views of these, or new
        ones on the device.
        """
        given = {}  # by memory: the CUDA tensor of each alias
        mapped = []
        to_host = False
        for x in flat:
            if isinstance(x, torch.Tensor) and x.is_cuda:
                here = alias(x)
                given.setdefault(here.untyped_storage().data_ptr(), []).append((here, x))
                x = here
            elif isinstance(x, torch.device):
                to_host = x.type == "cpu"
                x = torch.device("cpu")
            elif isinstance(x, torch.Generator):
                x = None
            mapped.append(x)

        def result(values: list[Any]) -> Any:
            args, kwargs = pytree.tree_unflatten(values, spec)
            return func(*args, **kwargs)

        if self.library is not None and (graph := self.library.gpu_capture()):
            return self.note(graph, result, flat, mapped)

        def back(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or x.is_cuda or to_host:
                return x
            for here, there in given.get(x.untyped_storage().data_ptr(), []):
                if x is here:
                    return there
                if x.numel() and x.dtype == there.dtype:
                    return there.as_strided(x.shape, x.stride(), x.storage_offset())
            return on_device(x)

        return pytree.tree_map(back, result(mapped))

    def note(
        self, graph: int, result: Callable[[list[Any]], Any], flat: list[Any], here: list[Any]
    ) -> Any:
        """What an operator will give when the graph is launched: only shapes are computed now, as
        on a GPU.
        """
        given = {}

        def shape(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or not x.is_cuda:
                return torch.device("meta") if isinstance(x, torch.device) else x
            meta = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
            given[id(meta)] = x
            return meta

        def there(x: Any) -> Any:
            if id(x) in given or not isinstance(x, torch.Tensor):
                return given.get(id(x), x)
            return torch.empty_strided(
                x.shape, x.stride(), dtype=x.dtype, device=torch.cuda.current_device()
            )

        promised = pytree.tree_map(there, result([shape(x) for x in flat]))
        aliases = [
            alias(x) if isinstance(x, torch.Tensor) else None for x in pytree.tree_leaves(promised)
        ]

        def launched() -> None:
            for old, new in zip(aliases, pytree.tree_leaves(result(here)), strict=True):
                if old is not None and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        self.graphs.setdefault(graph, []).append(launched)
        return promised


def _norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    normal = aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return (*normal, torch.empty(0, dtype=torch.uint8))


def _norm_backward(
    x: Any, dy: Any, weight: Any, mean: Any, var: Any, m: Any, s: Any, eps: float, _: Any
) -> Any:
    return aten.native_batch_norm_backward.default(
        dy, x, weight, mean, var, m, s, True, eps, [True, True, True]
    )


def _in_fp32(func: Any) -> Callable[..., Any]:
    """Half numbers are multiplied and added up in fp32, as tensor cores do; on a CPU it is also ten
    times faster.
    """

    def computed(*args: Any) -> Any:
        half = any(isinstance(x, torch.Tensor) and x.dtype == torch.float16 for x in args)
        wide = [x.float() if half and isinstance(x, torch.Tensor) else x for x in args]
        return pytree.tree_map(
            lambda x: x.half() if half and isinstance(x, torch.Tensor) else x, func(*wide)
        )

    return computed


# Operators that only cuDNN has, and those that are slow on a CPU.
SPECIAL: dict[str, Callable[..., Any]] = {
    "aten.convolution.default": _in_fp32(aten.convolution.default),
    "aten.convolution_backward.default": _in_fp32(aten.convolution_backward.default),
    "aten.cudnn_batch_norm.default": _norm,
    "aten.cudnn_batch_norm_backward.default": _norm_backward,
}


class Waits:
    """Counts what makes the host wait, by the phase of training that it is in: {phase: {what and
    where: times}}.

    `where` is the innermost line of ddlbench and, after it, the innermost line of all; of threads
    without Python none.
    """

    def __init__(self) -> None:
        self.phase = "set-up"
        self.counts: dict[str, Counter[str]] = {}
        self.library = ctypes.CDLL(None)
        self._heard = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self._hear)
        self.library.gpu_on_wait(self._heard)
        atexit.register(self.library.gpu_on_wait, None)  # memory is freed when Python is gone

    def _hear(self, what: bytes) -> None:
        frame, stack = sys._getframe(1), []
        for of, _ in traceback.walk_stack(frame):
            if "/tests/pretended_gpu/" not in of.f_code.co_filename:
                stack.append(of)
        ours = [f for f in stack if f.f_code.co_filename.startswith(PACKAGE)]
        named = [place(f) for f in (*ours[:1], *stack[:1])]
        self.counts.setdefault(self.phase, Counter())[
            " < ".join([what.decode(), *dict.fromkeys(named)])
        ] += 1


def place(frame: Any) -> str:
    """`deepspeed/runtime/utils.py:function`, wherever the package was installed; of ddlbench from
    its own folder on.
    """
    path = frame.f_code.co_filename
    package = sys.modules.get(str(frame.f_globals.get("__name__")).partition(".")[0])
    for folder in (
        PACKAGE,
        *(str(Path(folder).parent) + "/" for folder in getattr(package, "__path__", ())),
    ):
        if path.startswith(folder):
            path = path.removeprefix(folder)
            break
    return f"{path}:{frame.f_code.co_name}"
