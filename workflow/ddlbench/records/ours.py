"""Records that `ddlbench.run` made: a folder per run, whose log must say by `ddlbench_spec` which run it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddlbench.analysis.collect import read_ours as read
from ddlbench.core.record import MLLOG

__all__ = ["find", "read"]


def find(folder: Path, benchmarks: Sequence[str] = ()) -> list[Path]:
    """The run folders in a folder. Ours name no benchmark: `benchmarks` is not asked."""
    return sorted(log.parent for log in folder.glob(f"*/{MLLOG}"))
