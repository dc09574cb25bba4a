"""Processes that run the tests of a mutant, in a copy of the project."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest

from bench.mutation.subjects import function_lines, outermost

ROOT = Path(__file__).resolve().parents[2]
# Seconds of CPU time, which other load does not change.
TOO_LONG_S = 3.0  # tests that take longer are stopped, and left out
ENOUGH_S = 5.0  # of tests that go through a mutant's function, the quickest first
OTHERS_S = 1.0  # of others: a value that was kept by another test hides who asks for it
MEMORY = 8 << 30
KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"
OUTSIDE = 77  # an exit code: the mutant is of no function


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
        # As `tests.conftest.copy_project`, which is not imported here: the processes that collect
        # tests would then find the project's package `tests` in place of the copy's.
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
