"""A digest of a run's settings, by which a plan and a record are compared."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ddlbench.core.spec import relevant_settings


def digest(settings: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits for what a run uses of its settings (its RunSpec's JSON); 1 and
    1.0 are one number.
    """
    text = json.dumps(_plain(relevant_settings(settings)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Return a value of JSON with each whole number as a float. A plan asks for those of thousands
    of runs.
    """
    kind = type(value)
    if kind is int:
        return float(value)
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if kind is list else value
