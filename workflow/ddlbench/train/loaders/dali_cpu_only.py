"""dali-cpu-only: NVIDIA DALI with all steps on the CPU, normalisation too; reads tfrecord, raw or webdataset.

The GPU gets floats. This is the CPU's DALI of Aach et al. 2023. Without a GPU, `dali-cpu` is the same.
"""

from __future__ import annotations

from ddlbench.train.loaders import _dali

FORMS: tuple[str, ...] = _dali.FORMS
FAMILY = _dali.FAMILY
LEARNS = True
DEVICE: str | None = "cuda"
PACKAGE: str | None = _dali.PACKAGE
INSTALL = _dali.INSTALL
DISTRIBUTION: str | None = _dali.DISTRIBUTION


class Loader(_dali.DaliLoader):
    """DALI's stream, decoded and normalised on the CPU."""

    on_gpu = False
    normalises_on_gpu = False
