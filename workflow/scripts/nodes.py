"""Rule nodes: each host of a machine beside the others, printed and as a table (`ddlbench.analysis.nodes`)."""

from pathlib import Path

from ddlbench.analysis import nodes
from ddlbench.core import layout

machine, table = snakemake.params.machine, Path(layout.nodes(snakemake.params.machine))
found, runs, refused = nodes.records(machine, Path(layout.runs()))
rows = nodes.rows(found)
nodes.write(rows, table)
said = [
    *nodes.lines(rows),
    f"{runs} runs of {machine} on two hosts or more, one row per host and part: {table}",
    *refused,
]
text = "\n".join(said)
Path(snakemake.log[0]).write_text(text + "\n", encoding="utf-8")
print(text, flush=True)
