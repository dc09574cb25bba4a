"""The process of one rank: `python -m ddlbench.train <folder>`, which a launcher starts
(`plan/launch.py`).

`ddlbench.run` has left `assignment.json` there, and watches. The process ends with 0; with
`notes.STOPPED` if it stopped after a checkpoint that was asked for; else with 1. What it does in
between is in `setup.py` and `loop.py`.
"""

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from ddlbench.train import place, process, profiler
from ddlbench.train.assignment import Assignment
from ddlbench.train.loop import Training
from ddlbench.train.setup import set_up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddlbench.train", description=__doc__)
    parser.add_argument(
        "folder",
        type=Path,
        help="where ddlbench.run left assignment.json; the record goes there too",
    )
    folder: Path = parser.parse_args().folder
    nsys = profiler.nsys_prefix(
        Assignment.read(folder).spec, shutil.which("nsys"), folder, place.rank_number()
    )
    if nsys and process.UNDER_NSYS not in os.environ:
        os.environ[process.UNDER_NSYS] = "1"
        os.execv(nsys[0], [*nsys, sys.executable, "-m", "ddlbench.train", str(folder)])
    run_rank(folder)


def run_rank(folder: Path, training: type[Training] = Training) -> None:
    """Train, and end this process; a failure leaves its reason for `ddlbench.run`."""
    signal.signal(
        signal.SIGUSR1, signal.SIG_IGN
    )  # until the guard listens; worker processes of loaders never do

    def train() -> None:
        setup = set_up(Assignment.read(folder))
        training(setup).run()
        setup.framework.close()

    process.run(folder, train)


if __name__ == "__main__":
    main()
