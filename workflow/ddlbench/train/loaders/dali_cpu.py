"""dali-cpu: NVIDIA DALI, pictures decoded and augmented on the CPU; reads tfrecord, raw or webdataset.

A GPU, where there is one, normalises them: bytes are a quarter of floats to copy. `dali-cpu-only` leaves it nothing.
"""

from __future__ import annotations

from ddlbench.train.loaders import _dali

FORMS: tuple[str, ...] = _dali.FORMS
FAMILY = _dali.FAMILY
LEARNS = True
DEVICE: str | None = None
PACKAGE: str | None = _dali.PACKAGE
INSTALL = _dali.INSTALL
DISTRIBUTION: str | None = _dali.DISTRIBUTION


class Loader(_dali.DaliLoader):
    """DALI's stream, decoded on the CPU."""

    on_gpu = False
