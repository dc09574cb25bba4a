"""Rule verdicts: prints what the table says, whenever it is asked."""

import pandas as pd
from ddlbench.analysis import claims
from ddlbench.core.files import answer

*judged, counts = claims.lines(pd.read_csv(snakemake.input.table))
text = "\n".join([counts, *judged, f"One row per claim, and why: {snakemake.input.table}"])
answer(text, snakemake.log[0])
