"""A run that fails ends soon and non-zero, leaves no process and nothing that looks like a record."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from ddlbench import launch

from tests.contract import launches
from tests.contract.launches import FRAMEWORKS

ENDS_WITHIN_S = 60
# DataLoader's worker processes look for their parent every five seconds.
LINGER_S = 8


def assert_failed(outcome: launches.Outcome) -> None:
    assert_gone(outcome.marker)
    assert outcome.code != 0
    assert outcome.seconds < ENDS_WITHIN_S
    assert [p.name for p in outcome.folder.iterdir()] == ["failed"]
    assert (outcome.folder / "failed" / "job.json").is_file()


def assert_gone(marker: str) -> None:
    deadline = time.monotonic() + LINGER_S
    while (left := launches.survivors(marker)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:  # the test fails, and still leaves nothing behind
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_raises_while_others_wait(tmp_path, data, framework):
    spec = launches.spec_of("plain", framework, 2)
    launches.need(spec)
    outcome = launches.execute(spec, tmp_path / spec.id, data, environment={"PROBE_FAILS": "1"})
    assert_failed(outcome)
    assert "the probe fails, as it was told to" in outcome.output
    assert (outcome.folder / "failed" / "run.mllog").is_file()  # how far it came


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_is_told_to_end(tmp_path, data, framework):
    """SIGTERM, as from Snakemake or a queue at its time limit, in the midst of training."""
    spec = replace(launches.spec_of("plain", framework, 2), epochs=10_000)
    launches.need(spec)
    folder = tmp_path / spec.id
    process, marker = launches.start(spec, folder, data)
    log, deadline = folder / ".partial" / "run.mllog", time.monotonic() + ENDS_WITHIN_S
    while not (log.is_file() and "epoch_start" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(launches.survivors(marker)) > spec.workers  # the search finds processes while there are some
    process.terminate()
    assert_failed(launches.finish(spec, folder, process, marker))


def test_data_is_missing(tmp_path):
    spec = launches.spec_of("plain", "ddp", 2)
    outcome = launches.execute(spec, tmp_path / spec.id, tmp_path / "nowhere")
    assert_failed(outcome)
    assert str(tmp_path / "nowhere" / "raw" / "manifest.json") in outcome.output


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_another_number_of_ranks_is_refused(tmp_path, data, framework):
    spec = launches.spec_of("plain", framework, 2)
    launches.need(spec)
    alone = launch.command(replace(spec, workers=1), launches.local_machine())
    outcome = launches.execute(spec, tmp_path / spec.id, data, command=alone)
    assert_failed(outcome)
    assert "rank 0 was promised 2 workers and finds 1" in outcome.output
