"""Checkpoint figure_data: what one figure is drawn from, made from a study's tables.

A script and no shell command, because thousands of run ids do not fit into a command line.
"""

from pathlib import Path

from ddlbench.audit import _findings
from ddlbench.audit._audit import audit, write
from ddlbench.audit._material import of_study
from ddlbench.figures import Options
from ddlbench.figures.__main__ import selected, write_data
from ddlbench.files import logged

with logged(snakemake.log[0]):
    given = snakemake.params
    options = Options("", given.device, "", basis=given.basis, target=given.target)
    tables, runs = Path(snakemake.input.tables[0]).parent, given.runs
    if runs is None:  # records of others
        runs = selected(tables, given.select)
    write_data(given.plot, tables, runs, Path(snakemake.output[0]), options)
    if snakemake.params.fail_on:
        found = audit(of_study(tables, only=runs))
        write(_findings.worst(found, snakemake.params.fail_on), Path(snakemake.output[1]))
