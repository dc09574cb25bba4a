"""Reading YAML files that people write, and what is wrong with them: one line names file, key,
value and remedy.

PyYAML's safe loader reads YAML 1.1, where 010 is 8, 1:30 is 90, `no` is false, 1e-4 is text and
2024-01-01 is a date. Here it has the words of YAML 1.2 (PLAIN), so that a word means what it looks
like. Keys are always text, as written. Numbers that Snakemake would take for others are refused
(ODD): it reads config.yaml too, as YAML 1.1.

`keys.py` checks files against the keys that they may have. What no key can say of itself (which
files exist, what members a room has) is checked in `study.py` and `machine.py`.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # LibYAML's, ten times as fast
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

WORKFLOW = Path(__file__).resolve().parents[2]
# Of the folder that is worked in; elsewhere, of the project that this package lies in.
CONFIG = next(
    (d for d in (Path.cwd() / "config",) if (d / "studies").is_dir()), WORKFLOW.parent / "config"
)
# MLPerf's reference convergence points. The audit compares tables with them.
CONVERGENCE = CONFIG / "references" / "mlperf-rcp-resnet50.csv"


# Characters that XML cannot have, and so no SVG: control characters, halves of pairs.
UNSHOWN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What may become part of a path or of a run's id; keys of names say the same (`keys.Name`).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_IN_WORDS = "letters, digits, '.', '_' and '-', first a letter or digit, at most 100 in all"
NAMED = f"^{NAME.pattern}$"
MOST_SHOWN = 200  # characters of a value that a complaint shows


MOST_BYTES = 256 * 1024  # our longest file has 7 KiB
MOST_VALUES = 100_000  # an alias counts as often as it is used
MOST_LEVELS = 50
TOO_DEEP = f"is nested too deeply; allowed: {MOST_LEVELS} levels"
TAG = "tag:yaml.org,2002:"
# Plain words and what they are: those of YAML 1.2's core schema (section 10.3.2), and YAML 1.1's
# merge key.
PLAIN = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9]{0,17})|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}",
    "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": r"<<",
}
# Numbers that readers of YAML take for different ones, or that no 64 bits hold.
ODD = r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[1-9][0-9]{18,})"
NEW = {
    "studies": "ddlbench new study",
    "machines": "ddlbench new machine",
    "programs": "ddlbench new program",
}


class ConfigError(ValueError):
    """The error that something a person wrote cannot be used; the message is one line and is all
    they need.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        )


def complain(file: str | Path, key: str, value: object, allowed: str) -> ConfigError:
    """Return an error about input. All such errors have this one form."""
    where = f"{file}: {key}" if key else str(file)
    text = json.dumps(value, default=str, ensure_ascii=False)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    return ConfigError(f"{where}: {shown} is not allowed; {allowed}")


def one_of(names: Iterable[str], given: object = None) -> str:
    """Suggest allowed names: 'did you mean b? allowed: a, b, c'.

    The guess at what was meant comes first; of many names only similar ones are listed.
    """
    names = sorted(names)
    close = difflib.get_close_matches(str(given), names, n=5) if given is not None else []
    guess = f"did you mean {close[0]}? " if close else ""
    if len(names) > 40:
        return f"{guess}allowed: one of {len(names)} names, such as {', '.join(close or names[:5])}"
    return f"{guess}allowed: {', '.join(names)}"


def names_in(folder: Path, suffix: str) -> list[str]:
    """List the names that files of this folder give to what they hold, sorted: `names_in(recipes,
    ".yaml")`.
    """
    return sorted(p.stem for p in folder.glob(f"*{suffix}") if NAME.fullmatch(p.stem))


def expand(text: str, file: str | Path, where: str) -> str:
    """Expand a path with `~`, `$NAME`, `${NAME}` and `${NAME:-default}` as a shell would.

    Raises ConfigError, which names the file and the key, if a variable is neither set nor has a
    default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match["name"] or match["bare"], match["default"]
        if os.environ.get(name):
            return os.environ[name]
        if default is None:
            raise complain(
                file,
                where,
                text,
                f"the environment has no {name}: set it, or a default: ${{{name}:-...}}",
            )
        return default

    path = re.sub(
        r"\$(?:\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|(?P<bare>[A-Za-z_]\w*))",
        value,
        text,
    )
    if re.match(r"~(/|$)", path):
        return str(Path.home()) + path[1:]
    return path


class _Odd(str):
    """A number that ODD matches, as it is written."""


class _Loader(SafeLoader):
    """PyYAML's safe loader with the words of PLAIN; keys are text, as they are written, and each is
    given once.
    """

    yaml_implicit_resolvers: dict[str | None, list[Any]] = {}  # noqa: RUF012

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        """Merge a mapping's own keys with those that `<<` brings in. Its own keys take precedence;
        among the mappings of `<<` the first one does.
        """
        merged: dict[str, Any] = {}
        given: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _fault(key, "a list or a mapping where a key should be")
            name, line = key.value, key.start_mark.line + 1
            if name in lines:
                raise _fault(key, f"{name}: is given twice, in lines {lines[name]} and {line}")
            lines[name] = line
            inside = self.construct_object(value, deep=True)
            if key.tag != f"{TAG}merge":
                given[name] = inside
                continue
            for other in inside if isinstance(inside, list) else [inside]:
                if not isinstance(other, dict):
                    raise _fault(value, "<< takes a mapping, or a list of mappings")
                merged = other | merged
        return merged | given


for _name, _pattern in PLAIN.items():
    _Loader.add_implicit_resolver(f"{TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), None)
_Loader.add_implicit_resolver("!odd", re.compile(rf"(?:{ODD})\Z"), None)
_Loader.add_constructor("!odd", lambda loader, node: _Odd(node.value))
_Loader.add_constructor(f"{TAG}merge", lambda loader, node: node.value)
_Loader.add_constructor(f"{TAG}map", _Loader.mapping)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in a YAML file.

    Raises ConfigError if it is absent, broken, too large, or no mapping.
    """
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= MOST_BYTES else ""
    except FileNotFoundError:
        there = names_in(path.parent, ".yaml")
        hint = (
            f"; one of your own: {NEW[path.parent.name]} {path.stem}"
            if path.parent.name in NEW
            else ""
        )
        raise ConfigError(f"{path}: no such file; {one_of(there, path.stem)}{hint}") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path that no file can have
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if size > MOST_BYTES:
        raise ConfigError(f"{path}: has {size} bytes; allowed: at most {MOST_BYTES}")
    try:
        _check_events(text, path)
        data = _checked(yaml.load(text, _Loader), path)
    except yaml.MarkedYAMLError as error:
        raise _broken(path, error.problem_mark, str(error.problem)) from None
    except ConfigError:
        raise
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # a Unicode escape beyond the last character
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if data is None:
        raise ConfigError(f"{path}: is empty; allowed: a mapping of keys to values")
    if not isinstance(data, dict):
        raise complain(path, "", data, "allowed: a mapping of keys to values")
    return data


def typed(value: Any) -> Any:
    """Convert a value of the command line as a file would have it: in lists and mappings there
    Snakemake leaves everything as text.
    """
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if not isinstance(value, str):
        return value
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    node = yaml.ScalarNode(tag, value)
    return _checked(loader.construct_object(node), Path("--config"))


def _broken(path: Path, mark: Any, problem: str) -> ConfigError:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return ConfigError(f"{path}: is not YAML: {where}{problem}")


def _fault(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    mark: Any = node.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _check_events(text: str, path: Path) -> None:
    """Raise ConfigError for tags, and for more levels than MOST_LEVELS, before a reader goes down
    into them.
    """
    level = 0
    for event in yaml.parse(text, _Loader):
        if tag := getattr(event, "tag", None):
            raise _broken(
                path,
                event.start_mark,
                f"{tag.replace(TAG, '!!')}: tags are not allowed; quotes make text",
            )
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if level > MOST_LEVELS:
            raise ConfigError(f"{path}: {TOO_DEEP}")


def _checked(
    value: Any, path: Path, where: str = "", level: int = 0, values: Iterator[int] | None = None
) -> Any:
    """Copy what PyYAML made, so that each use of an alias is a value of its own.

    Raises ConfigError about what no key can have; `where` are the keys that lead to the value.
    """
    values = values or count(1)
    if next(values) > MOST_VALUES:
        raise ConfigError(
            f"{path}: has more than {MOST_VALUES} values, those of aliases counted at each use"
        )
    if level > MOST_LEVELS:
        raise ConfigError(f"{path}: {TOO_DEEP}")
    within = f"{where}." if where else ""
    if isinstance(value, dict):
        return {
            key: _checked(item, path, f"{within}{key}", level + 1, values)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _checked(item, path, f"{within}{n}", level + 1, values) for n, item in enumerate(value)
        ]
    if isinstance(value, _Odd):
        allowed = (
            "a number of at most 18 digits, without zeros before it or colons in it; text in quotes"
        )
        raise complain(path, where, value, f"allowed: {allowed}")
    if isinstance(value, str) and (unshown := UNSHOWN.search(value)):
        problem = (
            f"has the character U+{ord(unshown[0]):04X}, which no figure can show: leave it out"
        )
        raise ConfigError(f"{path}: {where}: {problem}")
    return value
