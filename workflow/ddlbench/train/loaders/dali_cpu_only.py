"""dali-cpu-only: NVIDIA DALI with all steps on the CPU, normalisation too; reads tfrecord, raw or
webdataset.

The GPU gets floats. This is the CPU's DALI of Aach et al. 2023. Without a GPU, `dali-cpu` is the
same.
"""

from ddlbench.train.loaders import _dali

FORMS, FAMILY, LEARNS = _dali.FORMS, _dali.FAMILY, True
PACKAGE, INSTALL, DISTRIBUTION = _dali.PACKAGE, _dali.INSTALL, _dali.DISTRIBUTION
DEVICE = "cuda"


class Loader(_dali.DaliLoader):
    """A loader of DALI's stream, decoded and normalised on the CPU."""

    on_gpu = False
    normalises_on_gpu = False
