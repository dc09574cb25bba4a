"""Rule records: the records of some runs by their digests (of the log, which has those of the files
beside it).

A script and no shell command, because thousands of paths do not fit into a command line.
"""

import csv
from pathlib import Path

from ddlbench.core import layout
from ddlbench.core.files import aside, logged, sha256

made = Path(snakemake.output[0])
with logged(snakemake.log[0]), aside(made) as hidden, hidden.open("w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("run", "sha256"))
    for run in snakemake.params.runs:
        try:
            digest = sha256(Path(layout.run_log(run)))
        except OSError as error:  # no file that can be read: tables refuse the record
            digest = str(error.strerror)
        table.writerow((run, digest))
