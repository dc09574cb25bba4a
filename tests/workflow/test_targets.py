"""What is asked for is what is made: a figure without the runs of others, each file that is gone;
else one line.
"""

import os
import re
import shutil
import socket
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.core import gone

from tests.conftest import SLOW
from tests.facts import missing
from tests.workflow.conftest import ask, assert_nothing_to_do, edit, mini, planned, snakemake

CEILING = "results/runs/mini-mnist5k-lenet-mini-ddp-synthetic-1workers-bs64-cosine-2epochs-r1"
# One file of each rule that makes some; the slow tier deletes every file.
DELETED = [
    "figures/accuracy.pdf",
    "figures/accuracy.csv",
    "tables/comparisons.csv",
    "tables/verdicts.csv",
]
DELETED += ["tables/data.csv", "index.html", "study.json", f"../../../{CEILING}/steps.parquet"]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("results/demo/local/figures/troughput.png", ("troughput.png", "demo", "throughput")),
        ("results/runs/some-run/run.mllog", ("some-run", "demo", "local")),
        *(
            pytest.param(*case, marks=pytest.mark.more)
            for case in (
                (
                    "results/frameworks/local/figures/throughput.png",
                    ("frameworks", "local", "demo"),
                ),
                ("./results/demo/slurm/index.html", ("demo", "slurm", "local")),
                ("results/demo/index.html", ("results/demo/index.html", "results/demo/<machine>/")),
                ("results/inference/some-job/inference.json", ("some-job", "demo", "local")),
                ("what_if", ("what_if", gone.TARGETS["what_if"])),
                (
                    "results/data/some-set/raw/manifest.json",
                    ("results/data/some-set/raw/manifest.json",),
                ),
            )
        ),
    ],
)
def test_a_file_that_is_not_of_this_study_is_one_line(
    project: Path, target: str, names: tuple[str, ...]
) -> None:
    done = snakemake(project, "-n", target)
    assert done.returncode == 1
    assert missing(done.stdout.splitlines()[-1], *names) == [], done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    "rule",
    [
        "page",
        *(pytest.param(rule, marks=pytest.mark.more) for rule in ("report", "tables", "figures")),
    ],
)
def test_every_rule_that_people_ask_for_is_a_target(project: Path, rule: str) -> None:
    assert planned(project, rule, study="demo", machine="local")["train"] == 27


@pytest.mark.slow
def test_until_train_trains_though_a_preflight_comes_first(finished: Path) -> None:
    shutil.rmtree(finished / CEILING)
    shutil.rmtree(finished / "results/machines")
    # Into a pipe, which gets what a terminal gets.
    done = mini(finished, "--until", "train")
    assert re.search(
        r"^2 of 2 runs done; last: ddp on 1 worker, lenet, synthetic, \S+ images/s$",
        done.stdout,
        re.M,
    ), done.stdout
    assert not re.search(
        "^(Config file|Building DAG|Job|Select jobs|Execute|Finished|Provided)", done.stdout, re.M
    )
    assert (finished / CEILING / "run.mllog").exists()


@pytest.mark.slow
def test_two_machines_have_a_page_each(finished: Path) -> None:
    shutil.copy(finished / "config/machines/mini.yaml", finished / "config/machines/other.yaml")
    done = snakemake(finished, "page", "--config", "study=mini", "machine=other")
    assert "page: results/mini/other/index.html" in done.stdout
    assert_nothing_to_do(mini(finished, "page"))
    for machine in ("mini", "other"):
        page = (finished / f"results/mini/{machine}/index.html").read_text()
        assert set(re.findall(r"\b(mini|other)-mnist5k-", page)) == {machine}


def test_a_figure_needs_its_own_runs_only(fresh: Path) -> None:
    needed = {"prepare": 1, "train": 1, "figure_data": 1, "figure": 1}
    assert planned(fresh, "results/mini/mini/figures/accuracy.png") == needed
    assert planned(fresh, "results/mini/mini/figures/throughput.png") == needed | {"train": 2}
    assert planned(fresh, "predict") == {"predict": 1}  # of what is there


@pytest.mark.more
def test_a_failed_run_hides_its_own_figures_only(finished: Path) -> None:
    for folder in ("results/mini", CEILING):
        shutil.rmtree(finished / folder)
    launch = finished / "workflow/ddlbench/plan/launch.py"
    launch.write_text(
        re.sub(r"(?m)^PROGRAM = .*", 'PROGRAM = ("python", "-m", "nobody")', launch.read_text())
    )
    done = mini(finished)
    assert done.returncode != 0
    assert {path.name for path in (finished / "results/mini/mini/figures").glob("*.png")} == {
        "accuracy.png"
    }


@pytest.mark.more
def test_what_is_there_is_shown_at_any_time_and_apart(finished: Path) -> None:
    shutil.rmtree(finished / CEILING)
    whole = {path: path.stat().st_mtime_ns for path in (finished / "results/mini/mini").rglob("*")}
    done = ask(finished, "partial")
    assert done.returncode == 0, done.stdout
    assert "mini on mini, 1 of 2 runs: results/mini/mini/partial/index.html" in done.stdout
    assert "  throughput: 1 of 2 runs\n  accuracy: 1 of 1 run\n" in done.stdout
    partial = finished / "results/mini/mini/partial"
    for figure, says in (("throughput", "1 of 2 runs"), ("accuracy", "1 of 1 run")):
        assert f">{says}</text>" in (partial / f"figures/{figure}.svg").read_text()
    shown = pd.read_csv(partial / "figures/throughput.runs.csv").set_index("run")
    assert shown.loc[Path(CEILING).name, "status"] == "missing"
    page = (partial / "index.html").read_text()
    assert "Partial: 1 of 2 runs." in page
    assert "ddlbench partial --profile profiles/local --config study=mini machine=mini<" in page
    assert '"partial": "1 of 2 runs"' in (partial / "study.json").read_text()
    links = {link for link in re.findall(r'href="((?:\.\./)+[^"]+)"', page) if "native" in link}
    assert links and all((partial / link).exists() for link in links)
    assert {
        path: path.stat().st_mtime_ns for path in whole if path.is_file()
    }.items() <= whole.items()
    assert not (finished / CEILING).exists()
    killed = partial.with_name(f".{socket.gethostname()}-99999999-partial-x")
    (killed / "partial").mkdir(parents=True)
    assert ask(finished, "partial").returncode == 0  # again, in the place of the one before
    assert not killed.exists()


def of_study(project: Path) -> list[str]:
    """Every file that the finished study has, by its path from the study's folder; what was printed
    is no result.
    """
    home = project / "results/mini/mini"
    files = [path for path in home.rglob("*") if path.is_file() and path.parent.name != "logs"]
    records = [
        *project.glob("results/runs/*/run.mllog"),
        *project.glob("results/runs/*/steps.parquet"),
    ]
    return [os.path.relpath(path, home) for path in [*files, *records]]


@pytest.mark.more
def test_each_file_that_is_deleted_is_made_again(finished: Path) -> None:
    files = of_study(finished) if SLOW else DELETED
    for name in files:
        file = finished / "results/mini/mini" / name
        kept = file.with_name(".kept")
        file.rename(kept)
        said = mini(finished, "-n").stdout
        assert "Nothing to be done" not in said and "dry run" in said, name
        kept.rename(file)
    assert "Nothing to be done" in mini(finished, "-n").stdout


@pytest.mark.more
@pytest.mark.parametrize("name", ["index.html", *["runs.parquet", "throughput.png"] * SLOW])
def test_a_job_is_killed_before_its_file_has_its_name(finished: Path, name: str) -> None:
    files = finished / "workflow/ddlbench/core/files.py"
    whole, home, named = (
        files.read_text(),
        finished / "results/mini",
        "        hidden.replace(path)\n",
    )
    files.write_text(
        whole.replace(named, f"        path.name != {name!r} or os.kill(os.getpid(), 9)\n{named}")
    )
    shutil.rmtree(home)
    assert mini(finished).returncode != 0
    assert not list(home.rglob(name)) and list(home.rglob(f".*-{name}"))
    files.write_text(whole)
    assert mini(finished).returncode == 0
    assert list(home.rglob(name)) and not list(home.rglob(".*"))
    assert_nothing_to_do(mini(finished))


@pytest.mark.more
def test_what_the_page_shows_makes_it_stale(finished: Path) -> None:
    for what, changes in (("studies", {"title": "Other"}), ("machines", {"device_name": "core"})):
        edit(finished / f"config/{what}/mini.yaml", **changes)
        jobs = mini(finished, "-np").stdout
        assert re.search(r"^page +1$", jobs, re.M), what
        assert not re.search(r"^train ", jobs, re.M)


@pytest.mark.more
def test_a_figure_that_the_study_has_no_more_is_named(finished: Path) -> None:
    study = finished / "config/studies/mini.yaml"
    study.write_text(re.sub(r"(?m)^  accuracy: .*\n", "", study.read_text()))
    said = (
        "results/mini/mini/figures/accuracy.csv: study mini has no such figure (any more); remove"
        " accuracy.*, or"
    )
    assert said in mini(finished, "-n").stdout
    assert said in mini(finished, "page").stdout
