"""Moments of training on one time line: host time on CPUs, CUDA events on GPUs, where work runs
behind the host.

`loop.py` and the frameworks mark moments. They become seconds once per epoch, so that no step
waits for a GPU.
"""

from collections.abc import Sequence
from time import get_clock_info, perf_counter
from typing import Any

from ddlbench.train.frameworks import Moment

# An event counts from another in float32 milliseconds, so from a near one: at 2 s those are half a
# microsecond apart at most, which is what events resolve; at 512 s, 31 microseconds, longer than
# the short parts of a step.
NEAR_MS = 2000.0


class Clock:
    """The time line of a run. It starts with `base_s`: for a run that goes on from a checkpoint,
    what it took so far [s].
    """

    def __init__(self, device: str, base_s: float = 0.0) -> None:
        self.on_gpu = device == "cuda"
        self.base_s = base_s
        # Of events, as the documentation of cudaEventElapsedTime gives it.
        self.resolution_s = 0.5e-6 if self.on_gpu else get_clock_info("perf_counter").resolution
        self._free: list[
            Any
        ] = []  # events that were read already: making one costs more than recording it
        self.start()

    def start(self) -> None:
        """Start the time line. Moments marked before are not on it."""
        self._zero, self._zero_s = self.mark(), 0.0

    def mark(self) -> Moment:
        """Mark this moment; on a GPU, the moment when its current stream comes to this point."""
        if not self.on_gpu:
            return perf_counter()
        import torch

        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def now_s(self) -> float:
        """Return the seconds of the time line up to now. On a GPU this waits for the device."""
        return self.seconds([self.mark()])[0]

    def seconds(self, moments: Sequence[Moment]) -> list[float]:
        """Return each moment's seconds since the clock was started, plus `base_s`.

        Each moment may be read only once.

        Moments must be roughly in order. On a GPU, which this function waits for, each moment is
        timed from one shortly before.
        """
        if not self.on_gpu:
            return [self.base_s + moment - self._zero for moment in moments]
        import torch

        torch.cuda.synchronize()
        anchor, anchor_s, values = self._zero, self._zero_s, []
        for moment in moments:
            after_ms = anchor.elapsed_time(moment)
            moment_s = anchor_s + after_ms / 1e3
            values.append(self.base_s + moment_s)
            if after_ms > NEAR_MS:
                anchor, anchor_s = moment, moment_s
        end = self.mark()
        end.synchronize()
        self._free += [*moments, self._zero]
        self._zero, self._zero_s = end, anchor_s + anchor.elapsed_time(end) / 1e3
        return values
