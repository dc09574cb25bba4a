"""Rule application: the scaling section that centres ask for, in all formats of `ddlbench.outlook.application`."""

import sys
from pathlib import Path

from ddlbench.outlook.application._content import NothingMeasuredError
from ddlbench.outlook.application._make import make

config = snakemake.params.config
try:
    made = make(config, [Path(record) for record in snakemake.params.records])
except NothingMeasuredError:
    said = f"application: study {config['study']} has no finished timed run on machine {config['machine']}"
    Path(snakemake.log[0]).write_text(f"{said}\n", encoding="utf-8")
    sys.exit(f"{said}; nothing can be said of its scaling: train first")
text = "\n".join(map(str, made))
Path(snakemake.log[0]).write_text(text + "\n", encoding="utf-8")
print(text, flush=True)
