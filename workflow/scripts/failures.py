"""Rule failures: what went wrong so far, printed and as a table; no other job has to be done."""

from pathlib import Path

from ddlbench.analysis import failures, refusals, tables
from ddlbench.core import layout

asked = [Path(layout.inference(job)).parent for job in snakemake.params.inferences]
rows = failures.failures([Path(layout.run(run)) for run in snakemake.params.runs], asked)
folder = Path(snakemake.params.tables)
tables.write("failures", rows, folder)
said = [*failures.lines(rows), f"{failures.counted(rows)}: {folder}/failures.csv"]
# Records are checked when tables are made: this is what was refused then.
text = "\n".join([*said, *refusals.lines(refusals.read(folder))])
Path(snakemake.log[0]).write_text(text + "\n", encoding="utf-8")
print(text, flush=True)
