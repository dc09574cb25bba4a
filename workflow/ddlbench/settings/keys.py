"""From a dataclass to the keys of a YAML file: its JSON schema, and its value from what the file says.

A key is declared once, as a field with `recipe.key` as its metadata: machines in `machine.py`, recipes in
`core/recipe.py`. The field's annotation gives the type, its default the default; what the metadata says of either goes
first. In YAML, tuples are lists, and tuples of (name, value) pairs are mappings. Fields without such metadata are no
keys.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
ALLOWED = (
    "str, int, float, bool, a dataclass of keys, tuple[<one of these>, ...] for a list, "
    "tuple[tuple[str, <one of these>], ...] for a mapping; each of them with | None"
)


def schema_of(cls: type) -> dict[str, Any]:
    """The JSON schema of a mapping whose keys are the fields of a dataclass. Raises TypeError on a type of no key."""
    hints = get_type_hints(cls)
    properties, required = {}, []
    for field in fields(cls):
        if "description" not in field.metadata:
            continue
        try:
            rules = _merged(_rules_of(hints[field.name]), field.metadata)
        except (KeyError, ValueError):
            name = f"{cls.__name__}.{field.name}"
            raise TypeError(f"{name}: {field.type}: no type of a key; allowed: {ALLOWED}") from None
        if "enum" in rules:
            del rules["type"]
        if field.default is not MISSING:
            rules.setdefault("default", _plain(field.default, rules))
        if "default" not in rules:
            required.append(field.name)
        properties[field.name] = rules
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def value_of(cls: type[T], data: dict[str, Any], **more: Any) -> T:
    """The dataclass from a mapping that its schema allows, defaults filled in; `more` are fields that are no keys."""
    hints = get_type_hints(cls)
    return cls(**{name: _value(hints[name], value) for name, value in data.items()}, **more)


def _rules_of(annotation: Any) -> dict[str, Any]:
    if isinstance(annotation, types.UnionType):
        (inner,) = (a for a in get_args(annotation) if a is not types.NoneType)
        rules = _rules_of(inner)
        return {**rules, "type": [rules["type"], "null"]}
    if is_dataclass(annotation):
        return schema_of(annotation)  # type: ignore[arg-type]
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        if get_origin(inner) is tuple:
            return {"type": "object", "additionalProperties": _rules_of(get_args(inner)[1])}
        return {"type": "array", "items": _rules_of(inner)}
    return {"type": JSON_TYPES[annotation]}


def _merged(rules: dict[str, Any], said: Any) -> dict[str, Any]:
    """The rules with what the metadata says laid over them, also over those of a list's or mapping's values."""
    merged = {"description": said["description"], **rules, **said}
    for inside in ("items", "additionalProperties"):
        if inside in rules and inside in said:
            merged[inside] = rules[inside] | said[inside]
    return merged


def _plain(default: Any, rules: dict[str, Any]) -> Any:
    if isinstance(default, tuple):
        return dict(default) if rules["type"] == "object" else list(default)
    return default


def _value(annotation: Any, value: Any) -> Any:
    if isinstance(annotation, types.UnionType):
        if value is None:
            return None
        annotation = next(a for a in get_args(annotation) if a is not types.NoneType)
    if is_dataclass(annotation):
        return value_of(annotation, value)  # type: ignore[arg-type]
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        if get_origin(inner) is tuple:
            return tuple(sorted((name, _value(get_args(inner)[1], v)) for name, v in value.items()))
        return tuple(_value(inner, v) for v in value)
    return str(value) if annotation is str else value
