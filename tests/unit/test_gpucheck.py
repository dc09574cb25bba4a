"""The check of one GPU: its parts, limits, verdicts and table; whole, on a CPU with small sizes (slow)."""

import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from ddlbench.commands.gpucheck import (
    FAIL,
    MEASURED,
    PARTS,
    PASS,
    SKIPPED,
    VERDICTS,
    Row,
    energy,
    loaders,
    overflow,
    syncs,
    tests,
    throughput,
)
from ddlbench.commands.gpucheck import __main__ as check
from ddlbench.commands.gpucheck._bench import Bench, last_words
from ddlbench.core import registry

from tests.conftest import ROOT


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench("cpu", tmp_path)


@pytest.fixture
def gpu(tmp_path: Path) -> Bench:
    return Bench("cuda", tmp_path)


def test_every_file_is_a_part_and_all_fit_their_limits() -> None:
    assert sorted(PARTS) == sorted(registry.members("gpucheck"))
    assert len(set(PARTS)) == len(PARTS)
    for part in PARTS:
        assert registry.docstring("gpucheck", part)
        assert 0 < registry.member("gpucheck", part).LIMIT_S <= 600


def test_throughput_tries_each_way_with_and_without_the_search_of_cudnn(gpu: Bench) -> None:
    made = throughput.runs(gpu)
    assert len(made) == 14
    for what, spec in made.items():
        assert spec.option("cudnn_benchmark") is what.endswith(", cudnn_benchmark")
    assert len({spec.id for spec in made.values()}) == 14


@pytest.mark.parametrize("part", [syncs, loaders, throughput])
def test_runs_of_a_gpu_are_those_of_the_issue(part: Any, gpu: Bench) -> None:
    for spec in part.runs(gpu).values():
        assert (spec.model, spec.device, spec.recipe.image_size, spec.global_batch) == ("resnet50", "cuda", 224, 200)
        assert type(spec).from_json(spec.to_json()) == spec


def test_a_run_is_made_by_the_run_path_of_studies(bench: Bench) -> None:
    spec = bench.spec("horovod")
    argv = bench.command(spec, "plain")
    assert argv[1:3] == ["-m", "ddlbench.run"]
    assert argv[-3:] == ["python", "-m", "ddlbench.train"]
    assert "horovodrun" in argv
    assert bench.command(spec, "plain", "count")[-3:] == ["-m", "ddlbench.commands.gpucheck._ranks", "count"]


def test_steps_of_synthetic_pictures_are_all_alike(gpu: Bench) -> None:
    images = registry.member("datasets", "synthetic-imagenet").IMAGES
    assert images["train"] % gpu.spec().global_batch == 0
    assert images["val"] % gpu.spec().global_batch == 0


def test_what_cannot_be_made_is_skipped_with_its_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.lacks(bench.spec()) is None
    for of_gpus in (bench.spec(precision="tf32"), bench.spec(options={"cudnn_benchmark": True})):
        assert bench.lacks(of_gpus) == "tf32 and cudnn_benchmark are of GPUs only"
    assert bench.lacks(bench.spec(loader="dali-gpu")) == "loader dali-gpu needs device cuda"
    monkeypatch.setattr(registry, "importable", lambda package: package != "horovod")
    assert "horovod is not installed" in str(bench.lacks(bench.spec("horovod")))


# --- verdicts


def gpu_rate(
    rate: float, gpu: str | None, precision: str = "fp16", last: bool = True, bench: Bench | None = None
) -> Row:
    bench = bench or Bench("cuda", Path())
    spec = bench.spec(precision=precision, options={"channels_last": True} if last else {})
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


def test_published_rates_have_their_sources() -> None:
    rows = throughput.published()
    assert len(rows) >= 5
    for row in rows:
        assert float(row["images_per_s"]) > 0
        assert row["source"]
        assert row["of"]
        assert row["judged"] in ("", "contiguous", "channels last")
        assert row["precision"] in ("fp32", "tf32", "bf16", "fp16")


@pytest.mark.parametrize(
    ("device", "precision", "waits", "verdict"),
    [
        ("cuda", "bf16", 0, PASS),
        ("cuda", "bf16", 1, FAIL),
        ("cuda", "fp16", 0, PASS),
        ("cuda", "fp16", 5, FAIL),
        ("cpu", "fp16", 5, PASS),  # the loss scaler's own, where optimizers are not fused
        ("cpu", "fp16", 10, FAIL),
        ("cpu", "bf16", 5, FAIL),
    ],
)
def test_a_step_makes_the_host_wait_for_nothing(device: str, precision: str, waits: int, verdict: str) -> None:
    spec = Bench(device, Path()).spec(precision=precision)
    row = syncs.judge("ddp", spec, waits, 5, {"value of a tensor read": waits})
    assert (row.verdict, row.value) == (verdict, waits / 5)


USUAL = [3.0, 2.5, 2.0, 1.5, 1.2, 1.0, 0.9]


@pytest.mark.parametrize(
    ("usual", "after", "verdict"),
    [
        ((USUAL, 0), ([3.0, 3.0, 2.5, 2.0, 1.5, 1.2, 1.0], 1), PASS),
        ((USUAL, 0), ([3.0, 3.0, 2.5, 2.0, 1.5, 1.2, 1.0], 0), FAIL),  # nothing was left out
        ((USUAL, 0), ([3.0, 3.0, 9.9, 2.0, 1.5, 1.2, 1.0], 1), FAIL),  # momentum of rubbish
        ((USUAL, 0), ([3.0, 3.0, float("nan"), 2.0, 1.5, 1.2, 1.0], 1), FAIL),
        # The scale was too large at first, in both runs: the step that overflowed lowered it too.
        (([3.0, *USUAL], 1), ([3.0, *USUAL], 1), PASS),
        ((USUAL, 0), ([3.0, 3.0, *USUAL], 2), PASS),
        ((USUAL, 0), ([3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.5], 5), FAIL),  # hardly a step was made
    ],
)
def test_after_an_overflow_losses_go_on(
    usual: tuple[list[float], int], after: tuple[list[float], int], verdict: str
) -> None:
    row = overflow.judge("ddp", usual, after)
    assert row.verdict == verdict
    json.dumps(asdict(row), allow_nan=False)


@pytest.mark.parametrize(("power", "verdict"), [(300, PASS), (439, PASS), (441, FAIL), (79, FAIL), (3e5, FAIL)])
def test_a_power_is_plausible_below_the_limit(power: float, verdict: str) -> None:
    assert energy.judge("power of GPU", power, 400.0).verdict == verdict
    assert energy.judge("power of CPUs", power, None).verdict == MEASURED


SKIPS = "SKIPPED [20] tests/gpu/test_gpu.py:28: no GPU: torch.cuda.is_available() is false\n20 skipped in 1.9s\n"
LEARNS = "test_one_gpu_learns[ddp-dali-gpu-raw]"
FAILED = f"FAILED tests/gpu/test_gpu.py::{LEARNS} - AssertionError: out of memory\n"


@pytest.mark.parametrize(
    ("code", "said", "verdict", "compared"),
    [
        (0, "20 passed in 60s\n", PASS, "20 passed; expected: none fails"),
        (0, SKIPS, SKIPPED, "no GPU: torch.cuda.is_available() is false"),
        (1, "1 failed, 19 passed in 60s\n", FAIL, "1 failed, 19 passed; expected: none fails"),
        (
            1,
            f"{FAILED}1 failed, 19 passed in 60s\n",
            FAIL,
            f"1 failed, 19 passed; expected: none fails; failed: {LEARNS}",
        ),
        (3, "INTERNALERROR\n", FAIL, "pytest ended with 3; expected: none fails"),
    ],
)
def test_how_pytest_ended_is_understood(code: int, said: str, verdict: str, compared: str) -> None:
    row = tests.judge(code, said)
    assert (row.verdict, row.compared) == (verdict, compared)


def test_a_step_that_reads_a_value_is_counted() -> None:
    torch = pytest.importorskip("torch")
    from ddlbench.commands.gpucheck._ranks import Waits

    counts: Counter[str] = Counter()
    ones = torch.ones(3)
    with Waits(counts):
        (2 * ones).sum()
    assert not counts
    with Waits(counts):
        assert ones.sum().item() == 3
        assert bool((ones > 0).all())
    assert ones[0].item() == 1
    assert counts == {"value of a tensor read": 2}


# --- the whole


def rows_of(*verdicts: str) -> dict[str, list[Row]]:
    return {"machine": [Row(f"row {n}", verdict, "why", 1.5, "s") for n, verdict in enumerate(verdicts)]}


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ((PASS, MEASURED, SKIPPED), PASS),
        ((PASS, FAIL, PASS), FAIL),
        ((SKIPPED, MEASURED), FAIL),  # nothing was shown
    ],
)
def test_one_failed_row_fails_the_check(bench: Bench, verdicts: tuple[str, ...], whole: str) -> None:
    said = check.report(bench, rows_of(*verdicts), 12.0, 1)
    assert said["verdict"] == whole
    assert said["counts"] == {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    assert [row["part"] for row in said["rows"]] == ["machine"] * len(verdicts)
    json.dumps(said, allow_nan=False)
    assert check.report(bench, rows_of(*verdicts), 12.0, 2)["verdict"] == "not finished"
    assert "no number of it says anything about a GPU" in said["note"]
    assert check.report(replace(bench, device="cuda"), rows_of(*verdicts), 12.0, 1)["note"] is None


def test_the_table_has_a_line_per_row() -> None:
    assert check.line(Row("a run", PASS, "expected: 0", 0.123456, "s")).split() == [
        "PASS",
        *("a", "run"),
        *("0.1235", "s"),
        *("expected:", "0"),
    ]
    assert check.line(Row("a run", SKIPPED, "no package")).endswith("no package")


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Parts are processes of this program."""
    popen = check.subprocess.Popen
    command = [sys.executable, "-c", program]
    monkeypatch.setattr(check.subprocess, "Popen", lambda argv, **more: popen([*command, argv[6]], **more))


WHOLE = json.dumps(asdict(Row("a run", PASS, "expected: 0")))


@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("raise SystemExit('no more room')", "exit code 1: no more room"),
        ("import os; os.kill(os.getpid(), 11)", "exit code -11"),
        ("import time; print('hm', flush=True); time.sleep(60)", "took longer than its 1 s"),
    ],
)
def test_a_part_that_fails_keeps_its_rows_and_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, program: str, last: str
) -> None:
    check.rows_file(bench, "syncs").write_text(f'{WHOLE}\n{{"what": "half')
    stand_in(monkeypatch, program)
    monkeypatch.setattr(check, "CPU_LIMIT_S", 1 if "1 s" in last else 60)  # Python alone may need one to start
    began = time.monotonic()
    first, ended = check.run_part(bench, "syncs")
    assert time.monotonic() - began < 30
    assert first.what == "a run"
    assert ended.verdict == FAIL
    assert last in ended.compared
    assert str(bench.folder / "syncs.log") in ended.compared


def test_a_part_without_a_row_has_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    (row,) = check.run_part(bench, "syncs")
    assert (row.verdict, row.compared[:11]) == (FAIL, "gave no row")


def test_nothing_that_a_part_started_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    child = bench.folder / "child"
    start = "import subprocess, time; process = subprocess.Popen(['sleep', '60']); "
    stand_in(monkeypatch, f"{start}open({str(child)!r}, 'w').write(str(process.pid)); time.sleep(60)")
    monkeypatch.setattr(check, "CPU_LIMIT_S", 5)
    check.run_part(bench, "syncs")
    for _ in range(50):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(int(child.read_text())).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.1)
                continue
        return
    pytest.fail("what the part started still runs")


def test_a_folder_of_another_check_is_left_alone(bench: Bench) -> None:
    (bench.folder / "gpu-check.json").touch()
    assert "is not empty" in str(check.cannot_start(bench))
    assert check.cannot_start(replace(bench, folder=bench.folder / "new")) is None


def test_without_a_gpu_it_says_so_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    problem = check.cannot_start(Bench("cuda", tmp_path / "new"))
    assert problem is not None
    assert problem.startswith("no GPU: torch ")
    assert not (tmp_path / "new").exists()


def test_the_last_words_are_the_last_line_with_something_in_it() -> None:
    assert last_words("Traceback\nValueError: 3\n\n  \n") == "ValueError: 3"
    assert last_words("") == "it said nothing"


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
