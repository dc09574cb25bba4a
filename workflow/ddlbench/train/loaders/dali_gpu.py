"""dali-gpu: NVIDIA DALI, pictures decoded and augmented by the GPU's decoder; reads tfrecord, raw
or webdataset.
"""

from ddlbench.train.loaders import _dali

FORMS, FAMILY, LEARNS = _dali.FORMS, _dali.FAMILY, True
PACKAGE, INSTALL, DISTRIBUTION = _dali.PACKAGE, _dali.INSTALL, _dali.DISTRIBUTION
DEVICE = "cuda"


class Loader(_dali.DaliLoader):
    """A loader of DALI's stream, decoded by the GPU."""

    on_gpu = True
