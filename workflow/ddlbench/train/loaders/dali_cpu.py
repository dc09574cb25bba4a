"""dali-cpu: NVIDIA DALI, pictures decoded and augmented on the CPU; reads tfrecord, raw or
webdataset.

A GPU, where there is one, normalises them: bytes are a quarter of floats to copy. `dali-cpu-only`
leaves it nothing.
"""

from ddlbench.train.loaders import _dali

FORMS, FAMILY, LEARNS = _dali.FORMS, _dali.FAMILY, True
PACKAGE, INSTALL, DISTRIBUTION = _dali.PACKAGE, _dali.INSTALL, _dali.DISTRIBUTION
DEVICE = None


class Loader(_dali.DaliLoader):
    """A loader of DALI's stream, decoded on the CPU."""

    on_gpu = False
