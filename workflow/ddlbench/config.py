"""Reading and checking the YAML files that people write; every complaint names file, key, value and what is allowed.

The schemas are in `workflow/schemas/`; what a schema cannot know (which files exist, which members a room has) is
checked in `study.py`. See `config/README.md` for the meaning of each key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

WORKFLOW = Path(__file__).resolve().parents[1]
CONFIG = WORKFLOW.parent / "config"


class ConfigError(ValueError):
    """Something a person wrote cannot be used; the message is one line and is all they need."""


def complain(file: str | Path, key: str, value: object, allowed: str) -> ConfigError:
    """The one form of every complaint about input."""
    where = f"{file}: {key}" if key else str(file)
    return ConfigError(f"{where}: {json.dumps(value, default=str)} is not allowed; {allowed}")


def one_of(names: Iterable[str], given: object = None) -> str:
    """'allowed: a, b, c', with a guess at what was meant."""
    names = sorted(names)
    close = difflib.get_close_matches(str(given), names, n=1) if given is not None else []
    hint = f" (did you mean {close[0]}?)" if close else ""
    shown = ", ".join(names[:40]) + (f", ... ({len(names)} in all)" if len(names) > 40 else "")
    return f"allowed: {shown}{hint}"


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError if it is missing, does not parse or is no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = sorted(p.stem for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such file; {one_of(there, path.stem)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, not {type(data).__name__}")
    return data


@cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON schema of `config`, `study`, `machine` or `recipe` files."""
    loaded: dict[str, Any] = yaml.safe_load((WORKFLOW / "schemas" / f"{kind}.schema.yaml").read_text())
    return loaded


def check(data: dict[str, Any], kind: str, file: str | Path) -> dict[str, Any]:
    """`data` with the schema's defaults filled in at the top level. Raises ConfigError at the first fault."""
    validator = jsonschema.Draft202012Validator(schema(kind))
    errors = sorted(validator.iter_errors(data), key=lambda e: (len(e.absolute_path), str(e.absolute_path)))
    if errors:
        raise _explain(errors[0], file)
    defaults = {k: v["default"] for k, v in schema(kind)["properties"].items() if "default" in v}
    return defaults | data


def _explain(error: jsonschema.ValidationError, file: str | Path) -> ConfigError:
    while error.context:  # oneOf/anyOf: the deepest branch says most
        error = max(error.context, key=lambda e: len(e.absolute_path))
    key = ".".join(str(part) for part in error.absolute_path)
    rule, value = error.validator, error.validator_value
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = next(k for k in error.instance if k not in known)
        return ConfigError(f"{file}: {_join(key, unknown)}: unknown key; {one_of(known, unknown)}")
    if rule == "required":
        missing = next(k for k in value if k not in error.instance)
        return ConfigError(f"{file}: {_join(key, missing)}: is missing")
    allowed = {
        "enum": lambda: one_of((str(v) for v in value), error.instance),
        "type": lambda: f"allowed: {value if isinstance(value, str) else ' or '.join(value)}",
        "minimum": lambda: f"allowed: at least {value}",
        "exclusiveMinimum": lambda: f"allowed: more than {value}",
        "maximum": lambda: f"allowed: at most {value}",
        "minItems": lambda: f"allowed: at least {value} item(s)",
        "uniqueItems": lambda: "allowed: each item once",
        "minProperties": lambda: f"allowed: at least {value} key(s)",
        "pattern": lambda: f"allowed: text matching {value}",
    }.get(str(rule), lambda: error.message)()
    return complain(file, key, error.instance, allowed)


def _join(*parts: str) -> str:
    return ".".join(p for p in parts if p)
