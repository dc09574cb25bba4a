"""Rule audit_table: what the rules of the audit find in a study's tables."""

from pathlib import Path

from ddlbench.audit import _findings, _material
from ddlbench.audit._audit import audit
from ddlbench.core import layout
from ddlbench.core.columns import write_csv
from ddlbench.core.files import logged

with logged(snakemake.log[0]):
    folder, convergence = Path(snakemake.input.tables[0]).parent, Path(snakemake.input.convergence)
    rows = audit(_material.of_study(folder, convergence, Path(layout.runs()), snakemake.params.further))
    write_csv(rows, _findings.COLUMNS, Path(snakemake.output[0]))
    print(*_findings.lines(rows), sep="\n")
