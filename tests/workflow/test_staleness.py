"""Change one thing, and only what is stale runs again. `test_touches.py` has many more things."""

import shutil
from pathlib import Path

import pytest

from tests.workflow.conftest import ask, edit, mini, planned


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_nothing_changed(finished: Path) -> None:
    assert "Nothing to be done" in mini(finished, "-n").stdout


def test_config_text_is_never_executed(finished: Path) -> None:
    assert (
        finished / "results/prepared sets' $(touch executed)/mnist5k/raw/manifest.json"
    ).is_file()
    assert not list(finished.rglob("executed"))


def test_a_recipe_value_when_snakemake_remembers_nothing(finished: Path) -> None:
    """As after a Snakemake was killed and its SLURM jobs went on: they write records, and nothing
    into its memory.
    """
    shutil.rmtree(finished / ".snakemake")
    assert planned(finished) == {}
    edit(finished / "config/recipes/mini.yaml", base_lr=0.03)
    assert planned(finished)["train"] == 2
    assert ask(finished, "failures").returncode == 0
    assert planned(finished)["train"] == 2


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("parts", True),
        pytest.param("small", True, marks=pytest.mark.more),
        pytest.param("other", False, marks=pytest.mark.more),
    ],
)
def test_a_model_of_the_users(finished: Path, file: str, stale: bool) -> None:
    """A file, or one that it imports, makes its own runs stale; the model that timm brings stays
    fresh.
    """
    append(finished / f"config/models/nets/{file}.py", "# changed\n")
    assert planned(finished) == (
        {"preflight": 1, "train": 1, "collect": 1, "figure_data": 2, "figure": 2} if stale else {}
    )
    if stale:
        assert "the source of the model changed" in ask(finished, "plan").stdout


@pytest.mark.more
def test_one_more_worker_count(finished: Path) -> None:
    study = finished / "config/studies/mini.yaml"
    study.write_text(study.read_text().replace("workers: [1]", "workers: [1, 2]", 1))
    assert planned(finished) == {"train": 1, "collect": 1, "figure_data": 1, "figure": 1}


@pytest.mark.more
def test_how_runs_are_started(finished: Path) -> None:
    """Launcher flags and what is asked of the machine are no settings of a run; the machine is
    looked at again.
    """
    edit(
        finished / "config/machines/mini.yaml",
        environment={"GLOO_SOCKET_IFNAME": "lo"},
        images_per_s={"lenet": 9},
    )
    append(finished / "workflow/ddlbench/plan/launch.py", "\nCHANGED = 1\n")
    assert planned(finished) == {"preflight": 1}


def test_one_figure_is_one_target(finished: Path) -> None:
    figure = finished / "results/mini/mini/figures/throughput.png"
    figure.unlink()
    done = mini(finished, "-np", str(figure.relative_to(finished)))
    assert "figure throughput" in done.stdout
    assert "figure accuracy" not in done.stdout
