"""Checking what people wrote: one line names the file, the key, the value and the remedy.

`reading.py` reads the files. The schemas of config and study files are in `workflow/schemas/`, those of machines and
recipes are made from their dataclasses (`keys.py`). What a schema cannot know (which files exist, what members a room
has) is checked in `study.py` and `machine.py`. `config/README.md` explains each key.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from ddlbench.core import registry
from ddlbench.core.plural import count_of

WORKFLOW = Path(__file__).resolve().parents[2]
# Of the folder that is worked in; elsewhere, of the project that this package lies in.
CONFIG = next((d for d in (Path.cwd() / "config",) if (d / "studies").is_dir()), WORKFLOW.parent / "config")


# What may become part of a path or of a run's id; the schemas say the same of the names written in files.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_IN_WORDS = "letters, digits, '.', '_' and '-', first a letter or digit, at most 100 in all"
NAMED = f"^{NAME.pattern}$"
MOST_SHOWN = 200  # characters of a value that a complaint shows
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
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message))


def complain(file: str | Path, key: str, value: object, allowed: str) -> ConfigError:
    """The one form of every complaint about input."""
    where = f"{file}: {key}" if key else str(file)
    text = json.dumps(value, default=str)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    return ConfigError(f"{where}: {shown} is not allowed; {allowed}")


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


def _is_finite(checker: object, value: object) -> bool:
    return (isinstance(value, float) and math.isfinite(value)) or _is_whole(checker, value)


def _is_whole(checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _matches(
    validator: Any, pattern: str, instance: object, schema: dict[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield jsonschema.ValidationError(f"does not match {pattern}")


# JSON schema takes 4.0 for an integer, and .inf and .nan for numbers: neither is a count or a rate. Its patterns need
# not match all of a text, and `$` would let a line break pass.
_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    validators={"pattern": _matches},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"number": _is_finite, "integer": _is_whole}
    ),
)


@cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON schema of `config` or `study` files."""
    loaded: dict[str, Any] = yaml.safe_load((WORKFLOW / "schemas" / f"{kind}.schema.yaml").read_text())
    return loaded


def check(data: dict[str, Any], rules: dict[str, Any], file: str | Path) -> dict[str, Any]:
    """`data` with the schema's defaults filled in, also in mappings whose keys the schema names.

    Raises ConfigError at the first fault.
    """
    check_against(data, rules, file)
    return _filled(data, rules["properties"])


def check_config(data: dict[str, Any], file: str = "config/config.yaml") -> dict[str, Any]:
    """What config.yaml and the command line say, with defaults filled in. Raises ConfigError at the first fault."""
    config = check(data, schema("config"), file)
    known = registry.members("datasets")
    for name in config["data"]["sources"]:
        if name not in known:
            raise ConfigError(f"{file}: data.sources.{name}: unknown data set; {one_of(known, name)}")
    sources = {name: expand(text, file, f"data.sources.{name}") for name, text in config["data"]["sources"].items()}
    return {**config, "data": {**config["data"], "sources": sources}}


def expand(text: str, file: str | Path, where: str) -> str:
    """A path with `~`, `$NAME`, `${NAME}` and `${NAME:-default}` as a shell would read them.

    Raises ConfigError, which names the file and the key, if a variable is neither set nor has a default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match["name"] or match["bare"], match["default"]
        if os.environ.get(name):
            return os.environ[name]
        if default is None:
            raise complain(
                file, where, text, f"the environment has no {name}: set it, or give a default: ${{{name}:-...}}"
            )
        return default

    path = re.sub(r"\$(?:\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|(?P<bare>[A-Za-z_]\w*))", value, text)
    if re.match(r"~(/|$)", path):
        return str(Path.home()) + path[1:]
    return path


def check_against(data: dict[str, Any], rules: dict[str, Any], file: str | Path, key: str = "") -> None:
    """Raises ConfigError at the first fault of the mapping that lies under `key` of a file, by a JSON schema."""
    errors = _Validator(rules).iter_errors(data)
    try:
        first = min(errors, key=lambda e: (len(e.absolute_path), [str(part) for part in e.absolute_path]), default=None)
    except ValueError:  # Python prints none of them, and jsonschema tries to
        raise ConfigError(f"{file}: has a number of more than 4300 digits; allowed: below 2^63") from None
    if first:
        raise _explain(first, file, key)


def _filled(data: dict[str, Any], rules: dict[str, Any]) -> dict[str, Any]:
    defaults = {key: rule["default"] for key, rule in rules.items() if "default" in rule}
    return {
        key: _filled(value, rules[key]["properties"])
        if "properties" in rules.get(key, {}) and isinstance(value, dict)  # a mapping may also be null
        else value
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
        "minItems": lambda: f"allowed: at least {count_of(value, 'item')}",
        "minLength": lambda: f"allowed: at least {count_of(value, 'character')}",
        "uniqueItems": lambda: "allowed: each item once",
        "minProperties": lambda: f"allowed: at least {count_of(value, 'key')}",
        "pattern": lambda: f"allowed: {NAME_IN_WORDS if value == NAMED else f'text matching {value}'}",
    }
    allowed = rules[rule]() if rule in rules else error.message
    return complain(file, key, error.instance, allowed)


def _types(names: str | list[str], given: object) -> str:
    allowed = " or ".join(TYPES[name] for name in ([names] if isinstance(names, str) else names))
    # Snakemake reads config.yaml and the command line as YAML 1.1: a number with an exponent needs its point there.
    exponent = re.fullmatch(r"([+-]?\d+)e([+-]?\d+)", given) if isinstance(given, str) else None
    if exponent and "number" in names:
        return f"allowed: {allowed} (write it as {exponent[1]}.0e{exponent[2]})"
    if isinstance(given, int) and abs(given) >= 2**63:
        return f"allowed: {allowed}, below 2^63"
    if names == "array" and isinstance(given, str | int | float):
        return f"allowed: {allowed} (write it as [{given}])"
    return f"allowed: {allowed}"


def _meaning(of: dict[str, Any], key: str) -> str:
    """The description of a key, as the end of a sentence; its name where the schema has none."""
    description: str = of.get("properties", {}).get(key, {}).get("description", key)
    return description[0].lower() + description[1:].rstrip(".")


def _join(*parts: object) -> str:
    return ".".join(str(p) for p in parts if p != "")
