"""Predict rates at worker counts that nobody ran.

python -m ddlbench.analysis.prediction RUNS.parquet [--workers N ...] [--workers-per-node N]
"""

import argparse
from pathlib import Path

import pandas as pd

from ddlbench.analysis.prediction import _table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the table of a study's runs, parquet")
    parser.add_argument("--workers", type=int, nargs="+", help="default: three doublings beyond the largest measured")
    parser.add_argument("--workers-per-node", type=int, help="of the machine; default: the most that any run has")
    given = parser.parse_args()
    if not given.runs.is_file():
        parser.error(f"{given.runs}: no such file; `snakemake tables` makes it")
    if given.workers and min(given.workers) < 1:
        parser.error("--workers: 1 or more")
    runs = pd.read_parquet(given.runs)
    node = given.workers_per_node or int(runs["workers_per_node"].max())
    print(*_table.lines(_table.rows(runs, node, workers=given.workers)), sep="\n")


if __name__ == "__main__":
    main()
