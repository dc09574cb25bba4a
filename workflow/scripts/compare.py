"""Rule compare: one side's runs beside another's, printed and as a table (`ddlbench.analysis.compare`)."""

import sys
from pathlib import Path

from ddlbench.analysis import compare
from ddlbench.core import layout

sides, refused = [], []
for key in ("before", "after"):
    name = snakemake.params[key]
    if name is None:
        sys.exit(f"config: {key}: is missing; a machine with records, or a folder of runs: --config {key}=...")
    runs, some = compare.side(str(name), layout.RESULTS)
    if not runs:
        sys.exit("\n".join([f"config: {key}: {name!r} has no timed record that ended well", *some]))
    sides.append(runs)
    refused += some
if (name := str(snakemake.params.after)) == str(snakemake.params.before):
    sys.exit(f"config: after: {name!r} is before's too; allowed: another machine, or another folder of runs")
rows = compare.rows(*sides)
table = Path(layout.comparison(str(snakemake.params.before), str(snakemake.params.after)))
compare.write(rows, table)
said = [*compare.lines(rows), *(f"differs: {line}" for line in compare.differences(*sides)), *refused]
if not rows:
    said.append("no run is on both sides: pairs are runs that differ in nothing but their machine's name")
text = "\n".join([*said, f"one row per run, host and part: {table}"])
Path(snakemake.log[0]).write_text(text + "\n", encoding="utf-8")
print(text, flush=True)
