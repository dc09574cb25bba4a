"""PyTorch's CUDA build trains on a GPU that is not there: what ranks ask, wait for and record, and
with which losses.

`gpu.c` is preloaded into each rank and answers for CUDA, NVML and NCCL; `waits.c`, before it, tells
which calls make the host wait (`build.py` compiles both). `compute.py` computes every operator on
CPU aliases of the same memory. `rank.py` is the process of a rank, which counts what made it wait.
Where there is a real GPU, the same tests try that one: only `waits.c` is preloaded then.

Real: memory, copies, streams and events (in the host's time), collectives between processes of this
machine, every call of the host and its order. Pretended: a device, an H100 by its name. Not there:
its speed and all that runs at once on it, so that no race can be seen; cuDNN's and cuBLAS's choices
and rounding; kernels, those that torch.compile makes among them; NCCL over a network; what
libraries bring of their own (DALI's decoders, CUPTI, CUDA graphs).
"""

import sys


def say_gpu() -> None:
    """Tell coverage.py, where it measures this process, that what is executed from here on is so
    with a GPU.
    """
    if "coverage" in sys.modules and (measured := sys.modules["coverage"].Coverage.current()):
        measured.switch_context("gpu")
