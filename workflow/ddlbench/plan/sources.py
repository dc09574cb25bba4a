"""What a job's result comes from beside its inputs: code, and files of references. Rules have its
digest as a param.

Snakemake compares modification times of scripts, and of inputs that are newer than a result: in a fresh clone
all code is newer than all results, and a copy that kept its times hides a change. Here contents
decide. Code is taken as Python sees it: a comment or an empty line changes nothing. Imports are
followed from module to module, through rooms that make contents.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

from ddlbench.core import registry
from ddlbench.core.registry import PACKAGE

SCRIPTS = PACKAGE.parent / "scripts"
# Rooms (packages of ddlbench) through which imports are followed. The others say what is trained,
# where, and how: records are of that.
ROOMS = ("core", "analysis", "audit", "records", "show")
MEASURED = "ddlbench.train.measure"  # columns of what ranks measure
# Modules of core that find, open and name files, and decide no value in them.
PLUMBING = {
    f"ddlbench.core.{name}"
    for name in ("heartbeats", "files", "gone", "kinds", "layout", "living", "registry")
}
# Modules that make one table, by its name: what does not show the table does not come from them.
TABLES = {
    "comparisons": ("analysis/comparisons.py", "analysis/price.py"),
    "costs": ("analysis/price.py",),
    "kernels": ("analysis/kernels.py",),
    "losses": ("analysis/losses.py",),
}
_STRING = r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""' + r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
_STRING += r'|"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])*'"
# A text in quotes, else a comment at the end of a line, or lines with nothing in them.
_TOKEN = re.compile(
    rf"({_STRING})|[ \t]+#[^\n]*|^#[^\n]*|\n(?:[ \t]*(?:#[^\n]*)?(?=\n))+", re.DOTALL
)
_TYPES_ONLY = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t][^\n]*\n)+", re.MULTILINE)
_IMPORT = re.compile(
    r"^[ \t]*(?:from (ddlbench[\w.]*) import (\([^)]*\)|[^\n]*)|import (ddlbench[\w.]*))",
    re.MULTILINE,
)


def of_script(
    name: str,
    *more: Path | str | None,
    packages: Collection[str] = ROOMS,
    without: Iterable[str] = (),
) -> str:
    """Return the digest of a script of `workflow/scripts`, of all that it imports, and of further
    files with what they import. `without` are files of the package that are left out.
    """
    files = [SCRIPTS / f"{name}.py", *(Path(file) for file in more if file is not None)]
    return digest(files, packages, [PACKAGE / file for file in without])


def of_figure(plot: str, *more: Path | str | None, script: str = "figure") -> str:
    """Return the digest of a figure: its own code, that of the tables that it shows, the readings
    of our records.
    """
    shown = registry.constant("figures", plot, "TABLES")
    read = dict.fromkeys(("runs", "refused", *shown))
    sheets = [
        registry.path("sheets", table)
        for table in read
        if table.replace("_", "-") in registry.members("sheets")
    ]
    code = [registry.path("figures", plot), registry.path("records", "ours"), *sheets]
    theirs = {file for table in shown for file in TABLES.get(table, ())}
    without = [file for files in TABLES.values() for file in files if file not in theirs]
    return of_script(script, *code, *more, without=without)


def digest(
    files: Iterable[Path], packages: Collection[str] = ROOMS, without: Collection[Path] = ()
) -> str:
    """Return 16 hexadecimal digits of these files' contents, and of the modules that they import.

    Imports are followed into these packages of ddlbench. `without` are files that are left out.
    """
    found = sorted((_name(path), path) for path in closure(files, packages, without))
    text = "\0".join(f"{name}\0{_contents(path)}" for name, path in found)
    return sha256(text.encode()).hexdigest()[:16]


def closure(
    files: Iterable[Path], packages: Collection[str] = ROOMS, without: Collection[Path] = ()
) -> set[Path]:
    """Return these files and all modules of these packages that they import, directly or not.

    Those that are not there are left out: where another workflow uses this one, it has no scripts.
    """
    found: set[Path] = set()
    left = [path for path in files if path.exists()]
    while left:
        path = left.pop()
        if path not in found and path not in without:
            found.add(path)
            left += [file for module, file in _imports(path) if _is_followed(module, packages)]
    return found


def plain(code: str) -> str:
    """Return Python code without comments and empty lines."""
    return _TOKEN.sub(lambda found: found[1] or "", f"\n{code}").strip("\n") + "\n"


def _is_followed(module: str, packages: Collection[str]) -> bool:
    room = module.split(".")[1] if "." in module else ""
    return module == MEASURED or (room in packages and module not in PLUMBING)


def _name(path: Path) -> str:
    """Return the file's name in a digest, which is the same wherever the project lies."""
    return (
        str(path.relative_to(PACKAGE.parent)) if path.is_relative_to(PACKAGE.parent) else path.name
    )


@cache
def _contents(path: Path) -> str:
    if path.suffix == ".py":
        return plain(path.read_text(encoding="utf-8"))
    return sha256(path.read_bytes()).hexdigest()


@cache
def _imports(path: Path) -> tuple[tuple[str, Path], ...]:
    """Return the modules of the package that a file imports, with their files."""
    if path.suffix != ".py":
        return ()
    return tuple(dict.fromkeys(_imported(_TYPES_ONLY.sub("", _contents(path)))))


def _imported(code: str) -> Iterator[tuple[str, Path]]:
    for package, names, module in _IMPORT.findall(code):
        asked = (
            [module]
            if module
            else [
                f"{package}.{name.split()[0]}" for name in re.split(r"[(),]", names) if name.strip()
            ]
        )
        for name in asked:
            file = _file(name) or _file(package)  # a name within the package's own file
            if file:
                yield (name if _file(name) else package), file


@cache
def _file(module: str) -> Path | None:
    place = PACKAGE.joinpath(*module.split(".")[1:])
    return next(
        (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None
    )
