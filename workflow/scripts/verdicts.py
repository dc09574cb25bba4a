"""Rule verdicts: what sources claim, judged by a study's runs (`ddlbench.analysis.claims`)."""

import sys
from pathlib import Path

from ddlbench.analysis import claims

with Path(snakemake.log[0]).open("w") as log:
    sys.stdout = sys.stderr = log
    given = snakemake.input
    claims.write(Path(given.claims), Path(given.runs), Path(given.kernels), Path(snakemake.output[0]))
