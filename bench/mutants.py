#!/usr/bin/env python
"""How many faults that are planted in the pure rooms do the unit tests catch? `python
bench/mutants.py`

The faults are those of mutmut (`pip install mutmut==3.8.1`); this file says which are tried, and by
which tests. All happens in a copy of the project. A process collects the tests of a module once;
for each mutant it forks, puts the mutated function in place of the one that is there, and runs the
tests that go through it until one fails. What is outside of functions is written into the copy's
file, and a process that imports it anew runs the tests. Calls with the same `--out` go on where one
ended.

    python bench/mutants.py --modules deciding                  # those that decide: docs/measurements/mutation.md
    python bench/mutants.py --sample 15                         # so many of each module of all rooms
    python bench/mutants.py --modules core/schedule.py --again  # survivors only, after a new test
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
try:
    from bench.mutation.faults import Mutant, change, mutants_of
    from bench.mutation.subjects import tests_of
    from bench.mutation.trial import SURVIVED, Copy, forked, run
except ImportError as error:
    sys.exit(f"{error.name} is missing: pip install mutmut==3.8.1")

PACKAGE = "workflow/ddlbench"
ROOMS = ("core", "settings", "analysis", "records", "audit", "plan")
# What decides which side is ahead, at which rate is trained, who gets which sample, what it costs,
# how ranks start, and what is made again.
DECIDING = (
    "analysis/significance.py",
    "analysis/intervals.py",
    "analysis/warm_up.py",
    "analysis/outliers.py",
    "analysis/drift.py",
    "analysis/over_settings.py",
    "core/schedule.py",
    "train/loaders/_sampling.py",
    "analysis/price.py",
    "plan/launch.py",
    "plan/stale.py",
)
# A mutant of these might end a process that is not its own, or remove another's files.
LEFT_OUT = ("core/living.py", "core/heartbeats.py", "core/files.py", "core/notes.py")
IMPORTED_FIRST = (
    *("numpy", "pandas", "scipy.special", "pyarrow.parquet", "matplotlib.pyplot", "PIL.Image"),
    *("yaml", "jinja2", "pydantic.main", "pydantic.dataclasses", "pydantic.type_adapter", "psutil"),
    *("snakemake", "mlperf_logging", "hypothesis", "filelock", "anyio.pytest_plugin"),
)
LEAST = 0.85  # of the mutants of those that decide are to be killed


def modules() -> list[str]:
    """Return the modules of the pure rooms, those that decide first."""
    package = ROOT / PACKAGE
    found = [
        str(path.relative_to(package))
        for room in ROOMS
        for path in sorted((package / room).rglob("*.py"))
    ]
    return [*DECIDING, *(module for module in found if module not in (*DECIDING, *LEFT_OUT))]


def read(out: Path) -> dict[str, dict[str, Any]]:
    """Return what earlier calls found, by mutant: the last word on each."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return {found["key"]: found for found in map(json.loads, lines)}


def table(results: Iterable[dict[str, Any]]) -> list[str]:
    """Return the score of each module, of each room, of those that decide and of all."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for found in results:
        module = found["module"]
        room = module.split("/")[0]
        for name in (f"`{module}`", *([f"**{room}**"] if room in ROOMS else [])):
            groups.setdefault(name, []).append(found)
        if module in DECIDING:
            groups.setdefault("**those that decide**", []).append(found)
        groups.setdefault("**all**", []).append(found)
    lines = [
        "| module or room | mutants there are | tried | killed | survived | score |",
        "|---|---|---|---|---|---|",
    ]
    for name, group in sorted(groups.items()):
        of = {found["module"]: found["of"] for found in group}
        lived = sum(found["outcome"] == SURVIVED for found in group)
        score = 1 - lived / len(group)
        lines.append(
            f"| {name} | {sum(of.values())} | {len(group)} | {len(group) - lived} | {lived} |"
            f" {score:.0%} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--modules",
        nargs="*",
        default=["all"],
        help="paths in the package, room names, deciding, all",
    )
    parser.add_argument(
        "--sample", type=int, default=100, help="at most so many mutants of a module; 0: all"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=Path("results/mutants.jsonl"), help="where outcomes are kept"
    )
    parser.add_argument(
        "--again", action="store_true", help="try the survivors in --out again, and nothing else"
    )
    parser.add_argument(
        "--table", action="store_true", help="print what --out says, and try nothing"
    )
    given = parser.parse_args()
    given.out = given.out.absolute()  # tests are tried in a copy, and the process moves there
    known = read(given.out)
    wanted = [module for module in modules() if _is_wanted(module, given.modules)]
    if not wanted:
        parser.error(f"no module is {', '.join(given.modules)}; allowed: {', '.join(modules())}")
    if not given.table:
        for name in (
            IMPORTED_FIRST
        ):  # once, for all processes; nothing of ddlbench, which each imports anew
            try:
                __import__(name)
            except ImportError:
                print(f"not there: {name}", file=sys.stderr)
        gc.freeze()
        with tempfile.TemporaryDirectory() as folder:
            copy = Copy(Path(folder))
            groups: dict[tuple[str, ...], list[Subject]] = {}
            for module in wanted:
                one = subject(copy, module, known, given)
                if one.left:
                    groups.setdefault(
                        tuple(tests_of(module, copy.folder / "tests/unit")), []
                    ).append(one)
            for files, subjects in groups.items():
                if files:
                    attempts(copy, files, subjects, given.out)
                else:
                    print(
                        f"no test file imports {' '.join(one.module for one in subjects)}",
                        file=sys.stderr,
                    )
        known = read(given.out)
    shown = [found for found in known.values() if found["module"] in wanted]
    for found in shown:
        if found["outcome"] == SURVIVED:
            print(f"\n{found['module']}:{found['line']}\n{found['change']}")
    print("", *table(shown), sep="\n")
    decide = [found["outcome"] for found in shown if found["module"] in DECIDING]
    if decide and decide.count(SURVIVED) > (1 - LEAST) * len(decide):
        sys.exit(f"of those that decide less than {LEAST:.0%} were killed")


def _is_wanted(module: str, asked: Sequence[str]) -> bool:
    names = {"all", module, module.split("/")[0], *(["deciding"] if module in DECIDING else [])}
    return not names.isdisjoint(asked)


@dataclass(frozen=True)
class Subject:
    """A module in the copy, with the mutants of it that are to be tried, of so many that there
    are.
    """

    module: str
    file: Path
    code: str
    left: list[Mutant]
    of: int


def subject(
    copy: Copy, module: str, known: dict[str, dict[str, Any]], given: argparse.Namespace
) -> Subject:
    """Draw the mutants of a module that are to be tried."""
    file = copy.folder / PACKAGE / module
    code = file.read_text(encoding="utf-8")
    everyone = mutants_of(module, code)
    # A mutant's place in the draw is its own: with more of them it stays drawn.
    drawn = sorted(
        everyone, key=lambda mutant: sha256(f"{given.seed} {mutant.key}".encode()).digest()
    )
    sample = drawn[: given.sample] if given.sample else drawn
    lived = {key for key, found in known.items() if found["outcome"] == SURVIVED}
    left = [
        m
        for m in (drawn if given.again else sample)
        if (m.key in lived if given.again else m.key not in known)
    ]
    return Subject(module, file, code, left, len(everyone))


def attempts(copy: Copy, files: Sequence[str], subjects: Sequence[Subject], out: Path) -> None:
    """Try mutants of modules that the same test files try, and write what becomes of each into
    `out`.
    """
    names = " ".join(one.module for one in subjects)
    answer, start = copy.scratch.with_suffix(".left"), time.monotonic()

    def keep(one: Subject, mutant: Mutant, mutated: str, outcome: str) -> None:
        found = {
            "key": mutant.key,
            "outcome": outcome,
            "of": one.of,
            "module": one.module,
            "line": mutant.line,
        }
        with out.open("a", encoding="utf-8") as lines:
            print(json.dumps({**found, "change": change(one.code, mutated)}), file=lines)

    def work(items: list[Any]) -> None:
        baseline = copy.baseline([one.file for one in subjects], items)
        print(
            f"{names}: {sum(len(one.left) for one in subjects)} of"
            f" {sum(one.of for one in subjects)} mutants; {len(baseline.seconds)} tests,"
            f" {sum(baseline.seconds.values()):.0f} CPU s, in {' '.join(files)}; left out:"
            f" {' '.join(baseline.left_out) or 'none'}; ready after"
            f" {time.monotonic() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        for one in subjects:
            if not any(file == one.file for lines in baseline.lines.values() for file, _ in lines):
                print(
                    f"{one.module}: none of these tests goes through it",
                    file=sys.stderr,
                    flush=True,
                )
        quickest = baseline.for_lines(subjects[0].file, range(0))
        by_name = {item.nodeid: item for item in items}
        if (
            forked(lambda: run([by_name[test] for test in quickest]), baseline.limit_s(quickest))
            != 0
        ):
            sys.exit(
                f"{names}: tests fail without a fault where the quickest come first:"
                f" {' '.join(files)}"
            )
        outside = set()
        for one in subjects:
            for mutant in one.left:
                try:
                    mutated = mutant.code()
                except SyntaxError:
                    continue
                outcome = copy.try_within(one.file, one.code, mutant.line, mutated, items, baseline)
                if outcome is None:
                    outside.add(mutant.key)
                else:
                    keep(one, mutant, mutated, outcome)
        answer.write_bytes(pickle.dumps((baseline, outside)))
        os._exit(0)

    if copy.collected(files, work, 24 * 3600) != 0:
        sys.exit(f"{names}: tests could not be collected or tried: {' '.join(files)}")
    baseline, outside = pickle.loads(answer.read_bytes())
    for one in subjects:
        for mutant in one.left:
            if mutant.key in outside:
                mutated = mutant.code()
                keep(one, mutant, mutated, copy.try_anew(one.file, mutated, baseline) or SURVIVED)
    print(f"{names}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
