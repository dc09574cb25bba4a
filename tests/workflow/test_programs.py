"""A program of a user's own, of plain Python: from its file and a study to a figure, and again when it changes."""

from pathlib import Path

import pandas as pd

from tests.workflow.conftest import assert_nothing_to_do, snakemake

TRAIN = '''
"""Ranks meet by files after each step."""
import argparse, os, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--precision")
parser.add_argument("--out", type=Path)
options = parser.parse_args()
many = {name: value for name, value in os.environ.items() if name.endswith("_THREADS") and value != "1"}
assert not many, f"a worker is a core, and has {many}"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
for step in range(1, 31):
    time.sleep(0.1 if options.precision == "bf16" else 0.2)
    (options.out / f"{rank}-{step}").touch()
    while not all((options.out / f"{other}-{step}").exists() for other in range(world)):
        time.sleep(0.001)
    if rank == 0:
        print(f"step {step} loss {2 / step:.4f}", flush=True)
'''
PROGRAM = """
command: python train.py --batch-size {batch_per_worker} --precision {precision} --out {folder}
files: [train.py]
settings: {precision: [bf16, fp32]}
lines: 'step (?P<step>[0-9]+) loss (?P<loss>[0-9.]+)'
"""
STUDY = """
title: A program
programs: [plain]
workers: [1, 2]
batch_per_worker: [64]
runs: {all: {}}
figures: {throughput: {plot: throughput}}
"""
OPTIONS = ("--config", "study=mine", "machine=local")
FIGURE = "results/mine/local/figures/throughput.png"


def test_a_program_has_a_figure_and_is_made_again_when_its_files_change(project: Path) -> None:
    (project / "config/programs/plain.yaml").write_text(PROGRAM)
    (project / "config/studies/mine.yaml").write_text(STUDY)
    (project / "train.py").write_text(TRAIN)
    done = snakemake(project, *OPTIONS, "--", FIGURE)
    assert done.returncode == 0, done.stdout
    drawn = pd.read_csv((project / FIGURE).with_suffix(".csv")).set_index(["settings", "workers"])
    rates = drawn["throughput_images_per_s"]
    for settings, step_s in (("precision=bf16", 0.1), ("precision=fp32", 0.2)):
        for workers in (1, 2):
            assert 0.5 * workers * 64 / step_s < rates[settings, workers] <= 1.01 * workers * 64 / step_s
    assert_nothing_to_do(snakemake(project, "-n", *OPTIONS, "--", FIGURE))
    (project / "train.py").write_text(TRAIN + 'raise SystemExit("no tokens are left")\n')
    run = "local-plain-precision_bf16-1workers-bs64-r1"
    failed = snakemake(project, *OPTIONS, "--", f"results/runs/{run}/run.mllog")
    assert failed.returncode != 0
    assert f"{run}: " in failed.stdout and "no tokens are left" in failed.stdout
