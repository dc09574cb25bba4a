"""Rule figure: one picture from its data, by the member of `ddlbench/show/figures` that the study names."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from ddlbench.analysis.together import ended_well
from ddlbench.core.files import logged
from ddlbench.show.figures import Options, _data
from ddlbench.show.figures._make import draw

with logged(snakemake.log[0]):
    options = Options(**json.loads(snakemake.params.options))
    if snakemake.input.get("reference"):
        options = replace(options, reference=pd.read_csv(snakemake.input.reference))
    shown = pd.read_csv(snakemake.input.shown)
    if not ended_well(shown).all():  # a record was refused
        options = replace(options, title=f"{options.title}\n{_data.counted(shown)}")
    options = replace(options, about=", ".join(filter(None, [options.about, _data.day(shown)])))
    draw(snakemake.params.plot, Path(snakemake.input.data), Path(snakemake.output[0]).with_suffix(""), options)
