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
import ast
import difflib
import gc
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

try:
    import coverage
    import libcst
    from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
    from mutmut.mutation.mutators import mutation_operators
except ImportError as error:
    sys.exit(f"{error.name} is missing: pip install mutmut==3.8.1")
import pytest

ROOT = Path(__file__).resolve().parents[1]
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
# The unit test files of these modules. Of others: those that import them, or that ALSO names, at
# most FILES.
TESTS = {
    "analysis/significance.py": ("test_statistics.py",),
    "analysis/intervals.py": ("test_statistics.py",),
    "analysis/warm_up.py": ("test_statistics.py",),
    "analysis/outliers.py": ("test_statistics.py", "test_outliers.py"),
    "analysis/drift.py": ("test_statistics.py",),
    "analysis/over_settings.py": ("test_over_settings.py",),
    "core/schedule.py": ("test_recipe.py",),
    "train/loaders/_sampling.py": ("test_loaders.py", "test_forms.py"),
    "analysis/price.py": ("test_price.py", "test_budget.py"),
    "plan/launch.py": ("test_launch.py",),
    "plan/stale.py": ("test_stale.py", "test_commands.py"),
    "records/mlperf.py": ("test_mlperf.py",),
    "records/_mllog.py": ("test_mlperf.py",),
    "records/_times.py": ("test_mlperf.py",),
    "analysis/times.py": ("test_statistics.py", "test_measure.py", "test_losses.py"),
    "core/spec.py": ("test_plan.py", "test_recipe.py", "test_slurm_submission.py"),
    "core/recipe.py": ("test_recipe.py", "test_recipe_sources.py", "test_plan.py"),
    "settings/machine.py": ("test_own_cluster.py", "test_launch.py", "test_bad_input.py"),
    "settings/study.py": ("test_studies.py", "test_plan.py", "test_bad_input.py"),
    "plan/runs.py": ("test_plan.py", "test_order.py", "test_studies.py"),
}
ALSO = {
    "audit/rules/": ("test_audit.py",),
    "audit/": ("test_audit.py",),
    "analysis/sheets/": ("test_columns.py", "test_collect.py"),
    "analysis/prediction/": ("test_prediction.py", "test_predictions.py"),
    "plan/kinds/": (
        "test_kinds.py",
        "test_plan.py",
        "test_plan_inference.py",
        "test_plan_programs.py",
    ),
    "records/": ("test_trust.py",),
    "settings/": ("test_bad_input.py", "test_reading.py"),
}
FILES = 4  # those named like the module, then those that import least, whose subject it is
# Seconds of CPU time, which other load does not change.
TOO_LONG_S = 3.0  # tests that take longer are stopped, and left out
ENOUGH_S = 5.0  # of tests that go through a mutant's function, the quickest first
OTHERS_S = 1.0  # of others: a value that was kept by another test hides who asks for it
MEMORY = 8 << 30
NEVER = ("len", "isinstance")  # mutmut leaves their arguments alone
IMPORTED_FIRST = (
    *("numpy", "pandas", "scipy.special", "pyarrow.parquet", "matplotlib.pyplot", "PIL.Image"),
    *("yaml", "jinja2", "pydantic.main", "pydantic.dataclasses", "pydantic.type_adapter", "psutil"),
    *("snakemake", "mlperf_logging", "hypothesis", "filelock", "anyio.pytest_plugin"),
)
LEAST = 0.85  # of the mutants of those that decide are to be killed
KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"
OUTSIDE = 77  # an exit code: the mutant is of no function


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


# Which mutants there are.


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


# Which tests there are of a module.


def tests_of(module: str, unit: Path) -> list[str]:
    """Return the names of the unit test files that try a module."""
    if module in TESTS:
        return [*TESTS[module]]
    dotted = "ddlbench." + module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    imported = {path.name: _imported(path) for path in sorted(unit.glob("test_*.py"))}
    also = [name for prefix, names in ALSO.items() if module.startswith(prefix) for name in names]
    direct = [name for name, names in imported.items() if dotted in names and name not in also]
    stem = Path(module).stem.strip("_")
    direct.sort(
        key=lambda name: (stem not in name, sum(of.startswith("ddlbench") for of in imported[name]))
    )
    return [*dict.fromkeys([*direct[:FILES], *(name for name in also if name in imported)])]


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def function_lines(code: str, line: int) -> range:
    """Return the lines of the body of the innermost function around a line; none outside of
    functions.
    """
    around = _around(code, line)
    return (
        range(around[-1].body[0].lineno, (around[-1].end_lineno or 0) + 1) if around else range(0)
    )


def outermost(code: str, line: int) -> int | None:
    """Return the first line of the outermost function whose body holds this line, decorators
    included.
    """
    around = _around(code, line)
    return (
        min([around[0].lineno, *(node.lineno for node in around[0].decorator_list)])
        if around
        else None
    )


@cache
def _parsed(code: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(code))]


def _around(code: str, line: int) -> list[ast.FunctionDef]:
    """Return the functions whose body holds this line, the outermost first."""
    return [
        node
        for node in _parsed(code)  # by breadth
        if isinstance(node, ast.FunctionDef)
        and node.body[0].lineno <= line <= (node.end_lineno or 0)
    ]


# Processes that run tests.


class Watching:
    """What tests that run one after another take, which pass, and which lines of a module they go
    through.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.coverage = coverage.Coverage(
            data_file=None, include=[str(file) for file in files], config_file=False
        )
        self.files = files
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.fixtures: dict[str, list[str]] = {}
        self.current = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.current = item.nodeid
        self.fixtures[item.nodeid] = [f"fixture {name}" for name in item.fixturenames]
        self.coverage.switch_context(self.current)
        signal.signal(signal.SIGPROF, _too_long)
        signal.setitimer(signal.ITIMER_PROF, 1.5 * TOO_LONG_S)  # the watching costs something too
        before = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.seconds[item.nodeid] = sum(os.times()[:4]) - before

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        # What a shared fixture does is done for all who use it, whoever comes first.
        if fixturedef.scope != "function":
            self.coverage.switch_context(f"fixture {fixturedef.argname}")
        try:
            return (yield)
        finally:
            self.coverage.switch_context(self.current)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def baseline(self) -> Baseline:
        """Return what was seen."""
        through = {test: set[tuple[Path, int]]() for test in self.fixtures}
        contexts_of = {test: {test, *fixtures} for test, fixtures in self.fixtures.items()}
        for file in self.files:
            for line, contexts in self.coverage.get_data().contexts_by_lineno(str(file)).items():
                for test, of in contexts_of.items():
                    if not of.isdisjoint(contexts):
                        through[test].add((file, line))
        good = {
            test: s
            for test, s in self.seconds.items()
            if test not in self.failed and s <= TOO_LONG_S
        }
        return Baseline(good, through, tuple(sorted({*self.seconds} - {*good})))


def _too_long(*_: object) -> None:
    raise TimeoutError("too long to be tried with mutants")


@dataclass(frozen=True)
class Baseline:
    """The tests of modules that pass in time, with their seconds and the modules' lines that they
    go through.
    """

    seconds: dict[str, float]
    lines: dict[str, set[tuple[Path, int]]]
    left_out: tuple[str, ...]

    def for_lines(self, file: Path, body: range) -> list[str]:
        """Return the tests that a mutant in these lines meets: those that go through them, then a
        few others.
        """
        wanted = {(file, line) for line in body}
        through = [test for test in self.seconds if not wanted.isdisjoint(self.lines.get(test, ()))]
        others = [test for test in self.seconds if test not in {*through}]
        return [
            *self._quickest(through, ENOUGH_S),
            *self._quickest(others, OTHERS_S if through else ENOUGH_S),
        ]

    def _quickest(self, tests: Iterable[str], enough_s: float) -> list[str]:
        chosen, total = [], 0.0
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            total += self.seconds[test]
            if total > enough_s:
                break
            chosen.append(test)
        return chosen

    def limit_s(self, tests: Iterable[str]) -> float:
        """Return how long these tests may take by the clock on a busy machine."""
        return 60 + 12 * sum(self.seconds[test] for test in tests)


class Collected:
    """A plugin of pytest: in place of running the tests that were collected, do this with them."""

    def __init__(self, work: Callable[[list[Any]], None]) -> None:
        self.work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        self.work(session.items)
        return True


def run(items: Sequence[Any]) -> int:
    """Run tests that were collected, in this order, until one fails. Return 1 if one does, else
    0.
    """
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            return 1
    return 0


def forked(work: Callable[[], int], limit_s: float) -> int | None:
    """Return the exit code of work done in a forked process; None if it took too long. All that it
    started goes.
    """
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            code = work()
        finally:
            os._exit(code)
    end = time.monotonic() + limit_s
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < end:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # the child, or what it left running
    if not ended:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def swap(file: Path, code: str, top: int) -> bool:
    """Put the function that begins in this line of `code` in place of the one that is there. False
    if none is.
    """
    new = [
        made for made in _functions(compile(code, str(file), "exec")) if made.co_firstlineno == top
    ]
    now = [
        function
        for function in gc.get_objects()
        if isinstance(function, FunctionType)
        and function.__code__.co_filename == str(file)
        and function.__code__.co_firstlineno == top
    ]
    if len(new) != 1 or not now:
        return False
    for function in now:
        function.__code__ = new[0]
    return True


def _functions(code: CodeType) -> Iterator[CodeType]:
    for made in code.co_consts:
        if isinstance(made, CodeType):
            yield made
            yield from _functions(made)


class Copy:
    """A copy of the project in which mutants are written, so that nothing of the project itself is
    touched.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.scratch = folder / "tests"
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        subprocess.run(
            ["git", "init", "-q"], cwd=self.folder, check=True
        )  # some tests ask git for the files

    def collected(
        self, files: Sequence[str], work: Callable[[list[Any]], None], limit_s: float
    ) -> int | None:
        """Collect the tests of these files in a new process, and do something with them there.
        Return its exit code.
        """

        def there() -> int:
            os.chdir(self.folder)
            for stream in (0, 1):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            sys.path[:0] = [str(self.folder), str(self.folder / "workflow")]
            without = [
                f"-pno:{name}"
                for name in ("cacheprovider", "xdist", "hypothesispytest", "unraisableexception")
            ]
            named = [f"tests/unit/{name}" for name in files]
            return int(
                pytest.main(
                    ["-q", "--tb=no", *without, f"--basetemp={self.scratch}", *named],
                    plugins=[Collected(work)],
                )
            )

        return forked(there, limit_s)

    def baseline(self, files: Sequence[Path], items: Sequence[Any]) -> Baseline:
        """Return what these tests do without a fault in these files of the package."""
        answer = self.scratch.with_suffix(".pickle")

        def watched() -> int:
            watching = Watching(files)
            watching.coverage.start()
            items[0].config.pluginmanager.register(watching)
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            watching.coverage.stop()
            answer.write_bytes(pickle.dumps(watching.baseline()))
            return 0

        forked(watched, 3600)
        found = pickle.loads(answer.read_bytes())
        assert isinstance(found, Baseline)
        return found

    def try_within(
        self,
        file: Path,
        code: str,
        line: int,
        mutated: str,
        items: Sequence[Any],
        baseline: Baseline,
    ) -> str | None:
        """Return what the tests that were collected say to a mutant of a function; None if it is of
        none.
        """
        top = outermost(code, line)
        if top is None:
            return None
        tests = baseline.for_lines(file, function_lines(code, line))
        by_name = {item.nodeid: item for item in items}
        return said(
            forked(
                lambda: (
                    run([by_name[test] for test in tests]) if swap(file, mutated, top) else OUTSIDE
                ),
                baseline.limit_s(tests),
            )
        )

    def try_anew(self, file: Path, mutated: str, baseline: Baseline) -> str | None:
        """Return what the tests say to a mutant that is written into the module's file and imported
        anew.
        """
        tests = baseline.for_lines(file, range(0))
        before, times = file.read_text(encoding="utf-8"), file.stat()

        def chosen(items: list[Any]) -> None:
            by_name = {item.nodeid: item for item in items}
            os._exit(run([by_name[test] for test in tests if test in by_name]))

        try:
            file.write_text(mutated, encoding="utf-8")
            names = sorted({Path(test.split("::")[0]).name for test in tests})
            return said(self.collected(names, chosen, baseline.limit_s(tests)))
        finally:
            file.write_text(before, encoding="utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def said(code: int | None) -> str | None:
    """Return the outcome that an exit code means; None if the mutant is of no function."""
    return {None: TIMED_OUT, 0: SURVIVED, OUTSIDE: None}.get(code, KILLED)


# What was found.


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
