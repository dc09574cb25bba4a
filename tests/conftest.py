"""What all tiers share: which tests run and where, folders made once, and copies of the project to
play with.

`make test` shares the tests out to several processes (pytest-xdist). What is costly and used by
many tests is made by one of these processes, for all of them: `once`.
"""

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests import faults, times

ROOT = Path(__file__).resolve().parents[1]
SLOW = os.environ.get("DDLBENCH_SLOW") == "1"
TIERS = ["unit", "contract", "workflow", "slurm", "gpu", "pretended_gpu", "cuda_build"]
os.environ["DDLBENCH_TURNS"] = ""  # tests run side by side: what they time is no result
# Processes that tests start import this tree's package too, wherever ddlbench was installed from.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT / "workflow"), os.environ.get("PYTHONPATH")])
)
# Variables of processes that import this tree's tests too, and find the programs beside this
# Python.
PATHS = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]),
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}
# Groups of tests that one process runs, the longest first. Each process that runs tests of SLURM
# has a cluster of its own, so these are four groups of about the same length.
TOGETHER = {
    "cluster": ("tests/slurm/test_faults.py", "tests/slurm/test_many.py"),
    "second cluster": (
        "tests/slurm/test_storm.py",
        "tests/slurm/test_slow_node.py",
        "tests/slurm/test_resume.py",
    ),
    "third cluster": ("tests/slurm/test_interrupted.py",),
    "fourth cluster": ("tests/slurm/",),  # all that the others do not name
    "study": ("tests/workflow/test_study.py",),
    "touches": ("tests/workflow/test_touches.py",),  # of one folder, one after the other
    "engines": ("tests/contract/test_frameworks.py", "tests/contract/test_deepspeed_options.py"),
    "cuda build": ("tests/cuda_build/",),  # else each process compiles one
}
OF_RUNS = ("tests/contract/test_training.py", "tests/contract/test_record.py")
Once = Callable[[str, Callable[[Path], object]], Path]


def shared() -> float:
    """How many programs share a core, on average of the last minute; 1 if there are as many cores
    or more.

    What has to end within some time may take so many times as long.
    """
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def until(true: Callable[[], Any], seconds: float, every_s: float = 0.3) -> Any:
    """Wait for something to be true, and return it.

    For `seconds` where each program has a core, and as often longer as programs share one.
    """
    start, times = time.monotonic(), 1.0
    while not (value := true()):
        times = max(times, shared())
        waited = time.monotonic() - start
        assert waited < seconds * times, f"in vain for {waited:.0f} s"
        time.sleep(every_s)
    return value


def copy_project(target: Path) -> Path:
    """The project as git sees it (tracked and new files, nothing ignored) in a folder of its
    own.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def copy_or_link(source: str, target: str) -> None:
    """Prepared pictures are linked, not copied: a test that changes one replaces its file."""
    if "/mnist5k/raw/" in source and source.endswith(".png"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A fresh copy of the project."""
    return copy_project(tmp_path / "project")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """`once(name, make)`: the folder that `make(folder)` filled, once for all processes that run
    these tests.

    If it fails, all that need it fail, without another try.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    shared.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done, failed = shared / name, shared / f"{name}.done", shared / f"{name}.failed"
        with FileLock(shared / f"{name}.lock"):
            if failed.exists():
                pytest.fail(f"{name} could not be made, as another test said: {failed.read_text()}")
            if not done.exists():
                folder.mkdir()
                try:
                    make(folder)
                except BaseException as error:
                    failed.write_text(f"{type(error).__name__}: {str(error)[-1000:]}")
                    raise
                done.touch()
        return folder

    return made


@pytest.fixture
def handlers() -> Iterator[None]:
    """A supervisor takes the signals of its process, which here is that of all tests; a test gives
    them back.
    """
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests are shared out one by one, those of the unit tier file by file, in the order that they
    have. All to one process go those that wait for the same thing, which others would only wait for
    too: a cluster of SLURM's, the study of everything, the launches of engines; and what a file's
    fixtures made, or what it imports, is there once.

    pytest-xdist 3.8 has marks for this, but pytest 9.2 ignores the ids that they change, without a
    word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _together(nodeid) or _of_run(nodeid) or _of_file(nodeid) or nodeid

    config.option.loadscopereorder = (
        False  # else groups of many tests come first, and the longest last
    )
    return Scheduling(config, log)


def _together(nodeid: str) -> str | None:
    """Which group of tests this one goes with, None if it goes alone."""
    groups = [group for group, names in TOGETHER.items() if nodeid.startswith(names)]
    return groups[0] if groups else None


def _of_run(nodeid: str) -> str | None:
    """A name of the run that this test and others look at, if the test's parameters are those of a
    run.

    Whoever comes first launches it; a test in another process would only wait until it has ended.
    """
    parameters = re.search(r"\[(.+)\]$", nodeid)
    if parameters is None or not nodeid.startswith(OF_RUNS):
        return None
    return "run " + "-".join(
        sorted(parameters[1].split("-"))
    )  # files name them in different orders


def _of_file(nodeid: str) -> str | None:
    """Which file of the unit tier this test is of, None if it is of another tier."""
    return nodeid.split("::")[0] if nodeid.startswith("tests/unit/") else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of faults, after the SLURM tier, and where the time went."""
    faults.summary(terminalreporter)
    times.summary(terminalreporter)


def pytest_sessionstart() -> None:
    """What is imported and collected stays: nothing of it is looked through for what could be
    freed, then or later.
    """
    gc.disable()


def pytest_collection_finish() -> None:
    """See `pytest_sessionstart`."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests run with DDLBENCH_SLOW=1 only. Those marked `more` are left to `make test-more`.

    Quick tiers come first, so that one sees soon what is wrong. Where several processes share the
    tests the long ones come first, so that all end together; and the workflow's after the
    contract's, when the mini study, which most of them need, has been made for the study of
    everything.
    """
    tier = {item: item.path.relative_to(ROOT / "tests").parts[0] for item in items}
    if "PYTEST_XDIST_WORKER" in os.environ:
        groups, tiers = (
            list(TOGETHER),
            ("cuda_build", "pretended_gpu", "gpu", "contract", "workflow", "unit", "slurm"),
        )
        place = {
            item: groups.index(g) if (g := _together(item.nodeid)) else len(groups)
            for item in items
        }
        items.sort(key=lambda item: (place[item], tiers.index(tier[item])))
    else:
        items.sort(key=lambda item: TIERS.index(tier[item]))
    for item in items:
        if not SLOW and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test-all, or DDLBENCH_SLOW=1"))
