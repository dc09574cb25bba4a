"""Rule verdicts: what sources claim, judged by a study's runs (`ddlbench.analysis.claims`)."""

import sys
from pathlib import Path

from ddlbench.analysis import claims
from ddlbench.core.files import logged

terminal = sys.stdout
with logged(snakemake.log[0]) as log:
    given = snakemake.input
    table = claims.write(Path(given.claims), Path(given.runs), Path(given.kernels), Path(snakemake.output[0]))
    said = [*claims.lines(table), f"one row per claim, and why: {snakemake.output[0]}"]
    for out in (log, terminal):
        print(*said, sep="\n", file=out, flush=True)
