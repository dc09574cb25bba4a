"""What imports must not do: go back up in the order of rooms, form a circle, load PyTorch where
Snakemake runs.
"""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

from ddlbench.core import registry

from tests.conftest import ROOT

# From what everybody may know to what nobody else needs. A room may import from those before it,
# and from itself.
ROOMS = (
    "core",
    "settings",
    "slurm",
    "patches",
    "data",
    "prepare",
    "train",
    "analysis",
    "records",
    "audit",
    "answers",
    "plan",
    "run",
    "preflight",
    "show",
    "outlook",
    "commands",
)
PACKAGE = registry.PACKAGE


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
            found |= {
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("ddlbench.")
            }
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


def private(path: Path) -> list[str]:
    """What a file imports that another room keeps to itself: names, or files, that begin with an
    underscore.
    """
    lines = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    names = [f"{line.module}.{alias.name}" for line in lines for alias in line.names]
    within = f"ddlbench.{room(path)}." if path.is_relative_to(PACKAGE) else ""
    hidden = (
        name for name in names if name.startswith("ddlbench.") and re.search(r"\._(?!_)", name)
    )
    return [name for name in hidden if not within or not name.startswith(within)]


def test_no_room_imports_what_another_keeps_to_itself() -> None:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "workflow/scripts").glob("*.py")]
    assert len(files) > 300
    assert {path.name: found for path in files if (found := private(path))} == {}


def modules_imported(path: Path, files: dict[str, Path]) -> set[str]:
    """The package's modules that a file imports, wherever in it, what only types need among
    them.
    """
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    found: set[str] = set()
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in files else str(node.module) for name in names}
        else:
            nodes += ast.iter_child_nodes(node)
    return found & files.keys()


def test_no_imports_form_a_circle() -> None:
    """Within rooms too. `graphlib` names a circle that it finds."""
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: modules_imported(path, files) - {name} for name, path in files.items()}
    assert sum(map(len, graph.values())) > 1000
    TopologicalSorter(graph).prepare()


def test_the_snakemake_process_does_not_load_pytorch() -> None:
    """Neither the Snakefile's module nor any member does; members import heavy packages inside
    functions.
    """
    code = """
import sys
from ddlbench.commands import job_rule, main, next_round, snakefile, start
from ddlbench.core import registry
for room in registry.WITHIN:
    for name in registry.members(room):
        registry.member(room, name)
print(*{"torch", "torchvision", "horovod", "deepspeed", "nvidia", "timm"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_unit_tier_does_not_load_pytorch() -> None:
    """What needs it belongs to tests/contract; a single test may import it within."""
    code = """
import sys
from importlib import import_module
from pathlib import Path

for path in sorted(Path("tests/unit").glob("test_*.py")):
    import_module(f"tests.unit.{path.stem}")
print(*{"torch", "torchvision"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
