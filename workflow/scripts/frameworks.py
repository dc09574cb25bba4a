"""Rule frameworks: what the frameworks here are and do (`ddlbench.analysis.frameworks`)."""

from pathlib import Path

from ddlbench.analysis import frameworks
from ddlbench.core.files import logged

with logged(snakemake.log[0]):
    frameworks.write(Path(snakemake.output[0]))
