"""Rule recommend: what to train with to reach `target` (`ddlbench.outlook.recommendation`)."""

import sys
from pathlib import Path

from ddlbench.core import files
from ddlbench.outlook.recommendation import NothingToRecommendError
from ddlbench.outlook.recommendation.make import make

log = Path(snakemake.log[0])
try:
    text, made = make(snakemake.params.config, [Path(record) for record in snakemake.params.records])
except NothingToRecommendError as error:
    files.write_text(log, f"recommend: {error}\n")
    sys.exit(f"recommend: {error}")
text = f"{text}\nAll candidates: {made[0]}; price over time: {made[1]}; what they mean: docs/prediction.md"
files.write_text(log, f"{text}\n")
print(f"\n{text}", flush=True)
