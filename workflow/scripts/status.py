"""Rule status: one screen about a study while it runs (`ddlbench.commands.status`)."""

from pathlib import Path

from ddlbench.commands import status
from ddlbench.core import layout
from ddlbench.plan import bill, reads
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

config = snakemake.params.config
study, machine = load_study(config["study"]), load_machine(config["machine"])
images = reads.images(study, machine, config["data"]["sources"])
plan = make_plan(study, machine, config["account"], images)
rows = bill.rows(plan, images, layout.RESULTS)
states, trouble = status.now(plan, rows, layout.RESULTS, Path.cwd())
text = "\n".join(status.lines(plan, rows, states, layout.RESULTS, config["max_gpu_hours"], trouble))
Path(snakemake.log[0]).write_text(text + "\n", encoding="utf-8")
print(f"\n{text}\n", flush=True)
