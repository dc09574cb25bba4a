"""Rule collect: tables of a study's runs, by `ddlbench.analysis.collect`.

A script and no shell command, because thousands of paths do not fit into a command line.
"""

import sys
from pathlib import Path

from ddlbench.analysis import refusals
from ddlbench.analysis.collect import collect
from ddlbench.analysis.price import Tariff
from ddlbench.analysis.sheets import Costs, Planned, Terms
from ddlbench.core import layout, registry
from ddlbench.core.files import logged

terminal = sys.stderr
with logged(snakemake.log[0]) as log:
    places = [Path(layout.run(run)) for run in snakemake.params.runs]
    places += [Path(record) for record in snakemake.input.others]
    given = snakemake.params
    planned = Planned(
        given.settings, given.order, given.scaling, [Path(job) for job in given.non_training]
    )
    costs = Costs(Tariff(*given.tariff), Terms(*given.terms), given.peaks)
    read = registry.member("records", given.kind).read
    refused = collect(places, Path(snakemake.output[0]).parent, planned, costs, read)
    for out in (log, terminal):
        print(*refusals.lines(refused), sep="\n", file=out, flush=True)
