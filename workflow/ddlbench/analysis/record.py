"""One run's record, read and believed: what all of analysis starts from. `records/ours.py` makes it
of files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.core.mllog import Event
from ddlbench.core.spec import RunSpec


@dataclass(frozen=True)
class Record:
    """A run's record. `last` holds the last event of each key. `success`: it ended well; else there
    are no steps.

    `steps` has the columns of `record.STEP_COLUMNS`, sorted by step and rank. `kernels` is None
    without a profiler's.
    """

    folder: Path
    spec: RunSpec
    events: list[Event]
    last: dict[str, Event]
    images: int
    success: bool
    steps: pd.DataFrame
    kernels: pd.DataFrame | None = None

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of the last event of this key; `default` without one."""
        value = self.last[key].value if key in self.last else None
        return default if value is None else value

    @property
    def timed(self) -> bool:
        """Tell whether the run had the machine to itself and carried no profiler, so that its times
        mean something.
        """
        return self.spec.timed and not self.spec.profiled
