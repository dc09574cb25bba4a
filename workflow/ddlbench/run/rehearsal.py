"""What makes a record is tried before it is needed: a broken package must not cost a finished
training.

pandas and SciPy take a second to import. So this goes on in a thread while ranks start, which
import PyTorch meanwhile.
"""

import threading
from importlib import import_module
from pathlib import Path

from ddlbench.core.step_rows import StepRow, packed
from ddlbench.core.step_table import writing_table


class Rehearsal(threading.Thread):
    """A rehearsal in the folder that ranks write into. `error` is what it raised. To be started
    after the launcher: a process with threads had better not fork.
    """

    def __init__(self, partial: Path) -> None:
        super().__init__(daemon=True)
        self.partial = partial
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            rehearse(self.partial)
        except Exception as error:
            self.error = error

    def settle(self) -> None:
        """Wait for its end. Raises what it raised."""
        self.join()
        if self.error is not None:
            raise self.error


def rehearse(partial: Path) -> None:
    """Import all that a record and its summary take, write a table and read it. Raises whatever is
    wrong there.
    """
    import_module("ddlbench.records.ours")
    import_module("mlperf_logging.mllog.mllog")
    import pandas as pd

    path = partial / ".rehearsal"
    with writing_table(path) as write:
        write(packed([StepRow(0, 0, 0, 1, *[0.0] * 8)]))
    pd.read_parquet(path)
    path.unlink()
