"""The end of a rank's process (`train/process.py`)."""

import os
import subprocess
import sys
from pathlib import Path

from ddlbench.core import heartbeats

# What a module leaves behind tells whether Python takes modules apart.
RANK = """
import atexit, ctypes, sys
from pathlib import Path
from ddlbench.train import process

class Left:
    def __del__(self, write=sys.__stdout__.write):
        write("apart ")

left = Left()
atexit.register(print, "atexit", end=" ")
process.run(Path(sys.argv[1]), lambda: ctypes.CDLL(None).printf(b"compiled "))
"""


def ended(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One rank that ends well."""
    argv = [sys.executable, "-c", RANK, str(folder)]
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return subprocess.run(
        argv, env=os.environ | place | variables, capture_output=True, text=True, check=True
    )


def test_a_rank_that_ends_well_leaves_at_once_with_all_that_was_printed(tmp_path: Path) -> None:
    assert sorted(ended(tmp_path).stdout.split()) == ["atexit", "compiled"]
    assert heartbeats.has_ended(tmp_path, 0)


def test_under_nsys_a_rank_ends_in_full(tmp_path: Path) -> None:
    printed = ended(tmp_path, DDLBENCH_UNDER_NSYS="1").stdout.split()
    assert sorted(printed) == ["apart", "atexit", "compiled"]
