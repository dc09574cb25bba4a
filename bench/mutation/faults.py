"""Which faults can be planted in a module: those of mutmut, less what changes words or types only."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import libcst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation.mutators import mutation_operators

NEVER = ("len", "isinstance")  # mutmut leaves their arguments alone


@dataclass(frozen=True)
class Mutant:
    """A module's text with one fault, made when it is asked for."""

    module: str
    line: int
    key: str
    make: Callable[[], str]

    def code(self) -> str:
        """Return the text; raises SyntaxError if it is none that Python reads."""
        code = self.make()
        compile(code, self.module, "exec")
        return code


def mutants_of(module: str, code: str) -> list[Mutant]:
    """Return all mutants of a module, those left out that change words or types only."""
    wrapper = MetadataWrapper(libcst.parse_module(code))
    parents, places = wrapper.resolve(ParentNodeProvider), wrapper.resolve(PositionProvider)
    found: dict[str, Mutant] = {}
    for node in _to_mutate(wrapper.module):
        if _is_message(node, parents):
            continue
        for kind, operator in mutation_operators:
            for other in operator(node) if isinstance(node, kind) else ():
                if _changes_words(node, other) or _is_guard(parents.get(node)):
                    continue
                place, (before, after) = (
                    places[node].start,
                    map(wrapper.module.code_for_node, (node, other)),
                )
                key = f"{module}:{place.line}:{place.column} {before} -> {after}"
                make = partial(_replaced, wrapper.module, node, other)
                found.setdefault(key, Mutant(module, place.line, key, make))
    return list(found.values())


def _replaced(module: libcst.Module, node: libcst.CSTNode, other: libcst.CSTNode) -> str:
    made = module.deep_replace(node, other)
    assert isinstance(made, libcst.Module)
    return made.code


def _to_mutate(node: libcst.CSTNode) -> Iterator[libcst.CSTNode]:
    """Every node but annotations, decorators, types' names, imports, docstrings, and what mutmut
    leaves alone.
    """
    if isinstance(node, libcst.Annotation | libcst.Decorator | libcst.Import | libcst.ImportFrom):
        return
    if (
        isinstance(node, libcst.Call)
        and isinstance(node.func, libcst.Name)
        and node.func.value in NEVER
    ):
        return
    if isinstance(node, libcst.Expr) and isinstance(node.value, libcst.SimpleString):
        return
    if (
        isinstance(node, libcst.Assign)
        and isinstance(node.value, libcst.Subscript)
        and _is_type(node.value)
    ):
        return
    if isinstance(node, libcst.AnnAssign) and _name(node.annotation.annotation) == "TypeAlias":
        return
    if (
        isinstance(node, libcst.Assign)
        and isinstance(node.value, libcst.Call)
        and _name(node.value.func) == "TypeVar"
    ):
        return
    yield node
    for child in node.children:
        yield from _to_mutate(child)


def _is_type(node: libcst.Subscript) -> bool:
    return _name(node.value) in (
        "NDArray",
        "Mapping",
        "Callable",
        "Sequence",
        "dict",
        "list",
        "tuple",
        "Union",
    )


def _name(node: libcst.CSTNode) -> str:
    return node.value if isinstance(node, libcst.Name) else ""


def _is_message(node: libcst.CSTNode, parents: Any) -> bool:
    """Whether a node is part of what is raised."""
    above: libcst.CSTNode | None = node
    while above is not None:
        if isinstance(above, libcst.Raise):
            return True
        above = parents.get(above)
    return False


def _changes_words(node: libcst.CSTNode, other: libcst.CSTNode) -> bool:
    """Whether the mutation replaces or drops a sentence: a text with a blank in it, or one with
    values in it.
    """
    if isinstance(node, libcst.Call) and isinstance(other, libcst.Call):
        kept = {id(argument) for argument in other.args}
        gone = [argument for argument in node.args if id(argument) not in kept]
        return any(_is_words(argument.value) or _is_guard(argument) for argument in gone)
    return _is_words(node) or (isinstance(node, libcst.Assign) and _is_words(node.value))


def _is_guard(node: libcst.CSTNode | None) -> bool:
    """Whether it is the `strict` of a zip, without which nothing changes but for a bug
    elsewhere.
    """
    return (
        isinstance(node, libcst.Arg) and node.keyword is not None and node.keyword.value == "strict"
    )


def _is_words(node: libcst.CSTNode) -> bool:
    if isinstance(node, libcst.ConcatenatedString):
        return _is_words(node.left) or _is_words(node.right)
    return isinstance(node, libcst.FormattedString) or (
        isinstance(node, libcst.SimpleString) and " " in node.value
    )


def change(before: str, after: str) -> str:
    """Return the lines that differ."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in [*lines][2:] if line[0] in "+-")
