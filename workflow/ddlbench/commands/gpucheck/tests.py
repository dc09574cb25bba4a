"""The tests of the tier `tests/gpu`: every framework with every loader learns on a GPU."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ddlbench.commands.gpucheck import FAIL, SKIPPED, Row, judged
from ddlbench.commands.gpucheck._bench import Bench
from ddlbench.core import registry

LIMIT_S = 600


def check(bench: Bench) -> Iterator[Row]:
    """One row: how pytest ended."""
    folder = Path(__file__).parents[4] / "tests/gpu"
    if not folder.is_dir() or not registry.importable("pytest"):
        yield Row("tests/gpu", SKIPPED, f"no folder {folder}, or no pytest: run it from a clone, after make install")
        return
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", str(folder)]
    own = bench.environment() | {"DDLBENCH_GPU_TIER": bench.device}
    done = subprocess.run(command, capture_output=True, text=True, env=own, cwd=folder.parents[1])
    log = bench.folder / "pytest.log"  # tests.log is what this part itself says
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    row = judge(done.returncode, done.stdout)
    yield replace(row, compared=f"{row.compared}; {log}") if row.verdict == FAIL else row


def judge(code: int, said: str) -> Row:
    """pytest's exit code and output as a row."""
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", said)}
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or f"pytest ended with {code}"
    if code == 0 and not counts.get("passed"):
        reasons = re.findall(r"^SKIPPED \[\d+\] [^:]+(?::\d+)?: (.+)$", said, re.M)
        return Row("tests/gpu", SKIPPED, "; ".join(dict.fromkeys(reasons)) or summary)
    failed = dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", said, re.M))
    compared = "; ".join([f"{summary}; expected: none fails", *([f"failed: {', '.join(failed)}"] if failed else [])])
    return Row("tests/gpu", judged(code == 0), compared, counts.get("passed"), "tests")
