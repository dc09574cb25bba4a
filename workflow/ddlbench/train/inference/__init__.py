"""Latency and throughput of inference: one file per way to serve a trained model, and the contract
that all keep.

`Way` is what a file of this room offers, `InferSpec` what is measured in one job: one model, served
in one way, with each of a few batch sizes. A further way is one more file. `_measure.py` sends
requests and takes the time, `__main__.py` is the process of one rank; `plan/kinds/inference.py`
plans the jobs, `analysis/sheets/inference.py` makes a table of what they left.

Importing a member is cheap: torch, torchao and DeepSpeed are imported inside functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddlbench.train.inference._spec import InferSpec as InferSpec

if TYPE_CHECKING:
    from torch import nn

# Requests of each batch size: as many as fit into so many seconds, within these bounds. The 95th
# percentile of fewer than some 20 would be the longest of them.
AT_LEAST, AT_MOST, SECONDS = 40, 300, 4.0


def requests(one_s: float) -> int:
    """Return how many requests of a batch size are sent, when one takes `one_s` seconds."""
    return max(AT_LEAST, min(AT_MOST, round(SECONDS / max(one_s, 1e-9))))


class Way(Protocol):
    """The contract of a file of this room."""

    PACKAGE: str  # what must be importable
    INSTALL: str  # the command that installs it
    DISTRIBUTION: str  # the package whose version a record names
    FRAMEWORK: str  # a member of `frameworks/`, whose variables the ranks get
    SPLITS: bool  # whether it splits a model over several workers; else it takes one

    def lacks(self, device: str) -> str | None:
        """Return what is missing on this computer to serve in this way, as a reason for people;
        None if nothing is.
        """

    def ready(self, model: nn.Module) -> nn.Module:
        """Return a module that responds as the model does: scores [n, classes] of images [n, 3,
        size, size], both of the type of the model's weights: float32, or bfloat16 where the
        recipe's precision is bf16.

        The model is in evaluation mode, lies on the device that serves, and may be changed. The
        parameters and buffers of the result are what this rank holds. Of a way that splits, all
        ranks call it at once, with the same model; then they call the results at once, with the
        same images, and all get the whole response.
        """
