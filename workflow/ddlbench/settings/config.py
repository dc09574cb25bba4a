"""Reading and checking the YAML files that people write; complaints name file, key, value and remedy.

The schemas are in `workflow/schemas/`; what a schema cannot know (which files exist, what members a room has)
is checked in `study.py`. See `config/README.md` for the meaning of each key.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

WORKFLOW = Path(__file__).resolve().parents[2]
CONFIG = WORKFLOW.parent / "config"


# What may become part of a path or of a run's id; the schemas say the same of the names written in files.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NAME_IN_WORDS = "letters, digits, '.', '_' and '-', first a letter or digit"
# YAML's words for JSON schema's types.
TYPES = {
    "object": "a mapping of keys to values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


class ConfigError(ValueError):
    """Something a person wrote cannot be used; the message is one line and is all they need."""

    def __init__(self, message: str) -> None:
        super().__init__(message.replace("\n", "\\n"))


def complain(file: str | Path, key: str, value: object, allowed: str) -> ConfigError:
    """The one form of every complaint about input."""
    where = f"{file}: {key}" if key else str(file)
    return ConfigError(f"{where}: {json.dumps(value, default=str)} is not allowed; {allowed}")


def one_of(names: Iterable[str], given: object = None) -> str:
    """'allowed: a, b, c', with a guess at what was meant; of many names only those near to what was given."""
    names = sorted(names)
    close = difflib.get_close_matches(str(given), names, n=5) if given is not None else []
    hint = f" (did you mean {close[0]}?)" if close else ""
    if len(names) > 40:
        return f"allowed: one of {len(names)} names, such as {', '.join(close or names[:5])}{hint}"
    return f"allowed: {', '.join(names)}{hint}"


def names_in(folder: Path, suffix: str) -> list[str]:
    """The names that files of this folder give to what they hold, sorted: `names_in(recipes, ".yaml")`."""
    return sorted(p.stem for p in folder.glob(f"*{suffix}") if NAME.fullmatch(p.stem))


class _Loader(yaml.SafeLoader):
    """YAML in which a key can be given once: of two, plain YAML would drop the first without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    both = f"lines {lines[key.value]} and {line}"
                    raise ConfigError(f"{self.name}: {key.value}: is given twice, in {both}")
                lines[key.value] = line
        return node


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError if it is absent, broken, no mapping or repeats a key."""
    try:
        with path.open(encoding="utf-8") as stream:
            data = yaml.load(stream, _Loader)
    except FileNotFoundError:
        there = names_in(path.parent, ".yaml")
        raise ConfigError(f"{path}: no such file; {one_of(there, path.stem)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path}: is not YAML: {where}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if data is None:
        raise ConfigError(f"{path}: is empty; allowed: {TYPES['object']}")
    if not isinstance(data, dict):
        raise complain(path, "", data, f"allowed: {TYPES['object']}")
    return data


def _is_finite(checker: object, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# JSON schema takes 4.0 for an integer, and .inf and .nan for numbers: neither is a count or a rate.
_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"number": _is_finite, "integer": _is_whole}
    ),
)


@cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON schema of `config`, `study`, `machine` or `recipe` files."""
    loaded: dict[str, Any] = yaml.safe_load((WORKFLOW / "schemas" / f"{kind}.schema.yaml").read_text())
    return loaded


def check(data: dict[str, Any], kind: str, file: str | Path) -> dict[str, Any]:
    """`data` with the schema's defaults filled in, also in mappings whose keys the schema names.

    Raises ConfigError at the first fault.
    """
    check_against(data, schema(kind), file)
    return _filled(data, schema(kind)["properties"])


def check_against(data: dict[str, Any], rules: dict[str, Any], file: str | Path, key: str = "") -> None:
    """Raises ConfigError at the first fault of the mapping that lies under `key` of a file, by a JSON schema."""
    errors = _Validator(rules).iter_errors(data)
    first = min(errors, key=lambda e: (len(e.absolute_path), str(e.absolute_path)), default=None)
    if first:
        raise _explain(first, file, key)


def _filled(data: dict[str, Any], rules: dict[str, Any]) -> dict[str, Any]:
    defaults = {key: rule["default"] for key, rule in rules.items() if "default" in rule}
    return {
        key: _filled(value, rules[key]["properties"]) if "properties" in rules.get(key, {}) else value
        for key, value in (defaults | data).items()
    }


def _explain(error: jsonschema.ValidationError, file: str | Path, under: str) -> ConfigError:
    while error.context:  # oneOf/anyOf: the deepest branch says most
        error = max(error.context, key=lambda e: len(e.absolute_path))
    key = _join(under, *error.absolute_path)
    rule, value = error.validator, error.validator_value
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = next(k for k in error.instance if k not in known)
        return ConfigError(f"{file}: {_join(key, unknown)}: unknown key; {one_of(known, unknown)}")
    if rule == "required":
        missing = next(k for k in value if k not in error.instance)
        return ConfigError(f"{file}: {_join(key, missing)}: is missing; {_meaning(error.schema, missing)}")
    rules: dict[str, Callable[[], str]] = {
        "enum": lambda: one_of((str(v) for v in value), error.instance),
        "type": lambda: _types(value, error.instance),
        "minimum": lambda: f"allowed: at least {value}",
        "exclusiveMinimum": lambda: f"allowed: more than {value}",
        "maximum": lambda: f"allowed: at most {value}",
        "exclusiveMaximum": lambda: f"allowed: less than {value}",
        "minItems": lambda: f"allowed: at least {value} item{'s' * (value > 1)}",
        "minLength": lambda: f"allowed: at least {value} character{'s' * (value > 1)}",
        "uniqueItems": lambda: "allowed: each item once",
        "minProperties": lambda: f"allowed: at least {value} key{'s' * (value > 1)}",
        "pattern": lambda: f"allowed: {NAME_IN_WORDS if value == f'^{NAME.pattern}$' else f'text matching {value}'}",
    }
    allowed = rules[rule]() if rule in rules else error.message
    return complain(file, key, error.instance, allowed)


def _types(names: str | list[str], given: object) -> str:
    allowed = " or ".join(TYPES[name] for name in ([names] if isinstance(names, str) else names))
    # YAML 1.1 reads 1e-4 as text: a number with an exponent needs its point.
    exponent = re.fullmatch(r"([+-]?\d+)e([+-]?\d+)", given) if isinstance(given, str) else None
    if exponent and "number" in names:
        return f"allowed: {allowed} (write it as {exponent[1]}.0e{exponent[2]})"
    if names == "array" and isinstance(given, str | int | float):
        return f"allowed: {allowed} (write it as [{given}])"
    return f"allowed: {allowed}"


def _meaning(of: dict[str, Any], key: str) -> str:
    """The description of a key, as the end of a sentence; its name where the schema has none."""
    description: str = of.get("properties", {}).get(key, {}).get("description", key)
    return description[0].lower() + description[1:].rstrip(".")


def _join(*parts: object) -> str:
    return ".".join(str(p) for p in parts if p != "")
