"""What a preflight measures on a node, and what is kept of it; `test_preflight.py` has what is made
of that.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import notes
from ddlbench.data.prepare import write_form
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.preflight import promise, scout
from ddlbench.preflight.judge import judge
from ddlbench.run.facts import cite
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS, LAPTOP
from tests.facts import missing
from tests.sources import some


def test_clock_offsets_are_within_their_uncertainty() -> None:
    """A clock 2 s ahead, trips of 1 to 3 ms, of which the way there takes any part; one trip met a
    pause.
    """
    trips = []
    for i in range(51):
        sent, length, there = i * 0.1, 0.001 + i % 3 * 0.001, (i * 7 % 11) / 10
        trips.append((sent, sent + length * there + 2.0, sent + length))
    trips[7] = (0.7, 3.2, 1.2)
    found = scout.clock_offset(trips)
    assert abs(found["offset_s"] - 2.0) <= found["uncertainty_s"] <= 0.0015
    assert found["trips"] == 51


CLOCKS = """
import json, sys, time
from datetime import timedelta
import torch.distributed as dist
from ddlbench.preflight import scout
rank = int(sys.argv[1])
dist.init_process_group("gloo", f"file://{sys.argv[2]}", rank=rank, world_size=2, timeout=timedelta(seconds=60))
ahead = 1.5 * rank
print(json.dumps(scout.clocks(rank, {"a": 0, "b": 1}, lambda: time.time() + ahead)))
dist.destroy_process_group()
"""


def test_two_processes_measure_their_clocks(tmp_path: Path) -> None:
    """One pretends that it is 1.5 s later."""
    argv = [sys.executable, "-c", CLOCKS]
    both = [
        subprocess.Popen(
            [*argv, str(rank), str(tmp_path / "meet")], stdout=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    said = [json.loads(process.communicate(timeout=100)[0]) for process in both]
    assert said[1] == {}
    found = said[0]["b"]
    assert found["uncertainty_s"] > 0
    assert abs(found["offset_s"] - 1.5) <= found["uncertainty_s"] + 1e-3


def test_reading_says_how_much_and_whether_it_was_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scout, "READ_S", 100.0)  # to its end, on any disk
    for form in ("raw", "tfrecord"):
        manifest = write_form(lambda: some(60, 20), "some", form, tmp_path / form)
        files = (
            80 if form == "raw" else sum(len(split.sha256) for split in manifest.splits.values())
        )
        found = scout.read_rate(tmp_path / form)
        assert found["bytes"] == sum(split.bytes for split in manifest.splits.values())
        assert found["files"] == files
        assert found["bytes_per_s"] == found["bytes"] / found["seconds"] > 0
        assert found["cached_share"] is None or 0 <= found["cached_share"] <= 1


def test_cached_pages_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 << 20))
    with path.open("rb") as file:
        assert scout._cached(file.fileno(), 8 << 20) == 1
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = scout._cached(file.fileno(), 8 << 20)
        assert share is not None
        if share:
            pytest.skip("this file system keeps what it is asked to forget")
        os.pread(file.fileno(), 4 << 20, 0)
        # Or more than was asked for: read-ahead.
        assert (scout._cached(file.fileno(), 8 << 20) or 0) > 0.4
        assert scout._cached(file.fileno(), 0) == 0


# Keeping


def test_a_record_cites_the_preflight_before_it(tmp_path: Path) -> None:
    file = tmp_path / "preflight.json"
    found = {
        "time": time.time(),
        "problems": [{"error": False, "text": "slow"}],
        "ranks": [],
        "promised": {},
    }
    file.write_text(json.dumps(found))
    assert cite(file) == {
        "path": str(file),
        "sha256": (
            subprocess.run(["sha256sum", file], capture_output=True, text=True).stdout.split()[0]
        ),
        "time": found["time"],
        "warnings": ["slow"],
    }


def test_a_preflight_is_current_for_what_it_was_made_for(
    paper: Plan, promised: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = replace(
        paper.study, blocks=(replace(paper.study.blocks[0], loaders=("synthetic",)),), figures=()
    )
    of = make_plan(small, JUWELS)
    assert not promise.is_current(of)
    file = Path(promise.path(of))
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert not promise.is_current(of)
    file.write_text(json.dumps({"promised": promise.expected_settings(of)}))
    assert promise.is_current(of)
    assert promise.is_current(make_plan(small, replace(JUWELS, images_per_s=())))
    assert not promise.is_current(make_plan(small, replace(JUWELS, cores_per_worker=6)))
    assert not promise.is_current(make_plan(small, replace(JUWELS, modules=())))


def test_hardware_threads_of_one_core_are_one_core(tmp_path: Path) -> None:
    """Four cores with two threads each, which Linux numbers 0 and 4, 1 and 5, ..."""
    for thread in range(8):
        topology = tmp_path / f"cpu{thread}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{thread % 4},{thread % 4 + 4}\n")
    assert scout.cores([0, 4, 1, 5], tmp_path) == [0, 1]
    assert scout.cores([4, 5, 6, 7], tmp_path) == [0, 1, 2, 3]
    assert scout.cores([0, 1], tmp_path / "nowhere") == [0, 1]


def test_what_frameworks_need_is_promised_once_for_all_their_runs() -> None:
    study = load_study("frameworks")
    of = promise.expected_settings(make_plan(study, LAPTOP))
    names = [name for name, _ in of["frameworks"]]
    assert names.count("deepspeed") == 4 and names.count("ddp") == 2
    assert of["models"] == [["lenet", 32]]
    assert json.loads(json.dumps(of)) == of  # else each look at it would ask for a new preflight


@pytest.mark.more
def test_models_are_asked_for_the_studys_picture_sizes(tmp_path: Path) -> None:
    """By all ranks together, before training; the line goes to people as it is."""
    study, machine = load_study("frameworks"), LAPTOP
    of = promise.expected_settings(make_plan(study, machine)) | {
        "workers": 1,
        "data": str(tmp_path),
        "manifests": [],
    }
    (tmp_path / scout.PROMISED).write_text(
        json.dumps(of | {"models": [["lenet", 8], ["lenet", 32]]})
    )
    alone = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    argv = [sys.executable, "-m", "ddlbench.preflight.scout", str(tmp_path)]
    subprocess.run(argv, env=os.environ | alone, check=True, timeout=200)
    (facts,) = notes.read(tmp_path, "rank").values()
    said = [str(problem) for problem in judge([facts], of) if "model" in problem.text]
    (text,) = said
    assert missing(text, "error: ", "model lenet", "8 pixels") == []
