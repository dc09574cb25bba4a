"""Reading YAML files that people write, and what is wrong with them: one line names file, key, value and remedy.

PyYAML reads YAML 1.1, where 010 is 8, 1:30 is 90, `no` is false and 2024-01-01 is a date. Here PyYAML only finds the
nodes; their values are made by YAML 1.2's core schema, so that a word means what it looks like. Keys are always text,
as written. ruamel.yaml (0.19) would take none of it away: for it 1_000 is a number too, 010 is 10, 2024-01-01 a date;
it takes 1.7 times as long, and Snakemake needs PyYAML anyway.

`keys.py` checks files against the keys that they may have. What no key can say of itself (which files exist, what
members a room has) is checked in `study.py` and `machine.py`.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

WORKFLOW = Path(__file__).resolve().parents[2]
# Of the folder that is worked in; elsewhere, of the project that this package lies in.
CONFIG = next((d for d in (Path.cwd() / "config",) if (d / "studies").is_dir()), WORKFLOW.parent / "config")
# MLPerf's reference convergence points, which the audit reads beside tables.
CONVERGENCE = CONFIG / "references" / "mlperf-rcp-resnet50.csv"


# Characters that XML cannot have, and so no SVG: control characters, halves of pairs.
UNSHOWN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What may become part of a path or of a run's id; keys of names say the same (`keys.Name`).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_IN_WORDS = "letters, digits, '.', '_' and '-', first a letter or digit, at most 100 in all"
NAMED = f"^{NAME.pattern}$"
MOST_SHOWN = 200  # characters of a value that a complaint shows


MOST_BYTES = 256 * 1024  # our longest file has 7 KiB; PyYAML reads some 100 KiB a second
MOST_VALUES = 100_000  # an alias counts as often as it is used
MOST_LEVELS = 50
TAG = "tag:yaml.org,2002:"
# The core schema (YAML 1.2.2, section 10.3.2), and merge keys (`<<`), which YAML 1.1 had.
PLAIN = {
    "null": re.compile(r"null|Null|NULL|~|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
    "merge": re.compile(r"<<"),
}
KINDS = ("str", "null", "bool", "int", "float")
NEW = {"studies": "ddlbench new study", "machines": "ddlbench new machine", "programs": "ddlbench new program"}


class ConfigError(ValueError):
    """Something a person wrote cannot be used; the message is one line and is all they need."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message))


def complain(file: str | Path, key: str, value: object, allowed: str) -> ConfigError:
    """The one form of every complaint about input."""
    where = f"{file}: {key}" if key else str(file)
    text = json.dumps(value, default=str, ensure_ascii=False)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    return ConfigError(f"{where}: {shown} is not allowed; {allowed}")


def one_of(names: Iterable[str], given: object = None) -> str:
    """'did you mean b? allowed: a, b, c': the guess at what was meant first; of many names only those near to it."""
    names = sorted(names)
    close = difflib.get_close_matches(str(given), names, n=5) if given is not None else []
    guess = f"did you mean {close[0]}? " if close else ""
    if len(names) > 40:
        return f"{guess}allowed: one of {len(names)} names, such as {', '.join(close or names[:5])}"
    return f"{guess}allowed: {', '.join(names)}"


def names_in(folder: Path, suffix: str) -> list[str]:
    """The names that files of this folder give to what they hold, sorted: `names_in(recipes, ".yaml")`."""
    return sorted(p.stem for p in folder.glob(f"*{suffix}") if NAME.fullmatch(p.stem))


def expand(text: str, file: str | Path, where: str) -> str:
    """A path with `~`, `$NAME`, `${NAME}` and `${NAME:-default}` as a shell would read them. Raises ConfigError, which
    names the file and the key, if a variable is neither set nor has a default."""

    def value(match: re.Match[str]) -> str:
        name, default = match["name"] or match["bare"], match["default"]
        if os.environ.get(name):
            return os.environ[name]
        if default is None:
            raise complain(file, where, text, f"the environment has no {name}: set it, or a default: ${{{name}:-...}}")
        return default

    path = re.sub(r"\$(?:\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|(?P<bare>[A-Za-z_]\w*))", value, text)
    if re.match(r"~(/|$)", path):
        return str(Path.home()) + path[1:]
    return path


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the words of the core schema, and levels of its own: packages raise Python's limit."""

    depth = 0
    yaml_implicit_resolvers: dict[str | None, list[Any]] = {  # noqa: RUF012
        None: [(f"{TAG}{name}", re.compile(rf"(?:{pattern.pattern})\Z")) for name, pattern in PLAIN.items()]
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MOST_LEVELS:
            raise RecursionError
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError if it is absent, broken, too large, or no mapping."""
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= MOST_BYTES else ""
    except FileNotFoundError:
        there = names_in(path.parent, ".yaml")
        hint = f"; one of your own: {NEW[path.parent.name]} {path.stem}" if path.parent.name in NEW else ""
        raise ConfigError(f"{path}: no such file; {one_of(there, path.stem)}{hint}") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path that no file can have
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if size > MOST_BYTES:
        raise ConfigError(f"{path}: has {size} bytes; allowed: at most {MOST_BYTES}")
    try:
        root = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        raise _broken(path, error.problem_mark, str(error.problem)) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; allowed: {MOST_LEVELS} levels") from None
    except ValueError as error:  # such as a Unicode escape beyond the last character
        raise ConfigError(f"{path}: is not YAML: {error}") from None
    data = _Values(path).value(root) if root else None
    if data is None:
        raise ConfigError(f"{path}: is empty; allowed: a mapping of keys to values")
    if not isinstance(data, dict):
        raise complain(path, "", data, "allowed: a mapping of keys to values")
    return data


def typed(value: Any) -> Any:
    """A value of the command line as a file would have it: of lists and mappings there Snakemake leaves all as text."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if not isinstance(value, str):
        return value
    kinds = (name for name, pattern in PLAIN.items() if name != "merge" and pattern.fullmatch(value))
    return _Values(Path("--config")).value(yaml.ScalarNode(f"{TAG}{next(kinds, 'str')}", value))


def _broken(path: Path, mark: yaml.Mark | None, problem: str) -> ConfigError:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return ConfigError(f"{path}: is not YAML: {where}{problem}")


class _Values:
    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self.around: list[yaml.Node] = []  # the nodes that the present one lies in

    def value(self, node: yaml.Node) -> Any:
        """The value of a node. Raises ConfigError."""
        self.count += 1
        if self.count > MOST_VALUES:
            raise ConfigError(f"{self.path}: has more than {MOST_VALUES} values, those of aliases counted at each use")
        if any(node is outer for outer in self.around):
            raise _broken(self.path, node.start_mark, "an alias to what it is itself a part of")
        if len(self.around) >= MOST_LEVELS:
            raise ConfigError(f"{self.path}: is nested too deeply; allowed: {MOST_LEVELS} levels")
        self.around.append(node)
        try:
            if isinstance(node, yaml.ScalarNode) and node.tag.removeprefix(TAG) in KINDS:
                return self._scalar(node)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
                return [self.value(item) for item in node.value]
            if isinstance(node, yaml.MappingNode) and node.tag == f"{TAG}map":
                return self._mapping(node)
        finally:
            self.around.pop()
        raise _broken(self.path, node.start_mark, f"{node.tag.replace(TAG, '!!')} is not known here")

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        """The value of a node of one of KINDS."""
        text, kind = node.value, node.tag.removeprefix(TAG)
        if kind == "str":
            if unshown := UNSHOWN.search(text):
                problem = f"has the character U+{ord(unshown[0]):04X}, which no figure can show: leave it out"
                raise _broken(self.path, node.start_mark, problem)
            return text
        if not PLAIN[kind].fullmatch(text):
            raise _broken(self.path, node.start_mark, f"{text[:40]!r} is no {kind}")
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "float":
            return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text.lower()))
        if re.match(r"[-+]?0[0-9]", text):
            problem = f"{text[:40]} is a number to some readers of YAML and another to others: no zeros before a number"
            raise _broken(self.path, node.start_mark, problem)
        value = int(text, 0) if len(text) <= 20 else None
        if value is None or abs(value) >= 2**63:
            raise _broken(self.path, node.start_mark, f"a number of {len(text)} digits: it must be below 2^63")
        return value

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        """Its own keys laid over those that `<<` brings in, of which the first mapping's win."""
        merged: dict[str, Any] = {}
        given: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise _broken(self.path, key.start_mark, "a list or a mapping where a key should be")
            name = key.value
            if name in lines:
                raise ConfigError(f"{self.path}: {name}: is given twice, in lines {lines[name]} and {line}")
            lines[name] = line
            if key.tag != f"{TAG}merge":
                given[name] = self.value(value)
                continue
            inside = self.value(value)
            for other in inside if isinstance(inside, list) else [inside]:
                if not isinstance(other, dict):
                    raise _broken(self.path, value.start_mark, "<< takes a mapping, or a list of mappings")
                merged = other | merged
        return merged | given
