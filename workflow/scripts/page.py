"""Rule page: the page of a study, from its tables and figures (`ddlbench.show.page.write`)."""

from pathlib import Path

from ddlbench.core import files, layout, living
from ddlbench.plan import bill, reads
from ddlbench.plan.estimate import read_published
from ddlbench.show import overview
from ddlbench.show.page import about, spent, write

with files.logged(snakemake.log[0]):
    plan, images = reads.plan_of(snakemake.params.config)
    rows = bill.rows(plan, images, layout.RESULTS)
    page = about.from_plan(plan, rows, spent.planned(plan, images, read_published()))
    living.remove_left(Path(snakemake.output[0]).parent)
    write.write(page, Path(snakemake.output[0]))
    overview.write()
