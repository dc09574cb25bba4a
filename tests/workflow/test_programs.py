"""A program of a user's own, of plain Python: from its file and a study to a figure, and again when
it changes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.conftest import assert_nothing_to_do, program_study, snakemake

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
OPTIONS = ("--config", "study=mine", "machine=local")
FIGURE = "results/mine/local/figures/throughput.png"


def test_a_program_has_a_figure_and_is_made_again_when_its_files_change(project: Path) -> None:
    (project / "config/programs/plain.yaml").write_text(PROGRAM)
    (project / "config/studies/mine.yaml").write_text(program_study("plain"))
    (project / "train.py").write_text(TRAIN)
    done = snakemake(project, *OPTIONS, "--", FIGURE)
    assert done.returncode == 0, done.stdout
    drawn = pd.read_csv((project / FIGURE).with_suffix(".csv")).set_index(["settings", "workers"])
    rates = drawn["throughput_images_per_s"]
    for settings, step_s in (("precision=bf16", 0.1), ("precision=fp32", 0.2)):
        for workers in (1, 2):
            assert (
                0.5 * workers * 64 / step_s
                < rates[settings, workers]
                <= 1.01 * workers * 64 / step_s
            )
    assert_nothing_to_do(snakemake(project, "-n", *OPTIONS, "--", FIGURE))
    (project / "train.py").write_text(TRAIN + 'raise SystemExit("no tokens are left")\n')
    run = "local-plain-precision_bf16-1workers-bs64-r1"
    failed = snakemake(project, *OPTIONS, "--", f"results/runs/{run}/run.mllog")
    assert failed.returncode != 0
    assert f"{run}: " in failed.stdout and "no tokens are left" in failed.stdout


BESIDE = '''
"""It reads what lies beside it, writes there, and its ranks train each for itself."""
import os, time
corpus = open("data/corpus.txt").read().split()
if os.environ["RANK"] == "0":
    open("checkpoint.txt", "x").close()
for number in range(1, 26):
    time.sleep(0.02)
    print(f"[{number}/25] loss is {len(corpus) / number:.5f}", flush=True)
'''
THEIRS = """
command: python train.py
folder: theirs
files: [theirs]
lines: '{lines}'
"""


def ddlbench(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`ddlbench` in a project."""
    return subprocess.run(
        [sys.executable, "-m", "ddlbench.commands.main", *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project / "workflow")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.more
def test_output_that_could_not_be_read_is_read_again_and_nothing_is_trained(project: Path) -> None:
    """With ranks that never met, whose page says so."""
    (project / "theirs/data").mkdir(parents=True)
    (project / "theirs/train.py").write_text(BESIDE)
    (project / "theirs/data/corpus.txt").write_text("some words")
    mine = project / "config/programs/plain.yaml"
    mine.write_text(THEIRS.format(lines="Step (?P<step>[0-9]+)"))
    (project / "config/studies/mine.yaml").write_text(program_study("plain"))
    runs = [f"local-plain-{workers}workers-bs{64 * workers}-r1" for workers in (1, 2)]
    records = [project / f"results/runs/{run}" for run in runs]
    failed = snakemake(
        project, *OPTIONS, "--keep-going", "--", *(f"results/runs/{run}/run.mllog" for run in runs)
    )
    assert failed.returncode != 0 and "ddlbench read" in failed.stdout
    before = [(record / "failed/printed.jsonl").read_text() for record in records]
    mine.write_text(THEIRS.format(lines=r"\[(?P<step>[0-9]+)/[0-9]+\] loss is (?P<loss>\S+)"))
    done = ddlbench(project, "read", "--study", "mine", "--machine", "local")
    assert done.returncode == 0, done.stdout
    assert [run for run in runs if f"{run}: read" not in done.stdout] == [], done.stdout
    assert [(record / "printed.jsonl").read_text() for record in records] == before
    assert [sorted(path.name for path in (record / "work").iterdir()) for record in records] == [
        ["checkpoint.txt"]
    ] * 2
    assert sorted(path.name for path in (project / "theirs").iterdir()) == ["data", "train.py"]
    assert (
        "nothing to read again"
        in ddlbench(project, "read", "--study", "mine", "--machine", "local").stdout
    )
    dry = snakemake(project, "-np", *OPTIONS, "--", FIGURE)
    assert dry.returncode == 0 and "rule train" not in dry.stdout, dry.stdout
    assert (done := snakemake(project, *OPTIONS, "--", "page")).returncode == 0, done.stdout
    assert [(record / "printed.jsonl").read_text() for record in records] == before
    table = pd.read_parquet(project / "results/mine/local/tables/runs.parquet").set_index("workers")
    assert table["ranks_together"].to_dict() == {1: "yes", 2: "no"}
    findings = pd.read_csv(project / "results/mine/local/tables/audit.csv").set_index("rule")
    assert findings.loc["ranks-apart", "severity"] == "error"
    page = (project / "results/mine/local/index.html").read_text()
    assert "ranks-apart" in page and "ranks together" in page
