#!/usr/bin/env python
"""Which of the faults in `bench/planted` do tests catch? `python bench/planted.py`

Each patch there is one fault that mutation tools (`bench/mutants.py`) do not make: a wrong rank or
device, a race, a swallowed error, a lock not taken, a wrong unit, a step counted twice. Its head
says what is wrong (`fault`), in which room (`room`), which tests are for it (`tests`), and which
tier caught it before (`before`): `none` where a test had to be written, `untried` where nobody has
run them. Then `tests` are those that may catch it.

All happens in a copy of the project. A fault is caught if its tests fail with it, and pass without
it.

    python bench/planted.py                              # all; exits with 1 if one is not caught
    python bench/planted.py folder-not-held             # some, by name
    python bench/planted.py --room loaders              # those of a room
    python bench/planted.py --untried --write           # those that nobody has run; write down what catches them
    python bench/planted.py --table                     # the table of docs/measurements/planted.md
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATCHES = Path(__file__).resolve().parent / "planted"
TIERS = ("unit", "contract", "workflow", "slurm")
NONE, UNTRIED = "none", "untried"
LONGEST_S = 900  # of one fault's tests
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)  # parameters may have blanks


@dataclass(frozen=True)
class Fault:
    """A patch, and what its head says."""

    path: Path
    fault: str
    room: str
    tests: tuple[str, ...]
    before: str

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def file(self) -> str:
        """The file that it changes."""
        found = re.search(r"^\+\+\+ b/(\S+)", self.path.read_text(encoding="utf-8"), re.M)
        assert found, self.path
        return found[1]

    @property
    def tier(self) -> str:
        """The first tier of its tests."""
        return tier_of(self.tests[0])


def tier_of(test: str) -> str:
    """Return the tier of a test: `unit` of `tests/unit/test_hold.py::test_...`."""
    return test.split("/")[1]


def read(path: Path) -> Fault:
    """Return the fault of a patch. Raises SystemExit if its head lacks a line."""
    head = path.read_text(encoding="utf-8").split("\n\n", 1)[0]
    lines = dict(line.split(": ", 1) for line in head.splitlines())
    if missing := {"fault", "room", "tests", "before"} - lines.keys():
        sys.exit(f"{path}: its head lacks {', '.join(sorted(missing))}")
    return Fault(
        path, lines["fault"], lines["room"], tuple(lines["tests"].split()), lines["before"]
    )


def copy_of_project(target: Path) -> Path:
    """Return a copy of the project as git sees it, in which git applies patches."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [
        name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()
    ]
    subprocess.run(["cp", "--parents", "-p", "-t", str(target), *names], cwd=ROOT, check=True)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=target, check=True)
    return target


def run(tests: Iterable[str], tree: Path) -> tuple[bool, list[str]]:
    """Return whether tests pass, and the first of them that fails. Who takes too long fails."""
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"DDLBENCH_SLOW": "1"}
    try:
        done = subprocess.run(
            argv, cwd=tree, capture_output=True, text=True, timeout=LONGEST_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return False, ["too long"]
    if done.returncode not in (0, 1):
        sys.exit(
            f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.returncode == 0, FAILED.findall(done.stdout)


def plant(fault: Fault, tree: Path) -> bool:
    """Apply a patch; False if it does not fit the code any more."""
    done = subprocess.run(["git", "apply", str(fault.path)], cwd=tree, capture_output=True)
    return done.returncode == 0


def remove(fault: Fault, tree: Path) -> None:
    """Take it away again."""
    subprocess.run(["git", "apply", "-R", str(fault.path)], cwd=tree, check=True)


def write_down(fault: Fault, test: str) -> None:
    """Write into the head of a fault that was untried which test catches it."""
    text, name = fault.path.read_text(encoding="utf-8"), test.partition("[")[0]
    text = re.sub(r"^tests: .*$", f"tests: {name}", text, count=1, flags=re.M)
    text = re.sub(r"^before: .*$", f"before: {tier_of(name)}", text, count=1, flags=re.M)
    fault.path.write_text(text, encoding="utf-8")


def is_caught(fault: Fault, tree: Path, write: bool = False) -> bool:
    """Return whether the fault's tests fail with it, and pass without it; `write` down which, if it
    was untried.
    """
    if not plant(fault, tree):
        print(f"{fault.name}: does not fit the code any more: write it anew", flush=True)
        return False
    try:
        passes, failed = run(fault.tests, tree)
    finally:
        remove(fault, tree)
    if passes:
        print(f"{fault.name}: NOT CAUGHT", flush=True)
        return False
    by = [test for test in failed if "::" in test][:1]
    without, _ = run(by or fault.tests, tree)
    if not without:
        print(f"{fault.name}: NOT CAUGHT: {' '.join(failed)} fails without it, too", flush=True)
        return False
    print(f"{fault.name}: caught by {' '.join(failed)}", flush=True)
    if write and by and fault.before == UNTRIED:
        write_down(fault, by[0])
    return True


def table(faults: Sequence[Fault]) -> str:
    """Return the table of the faults that were tried, room by room, and how many each tier
    caught.
    """
    faults = [fault for fault in faults if fault.before != UNTRIED]
    lines = ["| room | fault | place | caught before by | test for it |", "|---|---|---|---|---|"]
    for fault in faults:
        tests = ", ".join(f"`{test.split('/')[-1].replace('.py::', ': ')}`" for test in fault.tests)
        place = fault.file.removeprefix("workflow/ddlbench/")
        lines.append(
            f"| {fault.room} | {fault.fault} | `{place}` | {fault.before} | {fault.tier}: {tests} |"
        )
    before = Counter(fault.before for fault in faults)
    lines += ["", "| caught before by | faults |", "|---|---|"]
    lines += [f"| {tier} | {before[tier]} |" for tier in (*TIERS, NONE)]
    return "\n".join([*lines, f"| all | {len(faults)} |"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="faults by the names of their patches; none: all")
    parser.add_argument("--room", help="only those of this room")
    parser.add_argument("--untried", action="store_true", help="only those that nobody has run")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write into heads of untried ones which test catches them",
    )
    parser.add_argument(
        "--table", action="store_true", help="print what the heads say, and try nothing"
    )
    a = parser.parse_args()
    faults = [read(path) for path in sorted(PATCHES.glob("*.patch"))]
    if unknown := {*a.names} - {fault.name for fault in faults}:
        sys.exit(f"{PATCHES}: has no {', '.join(sorted(unknown))}")
    chosen = [f for f in faults if (not a.names or f.name in a.names) and a.room in (None, f.room)]
    chosen = [fault for fault in chosen if fault.before == UNTRIED or not a.untried]
    chosen.sort(key=lambda fault: (fault.room, TIERS.index(fault.tier), fault.name))
    if a.table:
        print(table(chosen))
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_project(Path(folder))
        missed = [fault.name for fault in chosen if not is_caught(fault, tree, a.write)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught")
    sys.exit(f"not caught: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
