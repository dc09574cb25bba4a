"""What `prepare` prints while it works: parts and bytes done, every few seconds."""

import shutil
from pathlib import Path
from time import monotonic

from ddlbench.core.plural import gigabytes

EVERY_S = 5


class Progress:
    """Of one form: `parts` of a `kind` (shards, class folders), of which `kept` were there before."""

    def __init__(self, name: str, kind: str, parts: int, kept: int) -> None:
        self.name, self.kind, self.parts, self.done = name, kind, parts, kept
        self.bytes, self.began, self.printed = 0, monotonic(), 0.0

    def begin(self, missing: float, work: Path) -> None:
        """Print what is to be done: about `missing` bytes, into the folder `work`."""
        kept = f", {self.done} of them done before" if self.done else ""
        free = gigabytes(shutil.disk_usage(work).free)
        self._print(f"{self.parts} {self.kind}{kept}; about {gigabytes(missing)} to write, {free} are free")

    def add(self, size: int) -> None:
        """One more part is done, of `size` bytes."""
        self.done, self.bytes = self.done + 1, self.bytes + size
        if self.done < self.parts and monotonic() - self.printed > EVERY_S:  # of the last part the end speaks
            self.end()

    def end(self) -> None:
        """Print what was done."""
        seconds = monotonic() - self.began
        rate = f"{self.bytes / seconds / 1e6:.0f} MB/s"
        self._print(f"{self.done} of {self.parts} {self.kind}, {gigabytes(self.bytes)} in {seconds:.0f} s ({rate})")

    def _print(self, text: str) -> None:
        print(f"{self.name}: {text}", flush=True)
        self.printed = monotonic()
