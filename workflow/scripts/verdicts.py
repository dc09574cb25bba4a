"""Rule verdicts: prints what the table says, whenever it is asked."""

from pathlib import Path

import pandas as pd
from ddlbench.analysis import claims
from ddlbench.core import files

*judged, counts = claims.lines(pd.read_csv(snakemake.input.table))
text = "\n".join([counts, *judged, f"One row per claim, and why: {snakemake.input.table}"])
files.write_text(Path(snakemake.log[0]), f"{text}\n")
print(text, flush=True)
