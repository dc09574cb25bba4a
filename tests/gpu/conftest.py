"""`make gpu-check`: says what was tried on this GPU, one line each: passed, failed, or not asked
and why.

It is said where DDLBENCH_GPU_TIER names the device, as the Makefile does, for the tests of this
folder and of `tests/pretended_gpu`.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from ddlbench.core import registry

DEVICE = os.environ.get("DDLBENCH_GPU_TIER")
TIERS = ("tests/gpu/", "tests/pretended_gpu/")
PASSED, FAILED, NOT_ASKED = "passed", "failed", "not asked"
WORDS = {"passed": PASSED, "failed": FAILED, "error": FAILED, "skipped": NOT_ASKED}
NO_GPU = "on a CPU: this tries the check itself, and says nothing about a GPU"


class Tried(NamedTuple):
    """A test, what became of it, and why or with which numbers."""

    what: str
    outcome: str
    why: str = ""


def pytest_sessionstart(session: pytest.Session) -> None:
    """End at once where a GPU is to be checked and there is none."""
    if DEVICE is None:
        return
    if DEVICE not in ("cuda", "cpu"):
        pytest.exit(f"gpu-check: DEVICE={DEVICE}: allowed: cuda, cpu", 2)
    import torch

    if DEVICE == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda or "no CUDA"
        advice = "nvidia-smi says whether there is one; DEVICE=cpu tries the check itself"
        pytest.exit(
            f"gpu-check: torch {torch.__version__} (built with {built}) sees no GPU: {advice}", 2
        )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if DEVICE is None:
        return
    tried = list(results(terminalreporter.stats))
    terminalreporter.section(f"gpu-check: {device()}")
    for line in lines(tried):
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A check in which no test passed has shown nothing, and fails."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        DEVICE
        and exitstatus == pytest.ExitCode.OK
        and reporter
        and not reporter.stats.get("passed")
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def results(stats: dict[str, list[Any]]) -> Iterator[Tried]:
    """What became of each test, from the reports by outcome that pytest's terminal keeps."""
    for outcome, word in WORDS.items():
        for report in stats.get(outcome, []):
            if not report.nodeid.startswith(TIERS) or (
                outcome == "passed" and report.when != "call"
            ):
                continue
            if word == NOT_ASKED:
                _, _, why = report.longrepr
                why = why.removeprefix("Skipped: ")
            elif word == FAILED:
                crash = getattr(report.longrepr, "reprcrash", None)
                why = crash.message if crash is not None else str(report.longrepr)
            else:
                why = ", ".join(f"{name}: {value}" for name, value in report.user_properties)
            yield Tried(in_words(report.nodeid), word, " ".join(why.split()))


def in_words(nodeid: str) -> str:
    """`gpu: a stream goes on [native-raw]`, from
    `tests/gpu/test_gpu.py::test_a_stream_goes_on[native-raw]`.
    """
    path, _, test = nodeid.partition("::")
    function, bracket, parameters = test.partition("[")
    words = function.removeprefix("test_").replace("_", " ")
    return f"{path.split('/')[1]}: {words}{' ' if bracket else ''}{bracket}{parameters}"


def lines(tried: list[Tried]) -> list[str]:
    """One line per test, the failed ones last, where people look first; then how many there are of
    each.
    """
    order = [PASSED, NOT_ASKED, FAILED]
    rows = sorted(tried, key=lambda one: order.index(one.outcome))
    counts = ", ".join(f"{sum(one.outcome == word for one in tried)} {word}" for word in order)
    return [
        *(f"{one.outcome:9}  {one.what}{'  ' if one.why else ''}{one.why}" for one in rows),
        counts,
    ]


def device() -> str:
    """What was checked, and with which versions."""
    import torch

    versions = [f"torch {torch.__version__}"]
    if DEVICE == "cpu":
        return ", ".join([NO_GPU, *versions])
    versions.append(f"CUDA {torch.version.cuda}")
    versions.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    for name in ("deepspeed", "horovod", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "spdl-core"):
        if release := registry.release(name):
            versions.append(f"{name} {release}")
    return ", ".join([torch.cuda.get_device_name(), *versions])
