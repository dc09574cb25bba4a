"""The preflight as users meet it: what it writes, when it is made again, and what it says when
something is wrong.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ddlbench.core.mllog import read_log

from tests.facts import missing
from tests.slurm.stand_in import stand_in
from tests.workflow.conftest import edit, mini, planned, snakemake

pytestmark = pytest.mark.more

PREFLIGHT = "results/machines/mini/preflight-mini.json"
RECORD = (
    "results/runs/mini-mnist5k-lenet-mini-ddp-synthetic-1workers-bs64-cosine-2epochs-r1/run.mllog"
)
FAILED = "results/machines/mini/preflight-mini.failed.json"
# Environment Modules or Lmod, as Debian has them.
INITS = ("/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash")
MODULE = "#%Module1.0\nprepend-path PATH {bin}\n"


def test_records_cite_what_was_found(finished: Path) -> None:
    text = (finished / PREFLIGHT).read_bytes()
    found = json.loads(text)
    # Other tests run beside this one.
    assert [
        problem for problem in found["problems"] if "other processes" not in problem["text"]
    ] == []
    assert all(rank["others_cores"] >= 0 for rank in found["ranks"] if rank["local_rank"] == 0)
    first, second = found["ranks"]
    assert first["met"] == [first["host"], second["host"]]
    assert first["all_reduce"]["gloo"]["sum"] == 2
    assert first["cores"]
    assert first["versions"]["torch"]
    assert second["read"] == []  # one of a node reads
    (form,) = first["read"]
    assert form["bytes"] > 100_000  # what a busy disk gives in the time that it takes
    for log in finished.glob("results/runs/*/run.mllog"):
        (cited,) = [
            event.value["preflight"] for event in read_log(log) if event.key == "ddlbench_facts"
        ]
        assert cited["sha256"] == hashlib.sha256(text).hexdigest()
        assert cited["path"] == PREFLIGHT
        assert cited["time"] == found["time"]
        assert (
            finished / f"results/machines/mini/kept/{cited['sha256']}.json"
        ).read_bytes() == text


def test_a_dry_run_shows_it_as_one_job(fresh: Path) -> None:
    assert planned(fresh)["preflight"] == 1


def test_only_new_runs_wait_for_a_new_one(finished: Path) -> None:
    """A machine file that changes, and a preflight that is gone, make no training stale, nor do
    they hide any.
    """
    times = {log: log.stat().st_mtime_ns for log in finished.glob("results/runs/*/run.mllog")}
    edit(finished / "config/machines/mini.yaml", environment={"GLOO_SOCKET_IFNAME": "lo"})
    assert planned(finished) == {"preflight": 1}
    study = finished / "config/studies/mini.yaml"
    study.write_text(study.read_text().replace("workers: [1]", "workers: [1, 2]", 1))
    assert planned(finished) == {
        "preflight": 1,
        "train": 1,
        "collect": 1,
        "figure_data": 1,
        "figure": 1,
    }
    new = finished / RECORD.replace("1workers-bs64", "2workers-bs128")
    stand_in(finished)
    done = mini(finished, str(new.relative_to(finished)))
    assert done.returncode == 0, done.stdout
    assert {log: log.stat().st_mtime_ns for log in times} == times
    found = json.loads((finished / PREFLIGHT).read_text())
    assert new.stat().st_mtime > found["time"]
    assert planned(finished) == {"collect": 1, "figure_data": 1, "figure": 1}

    (finished / PREFLIGHT).unlink()
    edit(finished / "config/recipes/mini.yaml", base_lr=0.03)
    assert planned(finished) == {
        "preflight": 1,
        "train": 3,
        "collect": 1,
        "figure_data": 2,
        "figure": 2,
    }
    new.unlink()
    edit(finished / "config/recipes/mini.yaml", base_lr=0.02)
    assert planned(finished)["train"] == 3


def test_one_of_something_else_is_made_again_when_snakemake_remembers_nothing(
    finished: Path,
) -> None:
    shutil.rmtree(finished / ".snakemake")
    edit(finished / "config/machines/mini.yaml", environment={"GLOO_SOCKET_IFNAME": "lo"})
    assert planned(finished) == {"preflight": 1}


@pytest.mark.slow
def test_it_is_made_again_when_asked(finished: Path) -> None:
    before = json.loads((finished / PREFLIGHT).read_text())["time"]
    done = mini(finished, "preflight", "--force")
    assert done.returncode == 0, done.stdout
    assert json.loads((finished / PREFLIGHT).read_text())["time"] > before
    assert planned(finished) == {}  # but for the page, which shows it
    assert len(list(finished.glob("results/machines/mini/kept/*.json"))) == 2


def test_its_code_makes_nothing_stale(finished: Path) -> None:
    for name in ("preflight/__main__", "preflight/scout", "settings/environment_modules"):
        file = finished / f"workflow/ddlbench/{name}.py"
        file.write_text(file.read_text() + "\nCHANGED = 1\n")
    assert planned(finished) == {}


@pytest.mark.slow
def test_an_interface_that_is_not_there_keeps_training_from_starting(finished: Path) -> None:
    """As before the first run, but for the data."""
    shutil.rmtree(finished / "results/runs")
    (finished / PREFLIGHT).unlink()
    edit(finished / "config/machines/mini.yaml", environment={"GLOO_SOCKET_IFNAME": "ib7"})
    done = mini(finished)
    assert done.returncode != 0
    said = (
        "config/machines/mini.yaml: environment: GLOO_SOCKET_IFNAME: no such network interface;"
        " there are lo"
    )
    assert f"preflight: {said}" in done.stdout  # at the end, for those who submit jobs
    assert f"error: {said}" in done.stdout
    assert not (finished / "results/runs").exists()
    assert not (finished / PREFLIGHT).exists()
    assert json.loads((finished / FAILED).read_text())["ranks"][0]["interfaces"]

    edit(finished / "config/machines/mini.yaml", environment={})
    done = mini(finished, PREFLIGHT)
    assert done.returncode == 0, done.stdout
    assert not (finished / FAILED).exists()


def test_what_srun_says_is_the_reason_where_no_rank_starts(finished: Path) -> None:
    says = "srun: error: Unable to create step for job 7: Requested nodes are busy"
    (finished / PREFLIGHT).unlink()
    words = ["sh", "-c", f"echo '{says}' >&2; exit 1", "image.sif"]
    edit(finished / "config/machines/mini.yaml", container=words)
    done = mini(finished, PREFLIGHT)
    assert done.returncode != 0 and says in done.stdout
    problems = json.loads((finished / FAILED).read_text())["problems"]
    assert missing(problems[0]["text"], "Unable to create step for job 7") == []


# Modules: a real `module` command, and module files that the tests write.


@pytest.fixture(params=INITS)
def with_modules(request: pytest.FixtureRequest, fresh: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that knows `module`, with modules Compiler/12.3 (default: 12.4)
    and MPI/5.0.1.
    """
    init = Path(request.param)
    if not init.exists():
        pytest.skip(f"no {init}: apt-get install environment-modules, or lmod")
    for name in ("Compiler/12.3", "Compiler/12.4", "MPI/5.0.1"):
        file = tmp_path / "modules" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MODULE.format(bin=tmp_path))
    return {"BASH_ENV": str(init), "MODULEPATH": str(tmp_path / "modules")}


def with_env_modules(
    project: Path, *targets: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    config = (
        "--software-deployment-method",
        "env-modules",
        "--config",
        "study=mini",
        "machine=mini",
    )
    return snakemake(project, *targets, *config, **environment)


@pytest.mark.slow
def test_modules_are_loaded_in_every_job(finished: Path, with_modules: dict[str, str]) -> None:
    (finished / RECORD).unlink()
    edit(finished / "config/machines/mini.yaml", modules=["Compiler", "MPI/5.0.1"])
    stand_in(finished)
    done = with_env_modules(finished, RECORD, **with_modules)
    assert done.returncode == 0, done.stdout
    first, *_ = json.loads((finished / PREFLIGHT).read_text())["ranks"]
    assert first["modules"]["LOADEDMODULES"] == "Compiler/12.4:MPI/5.0.1"
    assert (finished / RECORD).exists()


def test_a_module_that_is_not_there_is_an_error(fresh: Path, with_modules: dict[str, str]) -> None:
    edit(fresh / "config/machines/mini.yaml", modules=["Compiler/12.3", "CUDA/13"])
    done = with_env_modules(fresh, **with_modules)
    assert done.returncode != 0
    said, *_ = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("config/machines/mini.yaml: modules: ")
    ]
    assert "CUDA/13: not loaded in this job" in said  # Lmod loads no other either
    assert said.endswith("module spider CUDA/13")
    assert not (fresh / "results/runs").exists()


def test_no_module_command_is_an_error(fresh: Path) -> None:
    edit(fresh / "config/machines/mini.yaml", modules=["Compiler"])
    clean = {name: "" for name in ("BASH_ENV", "LOADEDMODULES") if name in os.environ}
    done = with_env_modules(fresh, **clean)
    assert done.returncode != 0
    assert (
        "config/machines/mini.yaml: modules: Compiler: not loaded in this job, and no other module is"
        in done.stdout
    )
    assert not (fresh / "results/runs").exists()


@pytest.mark.slow
def test_a_run_without_its_modules_ends_at_once(finished: Path) -> None:
    """Should a preflight have passed and the modules be gone since."""
    (finished / RECORD).unlink()
    edit(finished / "config/machines/mini.yaml", modules=["Compiler"])
    loaded = {"LOADEDMODULES": "Compiler/12.3"}  # as if by hand, before Snakemake
    done = mini_with(finished, PREFLIGHT, **loaded)
    assert done.returncode == 0, done.stdout
    done = mini_with(finished, RECORD, LOADEDMODULES="")
    assert done.returncode != 0
    log = (finished / RECORD).with_name("train.log").read_text()
    assert "config/machines/mini.yaml: modules: Compiler: not loaded in this job" in log


def mini_with(project: Path, *targets: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return snakemake(project, *targets, "--config", "study=mini", "machine=mini", **environment)
