"""dali-gpu: NVIDIA DALI, pictures decoded and augmented by the GPU's decoder; reads tfrecord, raw or webdataset."""

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
    """DALI's stream, decoded by the GPU."""

    on_gpu = True
