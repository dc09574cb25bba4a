"""Keys of the YAML files that people write: each is one field of a dataclass, and pydantic checks
what files say.

A field's annotation gives the type of its key, its default the default, `key(...)` the meaning and
the rules, in JSON schema's words. Schema, `config/README.md` and messages follow. Fields without
`key(...)` are no keys. Studies are in `study_keys.py`, machines in `machine.py`, `config.yaml` in
`workflow.py`, recipes in `core/recipe.py`.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticCustomError, core_schema

from ddlbench.core import gone, recipe
from ddlbench.core.formatting import count_of
from ddlbench.settings.config import NAME, NAME_IN_WORDS, NAMED, ConfigError, complain, one_of

T = TypeVar("T")
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
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


class Keys:
    """A dataclass of keys. Unknown keys and numbers that are not finite are refused, and no type
    becomes another.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)


key = recipe.key  # None as its default stands for "left out" where the type has no null


def each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len({*values}) < len(values):
        raise PydanticCustomError("unique", "each item once")
    return values


def mapping(values: Any, names: Any = str, in_order: bool = True) -> GetPydanticSchema:
    """Return the schema for a field of (name, value) pairs, a mapping in YAML: sorted by name, or
    in the order given.
    """

    def pairs(given: Any, check: Any) -> tuple[tuple[str, Any], ...]:
        check(given)
        return tuple(sorted(given.items()) if in_order else given.items())  # 5 stays 5, and not 5.0

    def schema(_: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(pairs, handler(dict[names, values]))

    return GetPydanticSchema(schema)


Name = Annotated[str, Field(pattern=NAMED)]  # becomes part of paths and of run ids
Names = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(each_once)]
# A name, or a function in a module: `nets.wide:build` (`own_models.py`).
MODEL = f"^{NAME.pattern}(:[A-Za-z_][A-Za-z0-9_]*)?$"
Models = Annotated[
    tuple[Annotated[str, Field(pattern=MODEL)], ...], Field(min_length=1), AfterValidator(each_once)
]
Count = Annotated[int, Field(ge=1)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(each_once)]
Positive = Annotated[float, Field(gt=0)]
# null too, where the program itself puts a number in its place.
Nullable = GetPydanticSchema(lambda source, handler: core_schema.nullable_schema(handler(source)))


@cache
def _adapter_and_rules(cls: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    adapter = TypeAdapter(cls)
    schema = adapter.json_schema()
    return adapter, _resolved(schema, schema.get("$defs", {}))


def schema_of(cls: type) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of keys, without references."""
    return _adapter_and_rules(cls)[1]


def _resolved(rules: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(rules, list):
        return [_resolved(rule, shared) for rule in rules]
    if not isinstance(rules, dict):
        return rules
    rules = shared[rules["$ref"].rpartition("/")[2]] | rules if "$ref" in rules else rules
    whole = {
        name: _resolved(rule, shared)
        for name, rule in rules.items()
        if name not in ("$ref", "$defs", "title")
    }
    if isinstance(rules.get("properties"), dict):
        whole["properties"] = {
            name: _resolved(rule, shared)
            for name, rule in rules["properties"].items()
            if "description" in rule
        }
    for pattern, values in whole.pop("patternProperties", {}).items():
        whole |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return whole


def value_of(
    cls: type[T], data: Mapping[str, Any], file: str | Path, under: str = "", **more: Any
) -> T:
    """Make the dataclass from `data`, which lie under a key of a file; `more` are fields that are
    no keys. Raises ConfigError at the first fault.
    """
    adapter, rules = _adapter_and_rules(cast(Hashable, cls))
    for name in data:
        if name not in _keys(rules):
            raise _unknown(file, _join(under, name), name, rules)
    try:
        # A mapping stands for a value that no key allows, such as dates of YAML 1.1 that Snakemake
        # reads.
        text = json.dumps({**data, **more}, default=lambda value: {str(value): ""}, skipkeys=True)
        value: T = adapter.validate_json(text, strict=True)
    except ValidationError as error:
        raise _explained(error, data, rules, file, under) from None
    except ValueError:  # Python prints no longer numbers
        raise ConfigError(
            f"{file}: has a number of more than 4300 digits; allowed: below 2^63"
        ) from None
    # An integer stays an integer where floats are allowed: 5, not 5.0. The text of a run decides
    # whether the run is stale.
    whole = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data.items()
        if type(value) is int
        or (isinstance(value, list) and any(type(item) is int for item in value))
    }
    for name, entry in whole.items():
        if isinstance(entry, int) and abs(entry) >= 2**63:
            raise _refused(file, _join(under, name), entry, _keys(rules)[name])
    return replace(value, **whole)  # type: ignore[type-var]


def class_of(schemas: Mapping[str, Mapping[str, Any]]) -> type:
    """Make a dataclass of keys from the JSON schema of each, such as a framework's options."""
    types = {"string": str, "integer": int, "number": float, "boolean": bool}
    fields = []
    for name, rule in schemas.items():
        rules = {word: value for word, value in rule.items() if word not in ("type", "enum")}
        kind: Any = Literal[tuple(rule["enum"])] if "enum" in rule else types[rule["type"]]
        fields.append((name, kind, key(**rules)))
    return make_dataclass("Options", fields, bases=(Keys,), kw_only=True)


def _explained(
    error: ValidationError,
    data: Mapping[str, Any],
    rules: dict[str, Any],
    file: str | Path,
    under: str,
) -> ConfigError:
    """Explain the first fault, of those nearest to the file's top."""
    faults = [(*_place(fault["loc"], data), fault) for fault in error.errors(include_url=False)]
    paths = [path for path, _, _ in faults]
    # If a value may have several types, each type may report an error. The error that is deepest in
    # the value is the most specific.
    faults = [
        fault
        for fault in faults
        if not any(path[: len(fault[0])] == fault[0] != path for path in paths)
    ]
    path, value, fault = min(
        faults, key=lambda fault: (len(fault[0]), [*map(str, fault[0])]), default=faults[0]
    )
    *outer, last = ("", *path)
    where, parent = _join(under, *path), _rules_at(rules, path[:-1])
    if fault["type"] == "json_invalid":
        return ConfigError(f"{file}: has text that is no Unicode: {fault['ctx']['error']}")
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown(file, where, str(last), parent)
    here = _rules_at(rules, path)
    if fault["type"] == "missing":
        name = str(fault["loc"][-1])
        meaning = _keys(here)[name]["description"]
        return ConfigError(
            f"{file}: {_join(where, name)}: is missing;"
            f" {meaning[0].lower()}{meaning[1:].rstrip('.')}"
        )
    if fault["loc"][-1] == "[key]":
        where, value, here = _join(under, *outer), last, parent["propertyNames"]
    if fault["type"] == "unique":
        return complain(file, where, value, f"allowed: {fault['msg']}")
    if "enum" in here:
        return complain(file, where, value, one_of(map(str, here["enum"]), value))
    return _refused(file, where, value, here)


def _refused(file: str | Path, where: str, value: object, rules: dict[str, Any]) -> ConfigError:
    name = NAME_IN_WORDS if isinstance(value, str) else f"text: {NAME_IN_WORDS}"
    return complain(
        file,
        where,
        value,
        f"allowed: {in_words(rules, name).replace('`', '')}{_hint(rules, value)}",
    )


def _place(loc: Sequence[int | str], data: Any) -> tuple[list[int | str], Any]:
    """Return (the keys that lead to a fault, its value). pydantic also names the types that it
    tried.
    """
    path = []
    for part in loc:
        inside = (
            part in data
            if isinstance(data, Mapping)
            else isinstance(data, list) and isinstance(part, int)
        )
        if inside:
            path.append(part)
            data = data[part]
    return path, data


def _rules_at(rules: dict[str, Any], path: Sequence[int | str]) -> dict[str, Any]:
    for part in path:
        rules = next(_inside(rules, part))
    return rules


def _inside(rules: dict[str, Any], part: int | str) -> Iterator[dict[str, Any]]:
    for kind in (rules, *rules.get("anyOf", ())):
        if isinstance(part, int) and "items" in kind:
            yield kind["items"]
        elif part in kind.get("properties", {}):
            yield kind["properties"][part]
        elif isinstance(kind.get("additionalProperties"), dict):
            yield kind["additionalProperties"]
    yield {}


def _keys(rules: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys of a mapping, which may also be null."""
    keys: dict[str, dict[str, Any]] = next(
        kind for kind in (rules, *rules.get("anyOf", ())) if "properties" in kind
    )
    return keys["properties"]


def _unknown(file: str | Path, where: str, name: str, rules: dict[str, Any]) -> ConfigError:
    instead = gone.key_sentence(where)
    if instead is not None:
        return ConfigError(f"{file}: {where}: {instead}")
    return ConfigError(f"{file}: {where}: unknown key; {one_of(_keys(rules), name)}")


def _hint(rules: dict[str, Any], given: object) -> str:
    # Snakemake reads config.yaml and the command line as YAML 1.1: a number with an exponent needs
    # its point there.
    exponent = re.fullmatch(r"([+-]?\d+)e([+-]?\d+)", given) if isinstance(given, str) else None
    if exponent and "number" in str(rules):
        return f" (write it as {exponent[1]}.0e{exponent[2]})"
    if isinstance(given, int) and abs(given) >= 2**63:
        return ", below 2^63"
    if rules.get("type") == "array" and isinstance(given, str | int | float):
        return f" (write it as [{given}])"
    return ""


def in_words(rules: dict[str, Any], name: str = "a name") -> str:
    """Describe what a value may be, by its JSON schema; `name` is what a name is called."""
    if "enum" in rules:
        return ", ".join(f"`{value}`" for value in rules["enum"]) + (
            ", or null" if "anyOf" in rules else ""
        )
    if "anyOf" in rules:
        return ", or ".join(in_words(kind, name) for kind in rules["anyOf"])
    if "const" in rules:
        return f"`{rules['const']}`"
    text = TYPES[rules.get("type", "string")]  # the type of names of a mapping is not documented
    if "pattern" in rules:
        names = {NAMED: name, MODEL: f"{name}, or `<module>:<function>`"}
        text = names.get(rules["pattern"], f"text matching `{rules['pattern']}`")
    text += "".join(f", {words} {rules[rule]}" for rule, words in BOUNDS.items() if rule in rules)
    for rule, noun in (("minItems", "item"), ("minLength", "character")):
        text += f", at least {count_of(rules[rule], noun)}" if rule in rules else ""
    names = rules.get("propertyNames", {}).get("enum", ())
    text += "".join(f"{' and' if key == names[-1] else ','} `{key}`" for key in names).replace(
        ",", " of", 1
    )
    inner = rules.get("items") or rules.get("additionalProperties")  # that may also be false
    # Values that are mappings have a table of their own.
    return (
        f"{text}, each {in_words(inner, name)}"
        if isinstance(inner, dict) and "properties" not in inner
        else text
    )


def _join(*parts: object) -> str:
    return ".".join(str(p) for p in parts if p != "")
