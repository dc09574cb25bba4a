"""Rule figure: one picture from its data, by the member of `ddlbench/show/figures` that the study
names.
"""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from ddlbench.analysis.together import ended_well
from ddlbench.core.files import logged
from ddlbench.show import figure_data
from ddlbench.show.figures import Options
from ddlbench.show.make_figure import draw

with logged(snakemake.log[0]):
    options = Options(**json.loads(snakemake.params.options))
    if snakemake.input.get("reference"):
        options = replace(options, reference=pd.read_csv(snakemake.input.reference))
    shown = pd.read_csv(snakemake.input.shown)
    if not ended_well(shown).all():  # a record was refused
        options = replace(options, title=f"{options.title}\n{figure_data.counted(shown)}")
    options = replace(
        options, about=", ".join(filter(None, [options.about, figure_data.day(shown)]))
    )
    draw(
        snakemake.params.plot,
        Path(snakemake.input.data),
        Path(snakemake.output[0]).with_suffix(""),
        options,
    )
