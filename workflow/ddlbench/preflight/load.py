"""A few seconds of full load on one device: matrix products and copies in its memory. `nodes.py` compares the rates."""

import time
from collections.abc import Callable
from typing import Any

WINDOWS, WINDOW_S = 10, 0.5  # longer than the periods in which a limit on CPU time is kept (0.1 s)
SIZES = {"cpu": 1024, "cuda": 8192}  # of square matrices: enough work to fill the device
COPIED = {"cpu": 128 << 20, "cuda": 1 << 30}  # bytes: more than caches hold


def rates(device: str) -> dict[str, list[float]]:
    """Rates of WINDOWS windows: `matmul_flops_per_s` and `memory_bytes_per_s`.

    On GPUs the products are in bf16 (before Ampere in fp16), on CPUs in fp32, by as many threads as the rank has in
    training. A copy counts as read and written.
    """
    import torch

    size, copied = SIZES[device], COPIED[device]
    half = torch.bfloat16 if device == "cuda" and torch.cuda.is_bf16_supported(False) else torch.float16
    kind = torch.float32 if device == "cpu" else half
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    product = _windows(device, lambda: torch.mm(a, b, out=out))
    source = torch.ones(copied, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = _windows(device, lambda: target.copy_(source))
    return {
        "matmul_flops_per_s": [2.0 * size**3 * rate for rate in product],
        "memory_bytes_per_s": [2.0 * copied * rate for rate in copy],
    }


def _windows(device: str, work: Callable[[], Any]) -> list[float]:
    """How often `work` was done per second, in each window. What comes before the windows warms up."""
    import torch

    def done() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    work()
    done()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < WINDOW_S:
        work()
        done()
        count += 1
    per_s = []
    for _ in range(WINDOWS):
        began = time.perf_counter()
        for _ in range(count):
            work()
        done()
        per_s.append(count / (time.perf_counter() - began))
    return per_s
