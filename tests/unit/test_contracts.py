"""Every member keeps its room's contract: the Protocol in the room's `__init__.py`, checked by
mypy.

Each attribute is held to its type, each function to its arguments and result, each class to what
its objects offer. A room that gets a contract adds a line to CONTRACTS.
"""

import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from ddlbench.core import registry

from tests.conftest import ROOT, Once

# Room -> the Protocol in its `__init__.py` that every file of the room keeps.
CONTRACTS = {
    "datasets": "Dataset",
    "forms": "Form",
    "frameworks": "Framework",
    "loaders": "LoaderMember",
    "inference": "Way",
    "figures": "FigureMember",
    "records": "RecordReader",
    "exports": "Export",
    "kinds": "Kind",
    "readings": "ReadingMember",
    "sheets": "SheetMember",
    "prediction": "Predictor",
    "sections": "SectionMember",
    "questions": "QuestionMember",
    "of_study": "CommandMember",
}
MEMBERS = [(room, name) for room in CONTRACTS for name in registry.members(room)]


def promised(room: str) -> list[str]:
    """The names that a room's Protocol has."""
    protocol = getattr(import_module(registry.package(room)), CONTRACTS[room])
    return [
        name for name in {**protocol.__annotations__, **vars(protocol)} if not name.startswith("_")
    ]


def complaints(asked: Iterable[tuple[str, str]], folder: Path) -> list[tuple[str, str]]:
    """(module, what mypy says of it) for (room, module that should be a member of it)."""
    mypy = pytest.importorskip("mypy.api")
    lines: list[tuple[str, str]] = []  # (module, line of Python)
    for number, (room, module) in enumerate(asked):
        here = [
            f"from {registry.package(room)} import {CONTRACTS[room]} as Contract{number}",
            f"import {module} as module{number}",
            f"def of{number}(contract: Contract{number}) -> None:",
        ]
        for name in promised(room):
            # The first line gives the variable the contract's type, the second holds the member to
            # it.
            here += [f"    {name} = contract.{name}", f"    {name} = module{number}.{name}"]
        lines += [(module, line) for line in here]
    (folder / "asked.py").write_text("\n".join(line for _, line in lines) + "\n")
    # No option that changes what mypy finds: it can then go on from what `make lint` has left in
    # its cache.
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    said, trouble, code = mypy.run([*options, "--hide-error-context", str(folder / "asked.py")])
    assert code < 2 and not trouble, said + trouble
    found = []
    for complaint in said.splitlines():
        file, number, text = complaint.split(":", 2)
        if Path(file).name != "asked.py":  # what a module says wrong about itself is `make lint`'s
            continue
        module, line = lines[int(number) - 1]
        found.append((module, f"{line.rpartition('.')[2]}: {text.strip()}"))
    return found


def test_no_room_with_a_contract_is_forgotten() -> None:
    files = [*registry.PACKAGE.rglob("__init__.py"), registry.PACKAGE / "run/readings/_values.py"]
    stated = {path.parent.name for path in files if "(Protocol)" in path.read_text()}
    assert stated == set(CONTRACTS)


@pytest.fixture(scope="module")
def of_all_members(once: Once) -> list[list[str]]:
    """Complaints of all at once: one by one they would take a minute."""
    asked = [(room, registry.member(room, name).__name__) for room, name in MEMBERS]
    folder = once(
        "contracts", lambda f: (f / "complaints.json").write_text(json.dumps(complaints(asked, f)))
    )
    found: list[list[str]] = json.loads((folder / "complaints.json").read_text())
    return found


@pytest.mark.parametrize(("room", "name"), MEMBERS, ids=lambda part: part)
def test_a_member_keeps_its_rooms_contract(
    room: str, name: str, of_all_members: list[list[str]]
) -> None:
    module = registry.member(room, name).__name__
    assert [text for of, text in of_all_members if of == module] == []


# A member's line, what stands there instead, and the word of the contract that mypy then complains
# of.
BROKEN = [
    ("frameworks", "ddp", 'PACKAGE = "torch"', "", "PACKAGE"),
    ("frameworks", "ddp", 'DISTRIBUTION = "torch"', "DISTRIBUTION = 2", "DISTRIBUTION"),
    (
        "frameworks",
        "ddp",
        "def refuses(spec: RunSpec)",
        "def refuses(run: RunSpec, why: str)",
        "refuses",
    ),
    (
        "frameworks",
        "ddp",
        "def start(device: str) -> None",
        "def start(device: str) -> bool",
        "start",
    ),
    (
        "frameworks",
        "ddp",
        "spec: RunSpec, clock: Clock",
        "spec: RunSpec",
        "Engine",
    ),
    (
        "frameworks",
        "deepspeed",
        "def state(self) -> dict",
        "def state(self, rank: int) -> dict",
        "Engine",
    ),
    ("loaders", "native", "LEARNS = True", "", "LEARNS"),
    ("loaders", "synthetic", "FORMS: tuple[str, ...] = ()", "FORMS: list[str] = []", "FORMS"),
    ("figures", "memory", 'TABLES = ("runs",)', 'TABLES = "runs"', "TABLES"),
    (
        "figures",
        "memory",
        "def draw(data: pd.DataFrame, ",
        "def draw(rows: int, data: pd.DataFrame, ",
        "draw",
    ),
    ("inference", "int8", "SPLITS = False", "", "SPLITS"),
    ("records", "ours", "def find(folder: Path,", "def find(", "find"),
    ("exports", "application", 'PACKAGE = ""', "", "PACKAGE"),
    ("kinds", "inference", "BUILT_IN_LOOP = False", "BUILT_IN_LOOP = None", "BUILT_IN_LOOP"),
    (
        "readings",
        "lines",
        "def wanted(spec: RunSpec)",
        "def wanted(spec: str)",
        "wanted",
    ),
    ("sheets", "costs", "SHEET = Sheet(", "SHEET = tuple(", "SHEET"),
    (
        "prediction",
        "last_rate",
        "rates: Mapping[int, float], workers: int",
        "rates: Mapping[int, float]",
        "of_worker",
    ),
    ("questions", "batch", 'DECIDES = ("batch",)', 'DECIDES = "batch"', "DECIDES"),
    (
        "questions",
        "framework",
        "def answer(given: Given, choice: Choice)",
        "def answer(given: Given)",
        "answer",
    ),
    ("sections", "costs", 'READS = ("costs.parquet",)', "", "READS"),
    (
        "loaders",
        "synthetic",
        "def epoch(self, epoch: int, first_step: int = 0)",
        "def epoch(self)",
        "Loader",
    ),
]


def test_a_member_that_breaks_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(tmp_path))
    for number, (room, name, line, instead, _) in enumerate(BROKEN):
        source = registry.path(room, name).read_text()
        assert source.count(line) == 1, (name, line)
        (tmp_path / f"broken{number}.py").write_text(source.replace(line, instead))
    asked = [(broken[0], f"broken{number}") for number, broken in enumerate(BROKEN)]
    found = [(module, text.split(":")[0]) for module, text in complaints(asked, tmp_path)]
    assert list(dict.fromkeys(found)) == [
        (f"broken{number}", broken[-1]) for number, broken in enumerate(BROKEN)
    ]
