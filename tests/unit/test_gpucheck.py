"""The check of one GPU: its parts, limits, verdicts and table; whole, on a CPU with small sizes (slow)."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ddlbench.commands.gpucheck import FAIL, MEASURED, PARTS, PASS, SKIPPED, VERDICTS, Outcome, tests, throughput
from ddlbench.commands.gpucheck import __main__ as check
from ddlbench.commands.gpucheck._bench import Bench, RunFailedError
from ddlbench.core import registry

from tests.conftest import ROOT


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench("cpu", tmp_path, tiny=True)


def test_every_file_is_a_part_and_all_fit_the_time_that_is_promised() -> None:
    assert sorted(PARTS) == sorted(registry.members("gpucheck"))
    limits = [registry.member("gpucheck", part).LIMIT_S for part in PARTS]
    page = (ROOT / "docs/gpus.md").read_text(encoding="utf-8")
    assert re.findall(r"at most (\d+) minutes", page) == [str(round(sum(limits) / 60))]
    (asked,) = re.findall(r"^make gpu-check .*--time=(\d+)", page, re.M)
    assert int(asked) > sum(limits) / 60
    assert all(registry.docstring("gpucheck", part) for part in PARTS)


def test_throughput_tries_what_studies_use() -> None:
    gpu = Bench("cuda", Path())
    made = throughput.runs(gpu)
    assert {spec.adapter for spec in made.values()} == set(registry.members("frameworks"))
    assert {spec.option("zero_stage") for spec in made.values() if spec.adapter == "deepspeed"} == {0, 1, 2, 3}
    assert registry.member("datasets", "synthetic-imagenet").IMAGES["train"] % gpu.spec().global_batch  # as real ones
    made |= throughput.loaders(gpu)
    assert {spec.loader for spec in made.values()} == set(registry.members("loaders"))
    assert len({spec.id for spec in made.values()}) == len(made)
    for spec in made.values():
        assert (spec.model, spec.device, spec.recipe.image_size) == ("resnet50", "cuda", 224)
        assert type(spec).from_json(spec.to_json()) == spec


def test_what_cannot_be_made_is_skipped_with_its_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.lacks(bench.spec()) is None
    assert bench.command(bench.spec("horovod"))[-3:] == ["python", "-m", "ddlbench.train"]
    for of_gpus in (bench.spec(precision="tf32"), bench.spec(options={"cudnn_benchmark": True})):
        assert bench.lacks(of_gpus) == "tf32 and cudnn_benchmark are of GPUs only"
    assert bench.lacks(bench.spec(loader="dali-gpu")) == "loader dali-gpu needs device cuda"
    monkeypatch.setattr(registry, "importable", lambda package: package != "horovod")
    assert "horovod is not installed" in str(bench.lacks(bench.spec("horovod")))


# --- verdicts


def gpu_rate(rate: float, gpu: str | None, precision: str = "fp16", last: bool = True) -> Outcome:
    spec = Bench("cuda", Path()).spec(precision=precision, options={"channels_last": True} if last else {})
    return throughput.compare("a run", rate, gpu, spec)


@pytest.mark.parametrize(("rate", "verdict"), [(0.75 * 2470, PASS), (0.74 * 2470, FAIL), (3400, PASS), (1e-9, FAIL)])
def test_a_rate_is_judged_by_what_was_published_of_the_same_kind(rate: float, verdict: str) -> None:
    row = gpu_rate(rate, "NVIDIA A100-SXM4-40GB")
    assert row.verdict == verdict
    assert f"{rate / 2470:.0%} of 2470 (NVIDIA, PyTorch and DALI, A100 80 GB)" in row.compared
    assert "MLPerf" in row.compared


@pytest.mark.parametrize(
    ("gpu", "precision", "last", "said"),
    [
        (None, "fp16", True, "a CPU"),
        ("NVIDIA L4", "fp16", True, "published here for NVIDIA L4"),
        ("NVIDIA A100-SXM4-40GB", "bf16", True, "no rate in bf16"),
        ("NVIDIA A100-SXM4-40GB", "fp16", False, "of 2470"),  # made another way: beside it, not judged by it
    ],
)
def test_a_rate_without_its_like_is_only_measured(gpu: str | None, precision: str, last: bool, said: str) -> None:
    row = gpu_rate(100.0, gpu, precision, last)
    assert row.verdict == MEASURED
    assert said in row.compared


def of_power(power_w: float | None, limit_w: float | None = 400.0, column: str = "device_energy_j") -> Outcome:
    rank = {column: None if power_w is None else 10 * power_w, "wall_s": 10.0, "device_power_limit_w": limit_w}
    said = {"ddlbench_ranks": [rank], "ddlbench_not_measured": {column: "no counter"}}
    record: Any = SimpleNamespace(value=lambda key, otherwise=None: said[key])
    return throughput.power(record, column, "power")


@pytest.mark.parametrize(("power", "verdict"), [(300, PASS), (439, PASS), (441, FAIL), (79, FAIL), (3e5, FAIL)])
def test_a_power_is_plausible_below_the_limit(power: float, verdict: str) -> None:
    assert of_power(power).verdict == verdict
    assert of_power(power, column="host_energy_j").verdict == MEASURED
    assert (of_power(None).verdict, of_power(None).compared) == (SKIPPED, "no counter")


SKIPS = "SKIPPED [20] tests/gpu/test_gpu.py:28: no GPU: torch.cuda.is_available() is false\n20 skipped in 1.9s\n"
FAILED = "FAILED tests/gpu/test_gpu.py::test_one_gpu_learns[ddp-dali-gpu-raw] - out of memory\n"


@pytest.mark.parametrize(
    ("code", "said", "verdict", "compared"),
    [
        (0, "20 passed in 60s\n", PASS, "20 passed in 60s"),
        (0, SKIPS, SKIPPED, "no GPU: torch.cuda.is_available() is false"),
        (1, f"{FAILED}1 failed in 60s\n", FAIL, "1 failed in 60s; FAILED tests/gpu/test_gpu.py::"),
        (3, "INTERNALERROR\n", FAIL, "INTERNALERROR"),
    ],
)
def test_how_pytest_ended_is_understood(code: int, said: str, verdict: str, compared: str) -> None:
    row = tests.judge(code, said, "tests/gpu")
    assert row.verdict == verdict
    assert compared in row.compared


# --- the whole


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`part(rows, error)`: what the part `machine` gives from here on."""

    def stand_in(*verdicts: str, error: Exception | None = None) -> None:
        def given(bench: Bench) -> Iterator[Outcome]:
            yield from (Outcome(f"row {n}", verdict, "why", 1.5, "s") for n, verdict in enumerate(verdicts))
            if error is not None:
                raise error

        monkeypatch.setattr(registry.member("gpucheck", "machine"), "check", given)

    return stand_in


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ((PASS, MEASURED, SKIPPED), PASS),
        ((PASS, FAIL, PASS), FAIL),
        ((SKIPPED, MEASURED), FAIL),  # nothing was shown
        ((), FAIL),  # not even a row
    ],
)
def test_one_failed_row_fails_the_check(
    bench: Bench, part: Any, verdicts: tuple[str, ...], whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    part(*verdicts)
    assert check.run(bench, ["machine"]) == whole
    said = json.loads((bench.folder / "gpu-check.json").read_text())
    assert said["verdict"] == whole
    assert [row["verdict"] for row in said["rows"]] == list(verdicts or [FAIL])
    assert "no number of it says anything about a GPU" in said["note"]
    printed = capsys.readouterr().out
    assert printed.count("  not judged: machine, row ") == sum(v in (SKIPPED, MEASURED) for v in verdicts)
    assert "gpu-check on cpu" in printed


def test_a_part_that_fails_keeps_its_rows_and_says_why(bench: Bench, part: Any) -> None:
    part(PASS, error=OSError("no more room"))
    first, last = check.rows_of(bench, "machine")
    assert (first.verdict, last.verdict, last.compared) == (PASS, FAIL, "OSError: no more room")


def test_what_a_part_started_ends_with_its_time(bench: Bench) -> None:
    child, log = bench.folder / "child", bench.folder / "run.log"
    program = "import subprocess, sys, time; process = subprocess.Popen(['sleep', '60']); "
    program += f"open({str(child)!r}, 'w').write(str(process.pid)); time.sleep(60)"
    began = time.monotonic()
    with pytest.raises(RunFailedError, match="the time of this part is over"):
        bench.until(5).call([sys.executable, "-c", program], log)
    assert time.monotonic() - began < 30
    for _ in range(50):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(int(child.read_text())).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.1)
                continue
        return
    pytest.fail("what the part started still runs")


def test_it_does_not_start_where_it_would_say_nothing(bench: Bench) -> None:
    assert check.cannot_start(bench) is None
    (bench.folder / "gpu-check.json").touch()
    assert "is not empty" in str(check.cannot_start(bench))
    torch = pytest.importorskip("torch")
    assert torch.cuda.is_available() or str(check.cannot_start(Bench("cuda", bench.folder))).startswith("no GPU: torch")


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    folder = tmp_path / "check"
    command = ["make", "gpu-check", "DEVICE=cpu", f"CHECK=--folder {folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = json.loads((folder / "gpu-check.json").read_text())
    assert [row for row in said["rows"] if row["verdict"] == FAIL] == []
    assert (done.returncode, said["verdict"]) == (0, "PASS"), done.stdout + done.stderr
    assert {row["part"] for row in said["rows"]} == set(PARTS)
    assert {row["verdict"] for row in said["rows"]} <= set(VERDICTS)
    assert said["note"] in done.stdout
    for row in said["rows"]:
        assert row["compared"]
        assert row["what"] in done.stdout
