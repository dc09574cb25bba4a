"""Rule predict: rates, time, energy and price at worker counts that nobody ran (`ddlbench.analysis.prediction`)."""

from pathlib import Path

import pandas as pd
from ddlbench.analysis.prediction import _table
from ddlbench.analysis.together import sample
from ddlbench.core import files

runs = pd.read_parquet(snakemake.input.runs)
made = _table.rows(
    runs,
    snakemake.params.workers_per_node,
    snakemake.params.planned,
    price_per_hour=snakemake.params.price_per_hour,
)
with files.aside(Path(snakemake.params.table)) as hidden:
    pd.DataFrame(made).to_csv(hidden, index=False)
text = "\n".join(
    [*_table.lines(made, sample(runs)), f"All numbers: {snakemake.params.table}; how good they are: docs/prediction.md"]
)
files.answer(f"\n{text}", snakemake.log[0])
