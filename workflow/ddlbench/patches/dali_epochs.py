"""DALI 2.4, whose iterator decodes the first batches of the next epoch ahead, for example during
validation.

A short epoch would then look faster than its pictures can be decoded. Here decoding begins when the
epoch is asked for. The iterator calls `schedule_run` of its pipeline for every batch it gives; that
method is replaced.

Upstream (NVIDIA/DALI): `DALIGenericIterator.__next__` schedules a run behind the end of an epoch
whether or not `reset()` will be called, so work moves out of the epoch that pays for it. An
argument of the iterator that schedules only as many batches as the epoch still has would patch it.
"""

import weakref
from typing import Any

from ddlbench import patches


class EpochDecoder:
    """The decoding of a pipeline that reads `ahead` batches ahead, but none beyond the epoch, which
    has `batches` to come.

    Raises ReleaseError if DALI, by the name of the package that is installed, is of another
    release.
    """

    def __init__(self, pipeline: Any, distribution: str, ahead: int, batches: int) -> None:
        patches.only_for(distribution, ("2.4",), "dali_epochs")
        self.ahead, self.batches = (
            ahead,
            batches,
        )  # batches of this epoch that were not requested from DALI yet
        self._decode = pipeline.schedule_run
        self._began = False
        decoder = weakref.proxy(
            self
        )  # a circle of references would keep DALI's threads after the loader is gone
        pipeline.schedule_run = lambda: decoder._asked()

    def begin(self, iterator: Any, batches: int) -> None:
        """Go on to the next epoch, which has so many batches: DALI begins to decode it."""
        # In an epoch shorter than `ahead`, DALI's first request reaches into the next epoch.
        beyond = max(0, -self.batches)
        self.batches += batches
        iterator.reset()  # requests one batch, if none was requested
        for _ in range(self.ahead - max(beyond, 1)):
            iterator._schedule_runs(release_outputs=False)

    def _asked(self) -> None:
        if not self._began:  # the first call requests `ahead` batches at once
            self._began = True
            self.batches -= self.ahead
            self._decode()
        elif self.batches > 0:
            self.batches -= 1
            self._decode()
