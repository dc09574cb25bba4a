"""Rule audit_table: what the rules of the audit find in a study's tables."""

from pathlib import Path

from ddlbench.audit import finding_rows, material
from ddlbench.audit.check import audit
from ddlbench.core import layout
from ddlbench.core.columns import write_csv
from ddlbench.core.files import logged

with logged(snakemake.log[0]):
    folder, convergence = Path(snakemake.input.tables[0]).parent, Path(snakemake.input.convergence)
    rows = audit(
        material.of_study(folder, convergence, Path(layout.runs()), snakemake.params.further)
    )
    write_csv(rows, finding_rows.COLUMNS, Path(snakemake.output[0]))
    print(*finding_rows.lines(rows), sep="\n")
