"""What only a real GPU can show. Skipped, with the reason, where there is none.

`DDLBENCH_GPU_TIER=cpu` tries the tests themselves on a CPU, where they can; so does `make gpu-check DEVICE=cpu`.
"""

import os

import pytest

DEVICE = os.environ.get("DDLBENCH_GPU_TIER", "cuda")


def needs(device: str = DEVICE) -> pytest.MarkDecorator:
    """The mark of tests on this device."""
    torch = pytest.importorskip("torch")
    if device != DEVICE:
        return pytest.mark.skipif(True, reason=f"needs device {device}, and the tier was started for {DEVICE}")
    there = device == "cpu" or torch.cuda.is_available()
    return pytest.mark.skipif(not there, reason="no GPU: torch.cuda.is_available() is false")
