"""Models that people wrote: `nets.wide:build` is function `build` of `config/models/nets/wide.py`,
or of a module that is installed.

Here their source is only read, never imported: the plan runs where torch may be missing, and stays
quick. `train/own_models.py` calls the function.
"""

import ast
import re
import symtable
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import resolve_name
from pathlib import Path

from ddlbench.settings.config import CONFIG, ConfigError, complain, one_of

FOLDER = CONFIG / "models"
FILES = "FILES"  # a name in a module: files beside it that it reads, which are part of a run
NAMED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class OwnModel:
    """The place of a model's function.

    `root` is the folder that `module` is imported from; `files` are the module's file, the first,
    and what it imports from `root`; `sha256` is the digest of their names and contents.
    """

    name: str
    module: str
    function: str
    root: Path
    files: tuple[Path, ...]
    sha256: str


def is_own(model: str) -> bool:
    """Return whether a model's name is a module and a function in it, not a name of timm's."""
    return ":" in model


def find(name: str, folder: Path | None = None) -> OwnModel:
    """Find the source of a model.

    Raises ConfigError, which names file and line, if there is no such module or function, or a file
    cannot be read as Python.
    """
    folder, (module, _, function) = folder or FOLDER, name.partition(":")
    if not NAMED.fullmatch(name):
        raise complain(
            "models",
            "",
            name,
            "allowed: <module>:<function>, such as nets.wide:build, in ASCII letters",
        )
    elsewhere = [
        path for path in map(Path, filter(None, sys.path)) if path not in (folder, Path.cwd())
    ]
    root = next((root for root in (folder, *elsewhere) if _file(root, module)), None)
    if root is None:
        file = folder.joinpath(*module.split(".")).with_suffix(".py")
        raise ConfigError(
            f"{file}: no such file, and no module {module} is installed; model {name} needs it"
        )
    sources = dict(sources_of(root, module))
    for top in {path.parts[0].removesuffix(".py") for path in sources} if root == folder else ():
        other = next((there for path in elsewhere if (there := _file(path, top))), None)
        if other or top in sys.stdlib_module_names:
            raise ConfigError(
                f"{root / top}: Python imports {other or 'its own module'} of this name; rename it"
            )
    digest = sha256()
    for path, source in sorted(sources.items()):
        digest.update(f"{path.as_posix()} {len(source)}\n".encode() + source)
    first = next(iter(sources))
    _check_function(root / first, sources[first], function)
    return OwnModel(
        name, module, function, root, tuple(root / path for path in sources), digest.hexdigest()
    )


def _file(root: Path, module: str) -> Path | None:
    """Return the file of a module below a folder; a package goes before a module, as in Python."""
    place = root.joinpath(*module.split("."))
    return next(
        (file for file in (place / "__init__.py", Path(f"{place}.py")) if file.is_file()), None
    )


def sources_of(root: Path, module: str) -> Iterator[tuple[Path, bytes]]:
    """Yield (path from `root`, source) of a module and of what it imports from there, each once.

    Raises ConfigError.

    In a folder that packages are installed into, only files in the module's own folder are
    followed: all of timm would take seconds to read.
    """
    inside = (
        first.parent if (first := _file(root, module)) and any(root.glob("*.dist-info")) else None
    )
    seen, waiting = set(), [module]
    while waiting:
        parts = waiting.pop(0).split(".")
        for end in range(len(parts), 0, -1):  # importing a.b.c runs a and a.b too
            name = ".".join(parts[:end])
            file = _file(root, name)
            if file is None or file in seen:
                continue
            if inside and file != first and (file.parent != inside or file.name == "__init__.py"):
                continue
            seen.add(file)
            source = _read(file)
            tree = _parsed(file, source)
            waiting += _imported(tree, name if file.stem == "__init__" else name.rpartition(".")[0])
            yield file.relative_to(root), source
            for other in _named_files(file, tree):
                if other not in seen:
                    seen.add(other)
                    yield other.relative_to(root), _read(other)


def _named_files(file: Path, tree: ast.Module) -> Iterator[Path]:
    """Yield the files beside a module that the module lists: `FILES = ["words.json"]`.

    Raises ConfigError.
    """
    for node in tree.body:
        if not isinstance(node, ast.Assign) or [getattr(one, "id", "") for one in node.targets] != [
            FILES
        ]:
            continue
        try:
            names = ast.literal_eval(node.value)
        except ValueError:
            names = None
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise ConfigError(
                f"{file}:{node.lineno}: {FILES}: is not allowed; allowed: a list of names, in"
                " quotes"
            )
        for name in names:
            if (
                Path(name).is_absolute()
                or ".." in Path(name).parts
                or not (file.parent / name).is_file()
            ):
                raise ConfigError(
                    f"{file}:{node.lineno}: {FILES}: {name!r} is not a file below {file.parent}"
                )
            yield file.parent / name


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None


def _parsed(file: Path, source: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _names(
                file, source
            )  # finds what the parser lets pass, such as two arguments of one name
            return ast.parse(source)
    except SyntaxError as error:
        raise ConfigError(f"{file}:{error.lineno or 1}: is not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{file}: is not Python: {error or 'nested too deeply'}") from None


def _names(file: Path, source: bytes) -> list[symtable.Symbol]:
    return symtable.symtable(source, str(file), "exec").get_symbols()  # type: ignore[arg-type]  # it takes bytes too


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the modules that a file may import, wherever in the file the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the top: Python says so when it imports the file
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _check_function(file: Path, source: bytes, function: str) -> None:
    """Raise ConfigError unless the file makes something of this name.

    `import *` may bring anything.
    """
    names = [
        name.get_name() for name in _names(file, source) if name.is_assigned() or name.is_imported()
    ]
    if function not in names and not re.search(rb"import\s*\(?\s*\*", source):
        raise ConfigError(
            f"{file}: has no function {function};"
            f" {one_of(names, function) if names else 'it has none'}"
        )
