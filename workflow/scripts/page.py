"""Rule page: the page of a study, from its tables and figures (`ddlbench.show.page.write`)."""

from pathlib import Path

from ddlbench.core import files, layout
from ddlbench.plan import bill, reads
from ddlbench.plan.estimate import read_published
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.show.page import about, spent, write

with files.logged(snakemake.log[0]):
    config = snakemake.params.config
    study, machine = load_study(config["study"]), load_machine(config["machine"])
    images = reads.images(study, machine, config["data"]["sources"])
    plan = make_plan(study, machine, config["account"], images)
    rows = bill.rows(plan, images, layout.RESULTS)
    page = about.from_plan(plan, rows, spent.planned(plan, images, read_published()))
    files.remove_left(Path(snakemake.output[0]).parent)
    write.write(page, Path(snakemake.output[0]))
