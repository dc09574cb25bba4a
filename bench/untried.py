#!/usr/bin/env python
"""Which lines of the GPU path no test executes, and why: `python bench/untried.py >
docs/measurements/untried.md`.

The GPU path is every function that ranks execute and whose code names a GPU. `tests/pretended_gpu`,
and tests of values that stand in for one, run under coverage.py: after `make install GPU=1`, `pip
install coverage`. A line that names the GPU counts where its process has one (`say_gpu`), any other
line wherever it is executed. Exits with 1 if a function has no reason here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILES = re.compile(r"ddlbench/(train/.*|patches/(?!snakemake|slurm).*|preflight/scout\.py)$")
NAMES = re.compile(r"cuda|gpu|nccl|nvml|pin_memory|pinned|_stream\b|\bstream\b", re.IGNORECASE)
VALUES = (
    "preflight",
    "measure",
    "loaders",
    "ranks",
    "patches",
    "frameworks",
    "optimizers",
    "steps",
)
TESTS = ["pretended_gpu", "slurm/test_ranks.py::test_pretended_gpus_of_two_nodes"]
TESTS += [f"unit/test_{name}.py" for name in VALUES]
# Ranks are ended by signals, and some are forked. Tests of SLURM have a copy of the project.
SETTINGS = """[paths]
source =
    {root}/workflow/ddlbench
    */workflow/ddlbench
[run]
source_pkgs = ddlbench
parallel = true
patch = subprocess, fork, _exit
sigterm = true
data_file = {folder}/data
"""
PAGE = """# Lines of the GPU path that no test executes

Made by `python bench/untried.py > docs/measurements/untried.md`, which says what the GPU path is. By the reason.
"""
WHY = {
    "DeepSpeed on two nodes whose GPUs have UUIDs: its test passed, but beside this measurement of 2026-11-24.": (
        "patches/deepspeed_devices.py:number_visible",
    ),
    "What is missing or wrong is found where nothing is pretended; tests of values see what is said then.": (
        *("train/frameworks/_common.py:lacks", "train/frameworks/deepspeed.py:lacks"),
        *("train/frameworks/horovod.py:lacks", "train/inference/compiled.py:lacks"),
        *("train/inference/__main__.py:serve", "train/counters.py:nvml"),
        *("preflight/scout.py:nccl", "preflight/scout.py:_libraries", "preflight/scout.py:main"),
        *("train/measure.py:Meter.gpu", "train/place.py:take_device", "train/optimizers.py:build"),
        "train/place.py:device_number",
    ),
    "DALI brings a CUDA of its own, which is not pretended: `tests/gpu` tries it on a real one.": (
        *("train/loaders/_dali.py:DaliLoader.__init__", "train/loaders/_dali.py:pipeline"),
        *("train/loaders/_dali.py:pipeline.define", "train/loaders/_stream.py:KeptBatches.keep"),
    ),
    "These options are not tried on GPUs; tests train with them on CPUs.": (
        *(
            "train/frameworks/_deepspeed_options.py:settings",
            "train/frameworks/ddp.py:_compress.hook",
        ),
        *(
            "train/frameworks/_deepspeed_flops.py:profiled",
            "train/frameworks/deepspeed.py:Engine.__call__",
        ),
    ),
    "A pretended GPU has no place among the devices of /sys; nor has this machine a counter of energy.": (
        *("train/measure.py:Meter.near_cores_share", "train/measure.py:Meter.start"),
    ),
    "Of CPUs, or of a run that ends meanwhile: tests of contract try it.": (
        *("train/frameworks/deepspeed.py:start", "train/loaders/spdl.py:Loader._pieces"),
        *("train/clock.py:Clock.mark", "train/clock.py:Clock.seconds"),
    ),
}
REASONS = {name: reason for reason, names in WHY.items() for name in names}


def left(files: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Each function of the GPU path with its lines that nobody executed."""
    for path, file in sorted(files.items()):
        text = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for name, part in file["functions"].items():
            code = {
                number: text[number - 1].strip()
                for number in part["executed_lines"] + part["missing_lines"]
            }
            naming = {number for number, line in code.items() if NAMES.search(line.split("  #")[0])}
            alone = {
                number for number in naming if "gpu" not in file["contexts"].get(str(number), [])
            }
            lines = sorted({*part["missing_lines"]} | alone)
            if name and naming and lines and FILES.search(path):
                yield f"{path.partition('ddlbench/')[2]}:{name}", [code[number] for number in lines]


def measured(folder: Path, tests: Sequence[str]) -> dict[str, Any]:
    """What coverage.py says of each file, of these tests and those whose data are in the folder
    already.
    """
    settings, said = folder / "settings", folder / "said.json"
    settings.write_text(SETTINGS.format(folder=folder, root=ROOT), encoding="utf-8")
    paths = f"{ROOT}{os.pathsep}{ROOT / 'workflow'}"
    given = os.environ | {
        "DDLBENCH_SLOW": "1",
        "COVERAGE_RCFILE": str(settings),
        "PYTHONPATH": paths,
    }
    pytest = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(f"{ROOT}/tests/{name}" for name in tests),
    ]
    for words in (
        ["run", *pytest],
        ["combine", "-q", "--append"],
        ["json", "-q", "--show-contexts", "-o", str(said)],
    ):
        command = [sys.executable, "-m", "coverage", *words]
        subprocess.run(command, cwd=ROOT, env=given, stdout=sys.stderr, check=words[0] != "run")
    files: dict[str, Any] = json.loads(said.read_text(encoding="utf-8"))["files"]
    return files


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tests", nargs="*", default=TESTS, help="pytest's names, from tests/ on; all that are meant"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of coverage.py's data, which are kept: to run in pieces"
    )
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = list(left(measured((a.data or Path(folder)).absolute(), a.tests)))
    print(PAGE)
    for reason in sorted({REASONS.get(name, "No reason.") for name, _ in found}):
        print(f"## {reason}\n\n```python")
        for name, lines in found:
            if REASONS.get(name, "No reason.") == reason:
                print(f"# {name}", *lines, sep="\n")
        print("```\n")
    return int(any(name not in REASONS for name, _ in found))


if __name__ == "__main__":
    sys.exit(main())
