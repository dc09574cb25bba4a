"""What is wrong with what people wrote: one line names the file, the key, the value and the remedy.

`reading.py` reads the files, `keys.py` checks them against the keys that they may have. What no key can say of itself
(which files exist, what members a room has) is checked in `study.py` and `machine.py`.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

WORKFLOW = Path(__file__).resolve().parents[2]
# Of the folder that is worked in; elsewhere, of the project that this package lies in.
CONFIG = next((d for d in (Path.cwd() / "config",) if (d / "studies").is_dir()), WORKFLOW.parent / "config")
# MLPerf's reference convergence points, which the audit reads beside tables.
CONVERGENCE = CONFIG / "references" / "mlperf-rcp-resnet50.csv"


# What may become part of a path or of a run's id; keys of names say the same (`keys.Name`).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_IN_WORDS = "letters, digits, '.', '_' and '-', first a letter or digit, at most 100 in all"
NAMED = f"^{NAME.pattern}$"
MOST_SHOWN = 200  # characters of a value that a complaint shows


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
