"""Rule plan: what the runs of a study will take and cost, printed and as a table (`ddlbench.plan.bill`)."""

from pathlib import Path

from ddlbench.core import layout
from ddlbench.plan import bill, reads
from ddlbench.plan import table as plan_table
from ddlbench.plan.runs import make_plan
from ddlbench.plan.stale import DONE, Memory
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

config, tables = snakemake.params.config, Path(snakemake.params.tables)
study, machine = load_study(config["study"]), load_machine(config["machine"])
images = reads.images(study, machine, config["data"]["sources"])
plan = make_plan(study, machine, config["account"], images)
memories = {run: Memory(*memory) for run, memory in snakemake.params.memories.items()}
rows = bill.rows(plan, images, layout.RESULTS, memories, snakemake.params.command)
sources = config["data"]["sources"]
said = plan_table.lines(plan, rows, reads.forms(plan, sources), config["max_gpu_hours"])
said += reads.remarks(plan, sources, [row.run for row in rows if row.state != DONE])
text = "\n".join([*said, f"One row per run: {tables}/plan.csv"]) + "\n"
bill.write(rows, text, tables)
print(f"\n{text}", flush=True)
