"""Rule infer_table: records of inference to their table (`ddlbench.analysis.sheets.inference`)."""

import sys
from pathlib import Path

from ddlbench.analysis import tables
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.sheets import inference
from ddlbench.train.inference import InferSpec

with Path(snakemake.log[0]).open("w") as log:
    folders = [Path(record).parent for record in snakemake.input.records]
    specs = [InferSpec.from_json(text) for text in snakemake.params.specs]
    try:
        rows = inference.rows(folders, specs)
    except RefusedError as error:
        for out in (log, sys.stderr):
            print(f"{error}; {error.todo or ''}", file=out, flush=True)
        sys.exit(1)
    tables.write("inference", rows, Path(snakemake.output[0]).parent)
