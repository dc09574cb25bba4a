"""Prepared data within the workflow: the rule verify, and the table that the report shows."""

import fcntl
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from ddlbench.core.files import read_csv

from tests.sources import picture
from tests.workflow.conftest import ask, mini, planned, snakemake

FORM = "results/prepared sets' $(touch executed)/mnist5k/raw"


def test_verify(finished: Path) -> None:
    done = ask(finished, "verify")
    assert done.returncode == 0, done.stdout
    assert f"{FORM}: whole: 5000 images" in done.stdout
    picture = sorted((finished / FORM / "train/7").iterdir())[0]
    shorter = picture.read_bytes()[:-1]
    picture.unlink()  # a link: others read it
    picture.write_bytes(shorter)
    done = ask(finished, "verify")
    assert done.returncode != 0
    assert f"{FORM}: train/7/: its files are not those of the manifest" in done.stdout


def test_what_the_forms_hold_is_a_table_in_the_report(finished: Path) -> None:
    rows = read_csv(finished / "results/mini/mini/tables/data.csv")
    assert [(r["dataset"], r["form"], r["split"], r["images"], r["skipped"]) for r in rows] == [
        ("mnist5k", "raw", "train", "4000", "0"),
        ("mnist5k", "raw", "val", "1000", "0"),
    ]
    assert (
        "results/mini/mini/tables/data.csv"
        in (finished / "results/mini/mini/report.html").read_text()
    )


def test_progress_is_in_the_log_and_on_the_console(project: Path) -> None:
    target = "results/data/mnist5k/tfrecord/manifest.json"
    done = snakemake(project, target)
    assert done.returncode == 0, done.stdout
    (line,) = re.findall(r"^mnist5k tfrecord: 7 of 7 shards, .* MB/s\)$", done.stdout, re.M)
    assert line in (project / "results/logs/prepare-mnist5k-tfrecord.log").read_text()


@pytest.mark.more
def test_two_workflows_prepare_the_same_set(project: Path, tmp_path: Path) -> None:
    """Two copies of the project with one data folder, as two users of a cluster have."""
    for name in ("one", "two"):
        subprocess.run(["cp", "-r", project, tmp_path / name], check=True)
        machine = tmp_path / name / "config/machines/local.yaml"
        machine.write_text(f"{machine.read_text()}\ndata: {tmp_path}/data\n")
    done = {}

    def work(name: str) -> None:
        done[name] = snakemake(tmp_path / name, f"{tmp_path}/data/mnist5k/tfrecord/manifest.json")

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    (tmp_path / "data/mnist5k").mkdir(parents=True)
    # Both are to meet: if one began when the other has ended, Snakemake would see that nothing is
    # to be done.
    with (tmp_path / "data/mnist5k/.tfrecord.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for thread in threads:
            thread.start()
        logs = [
            tmp_path / name / "results/logs/prepare-mnist5k-tfrecord.log" for name in ("one", "two")
        ]
        while not all(
            log.is_file() and "waiting until it has ended" in log.read_text() for log in logs
        ):
            assert all(thread.is_alive() for thread in threads), [d.stdout for d in done.values()]
            time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert [d.returncode for d in done.values()] == [0, 0], [d.stdout for d in done.values()]
    assert sum("already prepared" in d.stdout for d in done.values()) == 1
    again = snakemake(tmp_path / "one", f"{tmp_path}/data/mnist5k/tfrecord/manifest.json")
    assert "Nothing to be done" in again.stdout


@pytest.mark.more
def test_pictures_of_the_users(fresh: Path, tmp_path: Path) -> None:
    """A changed description makes what was prepared stale, and nothing else; the plan says what it
    guesses.
    """
    for number in range(40):
        (tmp_path / f"pictures/class {number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"pictures/class {number % 2}/{number}.png").write_bytes(
            picture(number, 32, 32)
        )
    (fresh / "config/datasets").mkdir()
    description = fresh / "config/datasets/mine.yaml"
    description.write_text(f"folder: {tmp_path}/pictures\n")
    study = fresh / "config/studies/mini.yaml"
    study.write_text(study.read_text().replace("dataset: mnist5k", "dataset: mine"))
    first = planned(fresh)
    assert (first["prepare"], first["train"]) == (
        1,
        2,
    )  # the synthetic loader's numbers come from the manifest too
    assert "the plan guesses: 2 classes and 36 pictures" in ask(fresh, "plan").stdout
    done = mini(
        fresh,
        "results/runs/mini-mine-lenet-mini-ddp-synthetic-1workers-bs64-cosine-2epochs-r1/run.mllog",
    )
    assert done.returncode == 0, done.stdout
    assert (
        "one picture in 10 of each class"
        in (fresh / "results/logs/prepare-mine-raw.log").read_text()
    )
    assert "guesses" not in ask(fresh, "plan").stdout
    assert "prepare" not in planned(fresh)
    description.write_text(f"folder: {tmp_path}/pictures\nvalidation_every: 5\n")
    assert planned(fresh)["prepare"] == 1
