"""Rule verdict_table: what sources claim, judged by a study's runs
(`ddlbench.analysis.judging`).
"""

from pathlib import Path

from ddlbench.analysis import judging
from ddlbench.core.files import logged

with logged(snakemake.log[0]):
    given = snakemake.input
    judging.write(
        Path(given.claims), Path(given.runs), Path(given.kernels), Path(snakemake.output[0])
    )
