"""Whether a record is of the settings that the plan has: figures must not mix recipes that have one name.

Two versions of a recipe give a run the same id and folder. The planner says for each run a digest of its settings;
`collect` compares it with the record's, and refuses a record of others.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddlbench.analysis.refusals import RefusedError, of_seal
from ddlbench.core.record import MLLOG, recorded_spec
from ddlbench.core.spec import used

TODO = "start the workflow again: it makes this run again, with the settings of today"


def digest(settings: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of what a run uses of its settings (its RunSpec's JSON); 1 and 1.0 are one number."""
    text = json.dumps(_plain(used(settings)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_settings(folder: Path, wanted: str | None) -> None:
    """Raises RefusedError if the record in a run's folder is of other settings than those of the digest `wanted`.

    None is any. What else may be wrong with the record, `ours.py` says.
    """
    if wanted is None:
        return
    try:
        spec = recorded_spec(folder / MLLOG)
        other = isinstance(spec, Mapping) and digest(spec) != wanted
    except Exception:  # whatever stands there, `ours.py` refuses it and says why
        return
    if other and not of_seal(folder / MLLOG):
        raise RefusedError(folder / MLLOG, "is of other settings than this study's plan", TODO)


def _plain(value: Any) -> Any:
    """Return a value of JSON with each whole number as a float. A plan asks for those of thousands of runs."""
    kind = type(value)
    if kind is int:
        return float(value)
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if kind is list else value
