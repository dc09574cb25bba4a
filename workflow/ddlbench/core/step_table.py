"""The table `steps.parquet`, made of the rows that ranks left when a run has ended."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddlbench.core.record import ROWS, STEPS
from ddlbench.core.step_rows import NULLABLE, STEP_COLUMNS, step_type

if TYPE_CHECKING:
    from ddlbench.core.step_rows import Rows

CHUNK_ROWS = 1 << 18  # rows that are read at once


def join_steps(folder: Path, workers: int) -> None:
    """Write `steps.parquet` from all rows that the run left, sorted by step and rank. Raises
    OSError if a rank left none.

    Ranks write rows of some steps, then rows of later ones. So the rows are read in chunks, and
    few chunks of CHUNK_ROWS are in memory at a time.
    """
    import numpy as np

    path = folder / ROWS
    if path.stat().st_size % step_type().itemsize:
        raise OSError(errno.EIO, "ends within a row", str(path))
    starts = range(0, path.stat().st_size // step_type().itemsize, CHUNK_ROWS)

    def chunk(first: int) -> Rows:
        return np.fromfile(path, step_type(), CHUNK_ROWS, offset=first * step_type().itemsize)

    missing, spans = set(range(workers)), []
    for first in starts:
        rows = chunk(first)
        missing -= set(np.unique(rows["rank"]).tolist())
        spans.append((first, rows["step"].min(), rows["step"].max()))
    if missing:
        raise FileNotFoundError(errno.ENOENT, f"no steps of rank {min(missing)}", str(path))
    steps_per_chunk = max(1, CHUNK_ROWS // workers)  # steps
    with writing_table(folder / STEPS) as write:
        for step in range(0, max(high for *_, high in spans) + 1, steps_per_chunk):
            parts = (
                chunk(first)
                for first, low, high in spans
                if low < step + steps_per_chunk and high >= step
            )
            rows = np.concatenate(
                [part[part["step"] // steps_per_chunk == step // steps_per_chunk] for part in parts]
            )
            write(rows[np.lexsort((rows["rank"], rows["step"]))])


@contextmanager
def writing_table(path: Path) -> Iterator[Callable[[Rows], None]]:
    """Yield a function that writes some more rows to a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    floats = [name for name, kind in STEP_COLUMNS.items() if kind == "float32"]
    schema = pa.schema([(name, pa.from_numpy_dtype(kind)) for name, kind in STEP_COLUMNS.items()])
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[name for name in STEP_COLUMNS if name not in floats],
        # What is measured hardly repeats: its first bytes, laid side by side, are what compresses.
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    ) as writer:

        def write(rows: Rows) -> None:
            columns = {
                name: pa.array(rows[name].copy(), from_pandas=name in NULLABLE)
                for name in STEP_COLUMNS
            }
            writer.write_table(pa.table(columns, schema=schema))

        yield write
