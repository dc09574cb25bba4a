"""Rule failures: what went wrong so far, printed and as a table; no other job has to be done."""

from pathlib import Path

import pandas as pd
from ddlbench import layout
from ddlbench.analysis import failures
from ddlbench.analysis.collect import write

rows = failures.failures([Path(layout.run(run)) for run in snakemake.params.runs])
tables = Path(snakemake.params.tables)
tables.mkdir(parents=True, exist_ok=True)
write(pd.DataFrame(rows, columns=list(failures.COLUMNS)).astype("str"), tables / "failures")
text = "\n".join([*failures.lines(rows), f"{len(rows)} failed runs: {tables}/failures.csv"])
Path(snakemake.log[0]).write_text(text + "\n", encoding="utf-8")
print(text, flush=True)
