"""Rules predict, recommend and application: `make` of the part of `ddlbench.outlook` that is asked for."""

import sys
from pathlib import Path

from ddlbench.core import files
from ddlbench.outlook import NoAnswerError, predictions
from ddlbench.outlook.application import _content as application
from ddlbench.outlook.recommendation import make as recommend
from ddlbench.settings.config import ConfigError

log, rule = Path(snakemake.log[0]), snakemake.rule
part = {"predict": predictions, "recommend": recommend, "application": application}[rule]
try:
    text = part.make(snakemake.params.config, [Path(record) for record in snakemake.params.records])
except NoAnswerError as error:  # which is an answer too
    text = f"{rule}: no answer: {error}"
except ConfigError as error:
    files.write_text(log, f"{rule}: {error}\n")
    sys.exit(f"{rule}: {error}")
files.answer(f"\n{text}", log)
