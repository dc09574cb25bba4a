"""What dry runs show, and what bad input leads to, as a user sees it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.conftest import edit, snakemake

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "horovod":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""


def jobs(text: str) -> dict[str, int]:
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", text, re.M)}


def test_demo(project: Path) -> None:
    done = snakemake(project, "-np")
    assert done.returncode == 0, done.stdout
    counts = jobs(done.stdout)
    assert counts["train"] == 12 + 6 + 9  # derived in config/studies/demo.yaml
    assert counts["prepare"] == 2
    assert counts["preflight"] == 1
    assert "python -m ddlbench.run.local --workers=2 python -m ddlbench.train" in done.stdout
    short = snakemake(project, "-n").stdout
    assert (
        re.search(rf"^  train +{counts['train']} ", short, re.M) and len(short.splitlines()) <= 12
    ), short
    assert [path.name for path in (project / "results").iterdir()] == ["README.md"]


@pytest.mark.more
def test_aach2023_on_a_machine_without_gpu_slurm_or_data(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--profile", "profiles/juwels", "-np"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert jobs(done.stdout)["train"] == 540  # derived in config/studies/aach2023.yaml
    asks = r"train (\S+): (\d+) nodes?, (\d+) tasks?, (\d+) GPUs?, limit (\d+) min\n\s*\$ (.*)"
    asked = re.findall(asks, done.stdout)
    assert len(asked) == 540
    for run, nodes, tasks, gpus, minutes, command in asked:
        workers = re.search(r"-(\d+)workers-", run)
        assert workers is not None
        assert int(tasks) == int(gpus) == int(workers[1]) == 4 * int(nodes)
        assert 30 <= int(minutes) <= 24 * 60
        assert f"srun --nodes={nodes} --ntasks={tasks} --ntasks-per-node=4 " in command
    assert [path.name for path in (project / "results").iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("config/studies/demo.yaml", "[ddp]", "[ddq]", "allowed: ddp, deepspeed, fsdp, horovod"),
        ("config/config.yaml", "study: demo", "study: demoo", "did you mean demo?"),
    ],
)
def test_bad_input_is_one_message(project: Path, file: str, old: str, new: str, said: str) -> None:
    """All other bad input is read by the same code: tests/unit/test_bad_input.py."""
    path = project / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    done = snakemake(project)
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if said in line]
    assert len(lines) == 1, done.stdout
    assert "Traceback" not in done.stdout
    assert [path.name for path in (project / "results").iterdir()] == ["README.md"]


@pytest.mark.more
def test_a_framework_that_is_not_installed_is_named_with_its_cure(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(BLOCKED)
    done = snakemake(project, "-n", PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode != 0
    assert "framework horovod is not installed" in done.stdout
    assert "make install HOROVOD=1" in done.stdout
    study = project / "config/studies/demo.yaml"
    study.write_text(study.read_text().replace("[ddp, horovod, deepspeed]", "[ddp]"))
    alone = snakemake(project, "-np", PYTHONPATH=str(tmp_path / "site"))
    assert alone.returncode == 0, alone.stdout
    assert jobs(alone.stdout)["train"] == 12 + 9


@pytest.mark.more
def test_a_run_that_two_studies_name_is_made_once(project: Path) -> None:
    edit(project / "config/studies/demo.yaml", title="Another study")
    (project / "config/studies/other.yaml").write_text(
        (project / "config/studies/demo.yaml").read_text()
    )
    plans = [
        snakemake(project, "-np", "--config", f"study={study}").stdout
        for study in ("demo", "other")
    ]
    demo, other = (set(re.findall(r"train (\S+)\n", text)) for text in plans)
    assert demo == other
    assert len(demo) == 27


HUGE = """
title: Huge
dataset: mnist5k
recipe: first
models: [lenet]
frameworks: [ddp, horovod]
loaders: [native, synthetic]
schedules: [step, cosine]
workers: [1, 2]
epochs: 2
repeats: 105
runs:
"""
MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "ddlbench.commands.main", *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("used", done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


@pytest.mark.slow
def test_50000_runs_are_planned_in_a_minute_and_a_gigabyte(project: Path) -> None:
    blocks = [
        f"  b{n}: {{batch_per_worker: {[8 * (6 * n + i + 1) for i in range(6)]}}}\n"
        for n in range(5)
    ]
    (project / "config/studies/huge.yaml").write_text(
        HUGE + "".join(blocks) + "figures: {a: {plot: throughput}}\n"
    )
    call = ("plan", "--study", "huge")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *call], cwd=project, stdout=subprocess.PIPE, text=True
    )
    assert re.search(r"^total +50400 ", done.stdout, re.M), done.stdout
    code, cpu_s, largest_mb = re.findall(r"^used (\S+) (\S+) (\S+)$", done.stdout, re.M)[0]
    assert (code, float(cpu_s) < 60, float(largest_mb) < 500) == ("0", True, True), (
        cpu_s,
        largest_mb,
    )


def test_lint(project: Path) -> None:
    """Snakemake finds nothing but rules without conda: pip's pins and environment modules are what
    was tried.
    """
    said = snakemake(project, "--lint").stdout
    assert set(re.findall(r"^    \* (.*):$", said, re.M)) == {
        "Specify a conda environment or container for each rule."
    }
