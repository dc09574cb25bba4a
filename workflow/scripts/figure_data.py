"""Rule figure_data: what one figure is drawn from, made of the records of its runs; and which of
them it shows.

A script and no shell command, because thousands of run ids do not fit into a command line.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from ddlbench.analysis.collect import collect
from ddlbench.analysis.sheets import Costs, Planned, Terms
from ddlbench.core import layout
from ddlbench.core.files import logged
from ddlbench.show import figure_data
from ddlbench.show.figures import Options
from ddlbench.show.make_figure import selected, write_drawable

with logged(snakemake.log[0]), TemporaryDirectory() as own:
    given = snakemake.params
    options = Options("", given.device, "", basis=given.basis, target=given.target)
    tables, runs = Path(own), given.runs
    if snakemake.input.tables:  # of records of others, of jobs of inference
        tables = Path(snakemake.input.tables[0]).parent
        runs = selected(tables, given.select) if runs is None else runs
    else:
        planned = Planned(given.settings, scaling=given.scaling)
        costs = Costs(
            terms=Terms(*given.machine.get("terms", ())), peaks=given.machine.get("peaks", {})
        )
        collect([Path(layout.run(run)) for run in runs], tables, planned, costs)
    shown = write_drawable(given.plot, tables, runs, Path(snakemake.output[0]), options)
    figure_data.write(shown, Path(snakemake.output[1]))
