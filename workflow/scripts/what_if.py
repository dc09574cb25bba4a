"""Rule what_if: rates after changes that nobody made (`ddlbench.outlook.what_if`)."""

import sys
from pathlib import Path

from ddlbench.core import files
from ddlbench.outlook.what_if import NothingToComputeError
from ddlbench.outlook.what_if.make import make
from ddlbench.settings.config import ConfigError

log = Path(snakemake.log[0])
try:
    text, made = make(snakemake.params.config, [Path(record) for record in snakemake.params.records])
except (NothingToComputeError, ConfigError) as error:
    files.write_text(log, f"what_if: {error}\n")
    sys.exit(f"what_if: {error}")
text = f"{text}\nAll numbers: {made[0]}; the first series drawn: {made[1]}; how they are computed: docs/prediction.md"
files.write_text(log, f"{text}\n")
print(f"\n{text}", flush=True)
