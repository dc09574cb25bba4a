"""Rule frameworks: what the frameworks here are and do (`ddlbench.analysis.frameworks`)."""

import sys
from pathlib import Path

from ddlbench.analysis import frameworks

with Path(snakemake.log[0]).open("w") as log:
    sys.stdout = sys.stderr = log
    frameworks.write(Path(snakemake.output[0]))
