"""`study.json`, and what `ddlbench export` makes of it; as the programs that it is for read it
(slow: fetched).
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis.scaling import scaling
from ddlbench.commands.of_study import export
from ddlbench.core import registry
from ddlbench.core.formatting import around, four_digits
from ddlbench.outlook import exports
from ddlbench.outlook.exports import application
from ddlbench.settings.config import ConfigError

from tests.builders.records import SPEC, write_record
from tests.conftest import Once
from tests.unit.pages import make

pytestmark = pytest.mark.more


def test_a_study_says_for_programs_what_its_page_says(tmp_path: Path) -> None:
    home = make(tmp_path).parent
    found = json.loads((home / "study.json").read_text())
    assert (found["version"], found["study"], found["machine"]) == (1, "test", "local")
    runs = pd.read_parquet(home / "tables/runs.parquet").set_index("run")
    by_framework = {point["settings"]["framework"]: point for point in found["points"]}
    assert set(by_framework) == {"ddp", "horovod"}
    for point in by_framework.values():
        assert len(point["runs"]) == 2
        rate = point["quantities"]["throughput_images_per_s"]
        values = runs.loc[point["runs"], "throughput_images_per_s"]
        assert (rate["unit"], rate["n"]) == ("images/s", 2)
        assert (
            rate["median"] == pytest.approx(values.median())
            and rate["low"] < rate["median"] < rate["high"]
        )
    assert {one["question"] for one in found["answers"]} >= {"Which framework?"}
    assert {row["throughput_images_per_s"] for row in found["scaling"]} == {
        point["quantities"]["throughput_images_per_s"]["median"] for point in found["points"]
    }


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make(tmp_path).parent
    monkeypatch.setattr(registry, "importable", lambda package: False)
    with pytest.raises(
        ConfigError,
        match=r"--to mlflow: package mlflow is not installed here; pip install mlflow==",
    ):
        exports.export("mlflow", home)
    monkeypatch.setattr(registry, "importable", lambda package: True)
    (home / "study.json").write_text('{"version": 0}')
    with pytest.raises(ConfigError, match=r"study\.json: expected version 1"):
        exports.export("mlflow", home)
    (home / "study.json").unlink()
    with pytest.raises(ConfigError, match=r"study\.json: is not there"):
        exports.export("mlflow", home)
    assert not (home / "export").exists()


SCALED = [replace(SPEC, workers=n, global_batch=4 * n, repeat=r) for n in (1, 2, 4) for r in (1, 2)]
HOSTILE = "- [now](javascript:alert(1)) ![x](x) <b> a|b $x$ &amp; \x1b[31m \n# y"


def scaled(folder: Path, title: str = "T") -> Path:
    """The folder of a study of one series over 1, 2 and 4 workers, of two runs each."""
    return make(
        folder, title, records=[write_record(folder / "results/runs", spec) for spec in SCALED]
    ).parent


def test_spreads_of_single_runs_are_no_settings() -> None:
    point = {"framework": "ddp", "workers": 1, "repeats": 1, "spread_low": 0.91, "spread_high": 1.1}
    same, differing = application.same_and_differing(
        [point, {**point, "workers": 2, "spread_low": 0.8}]
    )
    assert (same, differing) == ({"framework": "ddp"}, [])


def tables(text: str) -> dict[str, list[list[str]]]:
    """The cells of each table in Markdown, its header first, by the heading that it stands
    under.
    """
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|") and not line.startswith("|---"):
            found.setdefault(heading, []).append(
                [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            )
    return found


def test_an_application_has_the_studys_numbers(tmp_path: Path) -> None:
    home = scaled(tmp_path)
    out = exports.export("application", home)
    assert [path.name for path in out.iterdir()] == ["scaling.md"]
    found = tables((out / "scaling.md").read_text())
    rows = scaling(pd.read_parquet(home / "tables/runs.parquet"))
    header, *points = found["Measured scaling"]
    assert header == ["workers", "samples/s", "speed-up", "efficiency", "runs"]
    assert [(row[0], row[-1]) for row in points] == [("1", "2"), ("2", "2"), ("4", "2")]
    for at, name in enumerate(("throughput_images_per_s", "speed_up", "efficiency"), 1):
        columns = [rows[f"{name}{end}"] for end in ("", "_low", "_high")]
        assert [row[at] for row in points] == [
            around(*values) for values in zip(*columns, strict=True)
        ]
    assert points[2][2] != four_digits(rows["speed_up"].iloc[2])  # it has its interval


@pytest.mark.slow
def test_an_application_asks_for_what_is_to_be_made(tmp_path: Path) -> None:
    home = scaled(tmp_path)
    source = home / "study.json"
    document = json.loads(source.read_text())
    (group,) = document["budget"]["jobs"]  # four runs of 90 s on two workers
    assert (group["done"], group["jobs"], group["workers"], group["hours"]) == (
        True,
        4,
        2,
        pytest.approx(0.025),
    )
    assert document["budget"] | {"jobs": []} == {
        "unit": "GPU hours",
        "jobs": [],
        "done": pytest.approx(4 * 2 * 0.025),
        "to_be_made": 0,
    }
    missing = group | {
        "workers": 8,
        "done": False,
        "hours": None,
        "amount": None,
        "estimate_by": ["guessed"],
    }
    document["budget"] |= {"jobs": [group, missing], "to_be_made": None}
    source.write_text(json.dumps(document))
    found = tables((exports.export("application", home) / "scaling.md").read_text())
    header, done, asked = found["Requested resources"]
    cells = [dict(zip(header, row, strict=True)) for row in (done, asked)]
    assert [row["workers"] for row in cells] == ["2", "8"]
    assert [row["state"] for row in cells] == ["done", "to be made"]
    assert [row["hours each"] for row in cells] == ["0.025", "unknown"]
    assert [row["GPU hours"] for row in cells] == ["0.2", "unknown"]
    software = dict(found["Hardware and software"])
    assert software["frameworks"] == "ddp 2.0" and software["torch version"] == "2.0"


@pytest.mark.slow
def test_an_application_has_what_a_study_says_as_text(tmp_path: Path) -> None:
    """No link, picture, markup or cell of its own."""
    home = scaled(tmp_path, HOSTILE)
    text = (exports.export("application", home) / "scaling.md").read_text()
    assert "\x1b" not in text and re.findall(r"(?<!\\)[\[<$]", text) == []
    assert text.startswith(
        r"# Scaling: - \[now\](javascript:alert(1)) \!\[x\](x) \<b\> a\|b \$x\$ \&amp;"
    )
    assert all(len({*map(len, rows)}) == 1 for rows in tables(text).values())


@pytest.mark.slow
def test_a_document_without_a_budget_is_refused(tmp_path: Path) -> None:
    home = scaled(tmp_path)
    document = json.loads((home / "study.json").read_text())
    del document["budget"]
    (home / "study.json").write_text(json.dumps(document))
    with pytest.raises(
        ConfigError, match=r"study\.json: has no budget; make it again: snakemake page"
    ):
        exports.export("application", home)
    assert [*(home / "export").iterdir()] == []


@pytest.mark.slow
def test_what_is_there_is_exported_where_the_whole_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = scaled(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = SimpleNamespace(home="test/local")
    call: Any = SimpleNamespace(
        options=SimpleNamespace(to="application"), settings=SimpleNamespace(plan=plan)
    )
    shutil.copytree(home, home / "partial")
    assert (
        export.run(call) == 0
        and (home / "export").exists()
        and not (home / "partial/export").exists()
    )
    (home / "study.json").unlink()
    assert export.run(call) == 0 and (home / "partial/export/application/scaling.md").exists()


@pytest.fixture(scope="session")
def others(once: Once) -> Path:
    """A Python that has all programs that are exported to, beside our packages."""

    def fetch(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "ours.pth").write_text(sysconfig.get_path("purelib"))
        packages = [registry.member("exports", kind).PACKAGE for kind in OPENED]
        pip = [folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*pip, *packages], check=True, capture_output=True)

    return once("exports", fetch) / "bin/python"


EXPORT = (
    "import sys, pathlib; from ddlbench.outlook.exports import export; export(sys.argv[1],"
    " pathlib.Path())"
)
OPENED = {
    "tensorboard": (
        """
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
read = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
for run, tags in read.Runs().items():
    print(run, read.Scalars(run, "run/throughput_images_per_s")[0].value, len(read.Scalars(run, "loss")))
"""
    ),
    "mlflow": (
        """
from mlflow.tracking import MlflowClient
client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
(experiment,) = [one for one in client.search_experiments() if one.name == "test"]
for run in client.search_runs([experiment.experiment_id]):
    rate = run.data.metrics["throughput_images_per_s"]
    print(run.info.run_name, rate, len(client.get_metric_history(run.info.run_id, "epoch/loss")))
    assert "epoch/throughput_images_per_s" in run.data.metrics
    assert run.data.params["framework"] in run.info.run_name and run.info.status == "FINISHED"
"""
    ),
    "rocrate": (
        """
from rocrate.rocrate import ROCrate
crate = ROCrate(str(folder))
assert "test on local" in crate.name
files = {one.id for one in crate.get_by_type("File")}
assert {"index.html", "study.json", "tables/runs.parquet", "figures/one.svg"} <= files
assert all((folder / name).is_file() for name in files)
"""
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPENED)
def test_an_export_is_read_by_its_program(kind: str, others: Path, tmp_path: Path) -> None:
    home = make(tmp_path).parent
    own = os.environ | {"MLFLOW_LOGGING_LEVEL": "ERROR"}
    for _ in range(2):  # the second takes the first one's place
        done = subprocess.run(
            [others, "-c", EXPORT, kind], capture_output=True, text=True, env=own, cwd=home
        )
        assert done.returncode == 0, done.stderr[-3000:]
    folder = home / "export" / kind
    assert [path.name for path in folder.parent.iterdir()] == [kind]
    code = f"from pathlib import Path\nfolder = Path({str(folder)!r})\n{OPENED[kind]}"
    done = subprocess.run(
        [others, "-c", code], capture_output=True, text=True, env=own, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if kind == "rocrate":
        return
    runs = pd.read_parquet(home / "tables/runs.parquet").set_index("run")
    epochs = pd.read_parquet(home / "tables/epochs.parquet")
    read = {
        line.split()[0]: line.split()[1:]
        for line in done.stdout.splitlines()
        if line.split()[0] in runs.index
    }
    assert set(read) == set(runs.index)
    for run, (rate, losses) in read.items():
        assert float(rate) == pytest.approx(runs.loc[run, "throughput_images_per_s"], rel=1e-6)
        assert int(losses) == (epochs["run"] == run).sum() > 0
