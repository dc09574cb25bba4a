"""Rooms and their members: a file's name in `frameworks/`, `loaders/`, ... is its name in the
config.

`train/frameworks/ddp.py` is framework `ddp`, `train/loaders/dali_cpu.py` is loader `dali-cpu`.
Adding a member is adding a file; files whose name begins with an underscore are shared helpers, no
members.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

OWN = "own"  # said of a program's run where ours has a member's name
PACKAGE = Path(__file__).resolve().parents[1]
# Where the rooms of members lie in the package; any other is at its top.
WITHIN = {
    "datasets": "data",
    "forms": "data",
    "frameworks": "train",
    "loaders": "train",
    "inference": "train",
    "figures": "show",
    "exports": "outlook",
    "kinds": "plan",
    "readings": "run",
    "sheets": "analysis",
    "prediction": "analysis",
    "questions": "answers",
    "of_study": "commands",
    "sections": "show/page",
}


def folder(room: str) -> Path:
    """Return the folder of a room of members."""
    return PACKAGE / WITHIN.get(room, "") / room


def package(room: str) -> str:
    """Return the name by which Python imports a room of members."""
    return ".".join(["ddlbench", *folder(room).relative_to(PACKAGE).parts])


@cache
def members(room: str) -> tuple[str, ...]:
    """Return the names that a study may use for a room: `members("loaders")` -> ("dali-cpu",
    "native", ...).
    """
    files = folder(room).glob("[!_]*.py")
    return tuple(sorted(f.stem.replace("_", "-") for f in files))


def path(room: str, name: str) -> Path:
    """Return the file of a member."""
    return folder(room) / f"{name.replace('-', '_')}.py"


def paths(room: str) -> list[Path]:
    """List the files of all members of a room."""
    return [path(room, name) for name in members(room)]


@cache
def member(room: str, name: str) -> Any:
    """Import a member's module. This is cheap: members import torch, DALI, ... inside their
    functions only.

    The module for what a user's program does itself is `_own.py`, which no study can name.
    """
    return import_module(f"{package(room)}.{'_own' if name == OWN else name.replace('-', '_')}")


@cache
def options(adapter: str) -> dict[str, dict[str, Any]]:
    """Return a framework's options by name, as JSON schemas with a description and a default."""
    schemas: dict[str, dict[str, Any]] = member("frameworks", adapter).OPTIONS
    return schemas


@cache
def option_defaults(adapter: str) -> dict[str, Any]:
    """Return the values of a framework's options that apply where a study does not set them."""
    return {name: rule["default"] for name, rule in options(adapter).items()}


def family(loader: str) -> str:
    """Return what published numbers call a loader: `dali` for all of DALI's.

    A name that is no member's is its own family.
    """
    return str(member("loaders", loader).FAMILY) if loader in members("loaders") else loader


def importable(package: str) -> bool:
    """Tell whether this Python has the package, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def release(distribution: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def installed(*distributions: str) -> str:
    """Return the first of these packages that is installed; the first of all if none is."""
    return next((name for name in distributions if release(name)), distributions[0])


@cache
def _parsed(room: str, name: str) -> ast.Module:
    return ast.parse(path(room, name).read_text(encoding="utf-8"))


def docstring(room: str, name: str) -> str:
    """Return the member's module docstring, read without importing it (a figure's caption, for
    one).
    """
    return ast.get_docstring(_parsed(room, name)) or ""


def constant(room: str, name: str, constant: str) -> tuple[str, ...]:
    """Return a tuple of names that a member's file has, read without importing it; an empty one if
    the file has none.
    """
    for line in _parsed(room, name).body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == constant:
            return tuple(ast.literal_eval(line.value))
    return ()


# What `train/models.py` builds without timm: two of our own, and one of torchvision's.
OWN_MODELS = ("lenet", "lenet5", "resnet8_half", "squeezenet1_1")
SMALL_MODELS = (
    "lenet",
    "lenet5",
    "resnet8_half",
)  # made for small pictures; the others usually see 224 pixels
MADE_BY_TIMM = re.compile(r"@register_model\s+def (\w+)")


@cache
def models_with_zero_init_last() -> tuple[str, ...]:
    """Return the models for which a recipe may set `zero_init_last`: ours, and timm's in files that
    contain the word.

    Empty if timm is not installed where this runs.
    """
    names = {
        name for text in _timm() if "zero_init_last" in text for name in MADE_BY_TIMM.findall(text)
    }
    return tuple(sorted(names | {"resnet8_half"})) if names else ()


@cache
def models() -> tuple[str, ...]:
    """Return the names of the models of `OWN_MODELS` and of timm.

    Only the former if timm is not installed where this runs (a login node): the job then checks the
    name.
    """
    names = {name for text in _timm() for name in MADE_BY_TIMM.findall(text)}
    return tuple(sorted(names.union(OWN_MODELS))) if names else OWN_MODELS


def _timm() -> Iterator[str]:
    """Yield the source of each of timm's files of models; importing them would import torch.

    Yield nothing if timm is not installed.
    """
    timm = find_spec("timm")
    if timm is not None and timm.origin is not None:
        for file in (Path(timm.origin).parent / "models").rglob("*.py"):
            yield file.read_text(encoding="utf-8")
