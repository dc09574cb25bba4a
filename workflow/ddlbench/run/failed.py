"""What a failed try leaves beside the record that it did not make: its own reason, and never that of an earlier try."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

from ddlbench.core.files import write_json

FOLDER, FAILURE = "failed", "failure.json"


def keep(folder: Path, partial: Path, failure: dict[str, Any]) -> str:
    """What a failed try left, with the reason, takes the place of what the one before left. Says where it is."""
    failed = folder / FOLDER
    shutil.rmtree(failed, ignore_errors=True)  # first: an older reason must not stand for this one
    try:
        partial.rename(failed)
        job = os.environ.get("SLURM_JOB_ID")
        write_json(failed / FAILURE, failure | {"time": time.time(), "slurm_job_id": job})
    except OSError as error:
        return f"{failed / FAILURE} could not be written: {error.strerror}"
    return f"what it left is in {failed}"
