"""The recorder: what it leaves of a program's steps, what it costs, and that it does nothing where
nobody asks.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ddlbench.analysis import summary
from ddlbench.run.readings import Output, recorder

from tests.conftest import ROOT
from tests.unit.programs import failure, losses, made, make, spec, stopped

pytestmark = pytest.mark.usefixtures("handlers")

RECORDER = ROOT / "recorder"
LOOP = """
import os, sys, time
sys.path.insert(0, {recorder!r})
from ddlbench_recorder import Recorder
{before}
rec = Recorder()
def data():
    for n in range({steps}):
        time.sleep(0.02)
        yield n
for n in rec.batches(data()):
    time.sleep(0.01)
    {body}
rec.evaluated(top1=0.5)
"""
STEP = "rec.step(1 / (n + 1), samples=4, lr=0.1)"


def program(folder: Path, body: str = STEP, before: str = "", steps: int = 10) -> Path:
    """A loop that takes 20 ms for its data and 10 ms for the rest of a step."""
    path = folder / "loop.py"
    path.write_text(LOOP.format(recorder=str(RECORDER), body=body, before=before, steps=steps))
    return path


def test_its_steps_are_the_loops(tmp_path: Path) -> None:
    body = f"{STEP}\n    if n == 1: rec.holds(100 + rec.rank, 50, 200)"
    record = made(tmp_path, spec(program(tmp_path, body), 2, reads="recorder"))
    steps = record.steps
    assert steps["step"].tolist() == [step for step in range(10) for _ in range(2)]
    assert losses(record) == pytest.approx([1 / (n + 1) for n in range(10)])
    assert record.images == 80
    assert steps["lr"].unique().tolist() == [pytest.approx(0.1)]
    assert (steps["data_wait_s"] >= 0.02).all()
    assert (steps["forward_s"] >= 0.01).all()
    assert steps["data_wait_s"].median() < 0.02 + 0.9 * steps["end_s"].max() / 10
    of = summary.make(record)
    assert of["values"]["data_wait_s"] >= 0.02
    assert of["values"]["final_top1"] == 0.5
    state = [of["values"][f"{name}_bytes"] for name in ("parameters", "gradients", "optimizer")]
    assert state == [101, 50, 200]  # of the rank that has most
    assert 1e6 < of["values"]["peak_resident_bytes"] < 1e9
    assert all(
        "recorder" in of["why"][name]
        for name in ("forward_s", "backward_s", "optimizer_s", "compute_s")
    )


@pytest.mark.parametrize(
    ("body", "before", "says"),
    [
        ("pass", "", "rec.step"),
        (STEP, 'os.environ["WORLD_SIZE"] = "4"', "given 1 workers, but ran with 4"),
    ],
)
def test_no_steps_or_other_ranks_are_a_failure_that_says_which(
    tmp_path: Path, body: str, before: str, says: str
) -> None:
    code, place = make(tmp_path, spec(program(tmp_path, body, before), reads="recorder"))
    assert code == 1
    assert says in failure(place)["message"]


@pytest.mark.parametrize("loss", ["nan", "inf"])
def test_a_loss_that_is_no_number_fails_the_run(tmp_path: Path, loss: str) -> None:
    body = f"rec.step(float('{loss}') if n > 6 else 1.0, samples=4)"
    code, place = make(tmp_path, spec(program(tmp_path, body), reads="recorder"))
    assert (code, failure(place)["cause"], failure(place)["step"]) == (1, "loss is not finite", 7)


def test_it_is_asked_to_stop_and_goes_on_with_its_steps(tmp_path: Path) -> None:
    body = f"{STEP}; open(os.path.join(sys.argv[1], 'began'), 'w').close()"
    run = spec(
        program(tmp_path, f"{body}\n    if rec.asked_to_stop: sys.exit()", steps=60),
        reads="recorder",
        resume="x",
    )
    code, _ = stopped(tmp_path, run)
    assert code == 75
    steps = made(tmp_path, run).steps
    assert len(steps) > 60
    assert steps["step"].tolist() == list(range(len(steps)))
    gaps = steps["end_s"].diff().dropna() - steps["forward_s"] - steps["data_wait_s"]
    assert gaps.abs().max() < 0.5  # the clock stood still


ALONE = """
import atexit, ddlbench_recorder, signal, torch.distributed
torch.distributed.init_process_group("gloo")
atexit.register(torch.distributed.destroy_process_group)  # else Gloo's threads may outlive what they use: an abort
tensors = [torch.ones(6), torch.ones(2)]
assert ddlbench_recorder._bytes([*tensors, tensors[0][:2]]) == 32  # each storage once
"""


@pytest.mark.more
def test_all_ranks_stop_after_the_same_step_though_one_alone_was_asked(tmp_path: Path) -> None:
    body = (
        f"{STEP}\n    if rec.rank == n == 1: os.kill(os.getpid(), signal.SIGUSR1)\n    if"
        " rec.stops(5): break"
    )
    steps = made(tmp_path, spec(program(tmp_path, body, ALONE, 1000), 2, reads="recorder")).steps
    assert steps.groupby("rank")["step"].max().tolist() == [4, 4]


def module() -> ModuleType:
    """The file, read anew."""
    found = importlib.util.spec_from_file_location(
        "ddlbench_recorder", RECORDER / "ddlbench_recorder.py"
    )
    assert found and found.loader
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_elsewhere_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDLBENCH_RECORDER", raising=False)
    monkeypatch.chdir(tmp_path)
    before, threads = signal.getsignal(signal.SIGUSR1), threading.active_count()
    rec = module().Recorder()
    assert list(rec.batches([1, 2])) == [1, 2]
    rec.step(1.0, 2)
    rec.evaluated(top1=0.5)
    assert rec.asked_to_stop is False
    assert signal.getsignal(signal.SIGUSR1) is before
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []


def test_a_step_costs_less_than_20_microseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDLBENCH_RECORDER", str(tmp_path))
    rec, costs = module().Recorder(), []
    for _ in range(10):
        began = time.thread_time()
        for _ in rec.batches(range(2000)):
            rec.step(0.5, samples=4)
        costs.append((time.thread_time() - began) / 2000)
    rec._close()
    assert min(costs) < 20e-6


def test_a_row_that_was_cut_off_and_steps_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank was killed while it wrote, went on from an earlier step, and said so."""
    monkeypatch.setenv("DDLBENCH_RECORDER", str(tmp_path))
    first: Any = module().Recorder()
    for n in range(5):
        first.step(float(n), samples=8)
    first._close()
    with (tmp_path / "recorder-0.steps").open("ab") as file:
        file.write(b"cut off")
    again: Any = module().Recorder()
    for n in range(3, 7):
        again.step(10.0 + n, samples=8, step=n)
    again._close()
    made_of = recorder.read(Output(spec(tmp_path, reads="recorder"), tmp_path, tmp_path, []))
    assert [row.loss for row in made_of.rows] == [0.0, 1.0, 2.0, 13.0, 14.0, 15.0, 16.0]
    assert "rec.batches" in made_of.not_known["data_wait_s"]
    assert made_of.rows[-1].end_s < 1.0


class Gpu:
    """Stands in for torch and a GPU that is `behind` marks behind: marks are 10 ms apart, and
    waiting is counted.
    """

    def __init__(self) -> None:
        self.marks, self.behind, self.waits, self.kept = 0, 1 << 30, 0, {}
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None: ...

            def record(self) -> None:
                gpu.marks += 1
                self.at = gpu.marks

            def query(self) -> bool:
                return self.at <= gpu.marks - gpu.behind

            def synchronize(self) -> None:
                gpu.waits += 1

            def elapsed_time(self, other: Any) -> float:
                return float(10 * (other.at - self.at))

        of_memory = {"max_memory_allocated": lambda: 7, "max_memory_reserved": lambda: 8}
        self.cuda = SimpleNamespace(Event=Event, is_initialized=lambda: True, **of_memory)

    def empty(self, size: int, pin_memory: bool) -> Gpu:
        assert pin_memory
        return self

    def __getitem__(self, place: int) -> SimpleNamespace:
        def copy(value: float, non_blocking: bool) -> None:
            assert non_blocking
            self.kept[place] = value

        return SimpleNamespace(copy_=copy, item=lambda: self.kept[place])


def test_no_step_waits_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times and losses are read when the GPU has come so far, and what is still on its way at the
    end.
    """
    gpu = Gpu()
    monkeypatch.setitem(sys.modules, "torch", gpu)
    monkeypatch.setenv("DDLBENCH_RECORDER", str(tmp_path))
    rec: Any = module().Recorder()
    for n in rec.batches(range(100)):
        gpu.behind = 1 << 30 if n < 50 else 20
        rec.step(SimpleNamespace(is_cuda=True, detach=lambda n=n: float(n)), samples=8)
    assert gpu.waits == 0
    settled = len(rec._done)
    rec._close()
    made_of = recorder.read(Output(spec(tmp_path, reads="recorder"), tmp_path, tmp_path, []))
    assert settled < 100
    assert [row.loss for row in made_of.rows] == [float(n) for n in range(100)]
    assert [round(row.forward_s, 3) for row in made_of.rows[1:]] == [0.01] * 99
    assert [round(row.data_wait_s, 3) for row in made_of.rows[1:]] == [0.01] * 99
    assert made_of.rows[-1].end_s == pytest.approx(2 * 0.99 + 0.01, abs=0.1)
    assert (
        made_of.ranks[0]["peak_device_memory_bytes"],
        made_of.ranks[0]["peak_device_reserved_bytes"],
    ) == (7, 8)


def test_it_is_a_wheel_of_one_file(tmp_path: Path) -> None:
    shutil.copytree(RECORDER, tmp_path / "recorder")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "-w", tmp_path, tmp_path / "recorder"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    done = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True
    )
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert [name for name in names if "dist-info" not in name] == ["ddlbench_recorder.py"]
    assert wheel.name.startswith("ddlbench_recorder-0.1.0-py3-none-any")
