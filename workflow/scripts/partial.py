"""Rule partial: what is there of a study (`ddlbench.show.page.partial`)."""

import sys

from ddlbench.core.files import logged
from ddlbench.show.page.partial import make

terminal = sys.stdout
with logged(snakemake.log[0]) as log:
    said = make(snakemake.params.config, snakemake.params.terms)
    for out in (log, terminal):
        print("", *said, sep="\n", file=out, flush=True)
