"""The order of the rooms: whoever imports, imports from rooms before its own, so that data has one way to go."""

import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

from ddlbench.core import registry

# From what everybody may know to what nobody else needs. A room may import from those before it, and from itself.
ROOMS = (
    "core",
    "settings",
    "slurm",
    "mends",
    "data",
    "prepare",
    "train",
    "analysis",
    "records",
    "audit",
    "plan",
    "run",
    "preflight",
    "show",
    "outlook",
    "commands",
)
PACKAGE = registry.PACKAGE
NO_NOUNS = {"said", "one", "known", "made", "left", "own", "told", "of"}  # say nothing of what they hold


def room(path: Path) -> str:
    """The room that a file lies in; a file of the top level is a room of its own."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms whose modules a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "ddlbench":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddlbench."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ddlbench.")}
    return found - {"__version__"}


def test_every_room_is_in_the_order() -> None:
    assert {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__"} == set(ROOMS)


def test_no_import_goes_back_up() -> None:
    back = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in PACKAGE.rglob("*.py")
        for other in imported(path)
        if path.parent != PACKAGE or path.stem != "__init__"
        if ROOMS.index(other) > ROOMS.index(room(path))
    ]
    assert back == []


def modules_imported(path: Path, files: dict[str, Path]) -> set[str]:
    """The package's modules that a file imports when it runs, wherever in it; what only types need is no import."""
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    found: set[str] = set()
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in files else str(node.module) for name in names}
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            nodes += ast.iter_child_nodes(node)
    return found & files.keys()


def test_no_imports_form_a_circle() -> None:
    """Within rooms too. `graphlib` names a circle that it finds."""
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: modules_imported(path, files) - {name} for name, path in files.items()}
    assert sum(map(len, graph.values())) > 1000
    TopologicalSorter(graph).prepare()


def test_names_are_nouns() -> None:
    """`left` may stand beside `right`; `of` is a key of studies."""
    for path in PACKAGE.rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        bound -= {"left"} if "right" in bound else {"of"} if path.stem == "study_keys" else set()
        assert not bound & NO_NOUNS, f"{path}: name what it holds, not {', '.join(bound & NO_NOUNS)}"


def test_a_class_has_a_name_of_its_own() -> None:
    """But where it keeps the contract of its room."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    of_contracts = {"Loader", "Engine", "Clock", "Samples", "Batched"}
    assert {name for name, count in names.items() if count > 1} == of_contracts
