"""Rule verdicts: prints what the table says, whenever it is asked."""

import pandas as pd
from ddlbench.analysis import claims

*judged, counts = claims.lines(pd.read_csv(snakemake.input.table))
print(counts, *judged, f"One row per claim, and why: {snakemake.input.table}", sep="\n", flush=True)
