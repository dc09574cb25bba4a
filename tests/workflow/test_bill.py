"""`ddlbench plan` as a user sees it: it agrees with what Snakemake would do; a limit stops before
the first job.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ddlbench.core.files import read_csv

from tests.workflow.conftest import ask, assert_nothing_to_do, edit, mini, planned, snakemake

pytestmark = pytest.mark.more

LIMIT = ("--config", "study=mini", "machine=mini")
CEILING = "mini-mnist5k-lenet-mini-ddp-synthetic-1workers-bs64-cosine-2epochs-r1"
DIGITS = "mini-mnist5k-nets.small.build-mini-ddp-native-1workers-bs64-cosine-2epochs-r1"


def plan(project: Path) -> dict[str, dict[str, str]]:
    """The rows of plan.csv by run; the number to be made is what a dry run says, too."""
    done = ask(project, "plan")
    assert done.returncode == 0, done.stdout
    rows = {row["run"]: row for row in read_csv(project / "results/mini/mini/tables/plan.csv")}
    assert (project / "results/mini/mini/tables/plan.txt").read_text() in done.stdout
    assert sum(row["state"] != "done" for row in rows.values()) == planned(project).get("train", 0)
    return rows


def test_done_runs_are_what_they_took(finished: Path) -> None:
    for row in plan(finished).values():
        assert (row["state"], row["why"], row["estimate"]) == ("done", "", "its record")
        assert 1 < float(row["wall_s"]) < 600
        assert float(row["gpu_hours"]) * 3600 == pytest.approx(float(row["wall_s"]), rel=1e-3)
        assert row["core_hours"] == row["price"] == ""


def test_a_changed_recipe_is_named(finished: Path) -> None:
    recipe = finished / "config/recipes/mini.yaml"
    old = yaml.safe_load(recipe.read_text())["base_lr"]
    edit(recipe, base_lr=0.03)
    rows = plan(finished)
    assert {row["state"] for row in rows.values()} == {"stale"}
    assert {row["why"] for row in rows.values()} == {f"recipe.base_lr {old} -> 0.03"}
    assert {row["estimate"] for row in rows.values()} == {"1 measured run"}


def test_a_deleted_record_is_missing_and_estimated_from_the_other(finished: Path) -> None:
    (finished / f"results/runs/{DIGITS}/run.mllog").unlink()
    rows = plan(finished)
    assert rows[CEILING]["state"] == "done"
    assert (rows[DIGITS]["state"], rows[DIGITS]["why"]) == ("missing", "its run.mllog is missing")
    study = finished / "config/studies/mini.yaml"  # with the model of the run that is there
    study.write_text(study.read_text().replace("    models: [nets.small:build]\n", ""))
    (row,) = (row for run, row in plan(finished).items() if run != CEILING)
    assert row["estimate"] == "1 measured run, of other frameworks, loaders or batches"


def test_data_made_anew_are_stale_data_touched_are_not(finished: Path) -> None:
    (manifest,) = finished.glob("results/prepared*/mnist5k/raw/manifest.json")
    os.utime(manifest)
    assert {row["state"] for row in plan(finished).values()} == {"done"}
    manifest.write_text(manifest.read_text() + "\n")
    rows = plan(finished)
    assert {run: row["state"] for run, row in rows.items()} == {CEILING: "done", DIGITS: "stale"}
    assert rows[DIGITS]["why"].endswith("manifest.json was made again")


def test_data_that_are_gone_are_prepared_only_for_runs_that_are_to_be_made(finished: Path) -> None:
    """Scratch file systems remove what is old. Plan, dry run and real run agree that what is done
    stays done.
    """
    (data,) = finished.glob("results/prepared*/mnist5k/raw")
    shutil.rmtree(data)
    assert {row["state"] for row in plan(finished).values()} == {"done"}
    assert (
        "mnist5k as raw is not there any more; no run that is to be made reads it"
        in ask(finished, "plan").stdout
    )
    assert planned(finished) == {}
    assert_nothing_to_do(mini(finished))
    assert planned(finished, "--force", f"results/runs/{DIGITS}/run.mllog")["train"] == 1
    study = finished / "config/studies/mini.yaml"
    study.write_text(study.read_text().replace("workers: [1]", "workers: [1, 2]"))
    new = {run for run, row in plan(finished).items() if row["state"] != "done"}
    assert len(new) == 2 and all("2workers" in run for run in new)
    assert {
        rule: planned(finished)[rule] for rule in ("prepare", "preflight", "train")
    } == dict.fromkeys(("prepare", "preflight"), 1) | {"train": 2}


def test_another_command_of_rule_train_is_stale(finished: Path) -> None:
    rule = finished / "workflow/ddlbench/plan/stale.py"
    rule.write_text(rule.read_text().replace("python -m ddlbench.run", "python -u -m ddlbench.run"))
    assert {row["why"] for row in plan(finished).values()} == {"rule train has a changed command"}


def test_a_limit_stops_before_the_first_job(finished: Path) -> None:
    """Two more runs, of about 10 s with one worker."""
    study = finished / "config/studies/mini.yaml"
    study.write_text(study.read_text().replace("workers: [1]", "workers: [1, 2]"))
    assert [row["state"] for row in plan(finished).values()].count("missing") == 2
    passed = snakemake(finished, *LIMIT, "max_gpu_hours=0.000001")
    assert passed.returncode != 0
    assert re.search(r"max_gpu_hours: \S+ would be exceeded: 2 runs are to be made", passed.stdout)
    assert not re.search(r"^Job \d+:", passed.stdout, re.M)
    assert not list(finished.glob("results/runs/*-2workers-*"))
    dry = snakemake(finished, "-n", *LIMIT, "max_gpu_hours=0.000001")
    assert dry.returncode == 0, dry.stdout
    assert dry.stdout.count("warning: config/config.yaml: max_gpu_hours") == 1
    # What is not asked for does not count; nor does looking.
    done = snakemake(finished, f"results/runs/{DIGITS}/run.mllog", *LIMIT, "max_gpu_hours=0.000001")
    assert done.returncode == 0, done.stdout
    assert (
        "max_gpu_hours <0.001 WOULD BE EXCEEDED"
        in ask(finished, "plan", "--config", "max_gpu_hours=0.000001").stdout
    )


def test_on_a_login_node(project: Path, tmp_path: Path) -> None:
    """No torch, no framework, no data, no SLURM."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "horovod", "deepspeed", "nvidia"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "ddlbench.commands.main", "plan", "--profile", "profiles/juwels"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{tmp_path / 'site'}:{project / 'workflow'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    total = re.search(r"^total +540 +0 +0 ", done.stdout, re.M)
    assert total, done.stdout
    assert (
        len((project / "results/aach2023/juwels-booster/tables/plan.csv").read_text().splitlines())
        == 541
    )
