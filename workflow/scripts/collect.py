"""Tables of a study's runs. The work is in ddlbench.analysis.collect; a script, because thousands of paths do not fit
into a command line."""

import sys
from pathlib import Path

from ddlbench.analysis.collect import collect

with open(snakemake.log[0], "w") as log:  # noqa: F821
    sys.stdout = sys.stderr = log
    folders = [Path("results/runs", run) for run in snakemake.params.runs]  # noqa: F821
    collect(folders, Path(snakemake.output[0]).parent)  # noqa: F821
