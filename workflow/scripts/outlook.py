"""Rule predict (`ddlbench.outlook.predictions`)."""

import sys
from pathlib import Path

from ddlbench.core import files
from ddlbench.outlook import NoAnswerError, predictions
from ddlbench.settings.config import ConfigError

log = Path(snakemake.log[0])
try:
    text = predictions.make(
        snakemake.params.config, [Path(record) for record in snakemake.params.records]
    )
except NoAnswerError as error:  # which is an answer too
    text = f"predict: no answer: {error}"
except ConfigError as error:
    files.write_text(log, f"predict: {error}\n")
    sys.exit(f"predict: {error}")
files.answer(f"\n{text}", log)
