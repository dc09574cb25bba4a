"""The tiers that need a GPU: `tests/gpu`, and `tests/pretended_gpu`, whose tests hold real GPUs to the same.

They train with every framework, loader and precision, through an overflow, a stop and a profile; they count waits.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ddlbench.commands.gpucheck import FAIL, PASS, SKIPPED, Outcome, judged
from ddlbench.commands.gpucheck._bench import Bench, last_words
from ddlbench.core import registry

LIMIT_S = 840


def check(bench: Bench) -> Iterator[Outcome]:
    """One row per tier: how pytest ended."""
    clone = Path(__file__).parents[4]
    if not (clone / "tests/gpu").is_dir() or not registry.importable("pytest"):
        yield Outcome(
            "tests/gpu", SKIPPED, f"no {clone}/tests/gpu, or no pytest: run it from a clone, after make install"
        )
        return
    for tier in ("gpu",) if bench.device == "cpu" else ("gpu", "pretended_gpu"):
        command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", str(clone / "tests" / tier)]
        log = bench.folder / f"{tier}.log"
        code, text = bench.call(command, log, DDLBENCH_GPU_TIER=bench.device, DDLBENCH_SLOW="1")
        row = judge(code, text, f"tests/{tier}")
        yield replace(row, compared=f"{row.compared}; {log}") if row.verdict == FAIL else row


def judge(code: int, text: str, tier: str) -> Outcome:
    """pytest's exit code and output as a row. Where none passed or one failed it says what was skipped and failed."""
    summary = last_words(text)
    verdict = SKIPPED if code == 0 and " passed" not in summary else judged(code == 0)
    why = re.findall(r"^(?:SKIPPED|FAILED|ERROR) .+$", text, re.M) if verdict != PASS else []
    return Outcome(tier, verdict, "; ".join([f"expected: none fails; {summary}", *dict.fromkeys(why)]))
