"""Predict rates at worker counts that nobody ran, or fit what the default model has learnt from published series.

python -m ddlbench.analysis.prediction results/STUDY/tables/runs.parquet [--workers N ...] [--workers-per-node N]
python -m ddlbench.analysis.prediction --fit
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddlbench.analysis.prediction import DEFAULT, _priors, _score, _table
from ddlbench.core import registry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="the table of a study's runs, parquet")
    parser.add_argument("--workers", type=int, nargs="+", help="default: three doublings beyond the largest measured")
    parser.add_argument("--workers-per-node", type=int, help="of the machine; default: the most that any run has")
    parser.add_argument("--model", default=DEFAULT, choices=registry.members("prediction"))
    parser.add_argument("--fit", action="store_true", help=f"write {_priors.FITTED.name} anew")
    given = parser.parse_args()
    if given.fit:
        series = _priors.published()
        _priors.write(_score.fit_calibrated(series), len(series))
    elif given.runs is None or not given.runs.is_file():
        parser.error(
            f"{given.runs or 'runs'}: no such file; `snakemake tables` makes results/<study>/tables/runs.parquet"
        )
    elif given.workers and min(given.workers) < 1:
        parser.error("--workers: 1 or more")
    else:
        import pandas as pd

        runs = pd.read_parquet(given.runs)
        node = given.workers_per_node or int(runs["workers_per_node"].max())
        made = _table.rows(runs, node, model=given.model, workers=given.workers)
        print(*_table.lines(made), sep="\n", file=sys.stdout)


if __name__ == "__main__":
    main()
