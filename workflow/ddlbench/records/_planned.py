"""Whether a record is of the settings that the plan has: figures must not mix recipes that have one
name.

Two versions of a recipe give a run the same id and folder. The planner says for each run a digest
of its settings; `collect` compares it with the record's, and refuses a record of others.
"""

from collections.abc import Mapping
from pathlib import Path

from ddlbench.analysis.refusals import RefusedError, of_seal
from ddlbench.core.digest import digest
from ddlbench.core.mllog import recorded_spec
from ddlbench.core.record import MLLOG

TODO = "start the workflow again: it makes this run again, with the current settings"


def check_settings(folder: Path, wanted: str | None) -> None:
    """Raise RefusedError if the record in a run's folder is of other settings than those of the
    digest `wanted`.

    None accepts any settings. `ours.py` reports what else may be wrong with the record.
    """
    if wanted is None:
        return
    try:
        spec = recorded_spec(folder / MLLOG)
        other = isinstance(spec, Mapping) and digest(spec) != wanted
    except Exception:  # whatever stands there, `ours.py` refuses it and says why
        return
    if other and not of_seal(folder / MLLOG):
        raise RefusedError(folder / MLLOG, "has other settings than this study's plan", TODO)
