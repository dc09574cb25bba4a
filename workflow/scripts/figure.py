"""Rule figure: one picture from a study's tables, by the member of `ddlbench/figures` that the study names."""

import sys
from pathlib import Path

from ddlbench.figures.__main__ import write

with Path(snakemake.log[0]).open("w") as log:
    sys.stdout = sys.stderr = log
    options = snakemake.params.options | {"reference": snakemake.input.get("reference") or None}
    write(Path(snakemake.input.tables[0]).parent, Path(snakemake.output[0]).with_suffix(""), options)
