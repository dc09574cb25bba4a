"""Rule verdict_table: what sources claim, judged by a study's runs
(`ddlbench.analysis.claim_verdicts`).
"""

from pathlib import Path

from ddlbench.analysis import claim_verdicts
from ddlbench.core.files import logged

with logged(snakemake.log[0]):
    given = snakemake.input
    claim_verdicts.write(
        Path(given.claims), Path(given.runs), Path(given.kernels), Path(snakemake.output[0])
    )
