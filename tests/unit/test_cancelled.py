"""Cancelled and pre-empted SLURM jobs: what Snakemake's plugin is told of them."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest
from ddlbench.run import cancelled


def squeue(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    (folder / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_state_is_its_first_word() -> None:
    said = {"1": "CANCELLED by 0", "2": "CANCELLED", "3": "RUNNING", "4": "COMPLETED", "5": "OUT_OF_MEMORY"}
    assert cancelled.ended_states(said) == said | {"1": "CANCELLED"}


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("echo 7", "PREEMPTED"),  # queued again, or about to be
        ("true", "CANCELLED"),  # PreemptMode=CANCEL
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "PREEMPTED"),
    ],
)
def test_a_preempted_job_has_ended_when_it_left_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str
) -> None:
    squeue(monkeypatch, tmp_path, script)
    assert cancelled.ended_states({"7": "PREEMPTED", "8": "RUNNING"}) == {"7": state, "8": "RUNNING"}


def test_the_plugin_itself_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = pytest.importorskip(cancelled.PLUGIN)
    monkeypatch.setattr(plugin, "query_job_status", plugin.query_job_status)  # put back after the test
    ask = "printf '7|CANCELLED by 0\\n8|RUNNING\\n'"
    logger = logging.getLogger()
    before, _ = asyncio.run(plugin.query_job_status(ask, logger))
    assert before == {"7": "CANCELLED by 0", "8": "RUNNING"}  # if this fails, the plugin has been mended: remove ours
    for _ in range(2):
        cancelled.mend_plugin()
        after, _ = asyncio.run(plugin.query_job_status(ask, logger))
        assert after == {"7": "CANCELLED", "8": "RUNNING"}
    assert asyncio.run(plugin.query_job_status("false", logger)) == (None, None)
