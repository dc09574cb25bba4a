"""One file per kind of record: ours, and those that others published. A study's `records.kind`
names it.

A member finds the records of a study and reads one of them. Whether a record is sound is asked in
`_sound.py`, of its times in `_fitting.py`, and nowhere else; `analysis/collect.py` makes tables of
what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ddlbench.analysis.summary import Summary


BELIEVED = (0.67, 1.5)  # a rate by that of the whole run, from `run_start` to `run_stop`


class RecordReader(Protocol):
    """The contract of a file of this room.

    Importing it imports neither pandas nor numpy: Snakemake's process calls `find`.
    """

    def find(self, folder: Path, benchmarks: Sequence[str]) -> list[Path]:
        """Find all records below a folder, of these benchmarks only; of all if there are none.

        Sorted.
        """

    def read(self, place: Path, wanted: str | None = None) -> Summary | None:
        """Return what tables need of one record (`analysis/summary.py`); None where there is none.

        `wanted` is the digest of the settings that the plan has for it, None for any. Raises
        RefusedError if the record is not sound.
        """
