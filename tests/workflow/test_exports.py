"""`study.json`, and what `ddlbench export` makes of it, as the programs that it is for read it (slow: fetched)."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.core import registry
from ddlbench.outlook import exports
from ddlbench.settings.config import ConfigError

from tests.conftest import Once
from tests.unit.pages import make


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
        assert rate["median"] == pytest.approx(values.median()) and rate["low"] < rate["median"] < rate["high"]
    assert {one["question"] for one in found["answers"]} >= {"Which framework?"}
    assert {row["throughput_images_per_s"] for row in found["scaling"]} == {
        point["quantities"]["throughput_images_per_s"]["median"] for point in found["points"]
    }


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make(tmp_path).parent
    monkeypatch.setattr(registry, "importable", lambda package: False)
    with pytest.raises(ConfigError, match=r"--to mlflow: package mlflow is not installed here; pip install mlflow=="):
        exports.export("mlflow", home)
    monkeypatch.setattr(registry, "importable", lambda package: True)
    (home / "study.json").write_text('{"version": 0}')
    with pytest.raises(ConfigError, match=r"study\.json: version 1 is wanted"):
        exports.export("mlflow", home)
    (home / "study.json").unlink()
    with pytest.raises(ConfigError, match=r"study\.json: is not there"):
        exports.export("mlflow", home)
    assert not (home / "export").exists()


@pytest.fixture(scope="session")
def others(once: Once) -> Path:
    """A Python that has all programs that are exported to, beside our packages."""

    def fetch(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "ours.pth").write_text(sysconfig.get_path("purelib"))
        packages = [registry.member("exports", kind).PACKAGE for kind in registry.members("exports")]
        pip = [folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*pip, *packages], check=True, capture_output=True)

    return once("exports", fetch) / "bin/python"


EXPORT = "import sys, pathlib; from ddlbench.outlook.exports import export; export(sys.argv[1], pathlib.Path())"
OPENED = {
    "tensorboard": """
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
read = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
for run, tags in read.Runs().items():
    print(run, read.Scalars(run, "run/throughput_images_per_s")[0].value, len(read.Scalars(run, "loss")))
""",
    "mlflow": """
from mlflow.tracking import MlflowClient
client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
(experiment,) = [one for one in client.search_experiments() if one.name == "test"]
for run in client.search_runs([experiment.experiment_id]):
    rate = run.data.metrics["throughput_images_per_s"]
    print(run.info.run_name, rate, len(client.get_metric_history(run.info.run_id, "loss")))
    assert run.data.params["framework"] in run.info.run_name and run.info.status == "FINISHED"
""",
    "rocrate": """
from rocrate.rocrate import ROCrate
crate = ROCrate(str(folder))
assert "test on local" in crate.name
files = {one.id for one in crate.get_by_type("File")}
assert {"index.html", "study.json", "tables/runs.parquet", "figures/one.svg"} <= files
assert all((folder / name).is_file() for name in files)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", registry.members("exports"))
def test_an_export_is_read_by_its_program(kind: str, others: Path, tmp_path: Path) -> None:
    home = make(tmp_path).parent
    own = os.environ | {"MLFLOW_LOGGING_LEVEL": "ERROR"}
    for _ in range(2):  # the second takes the first one's place
        done = subprocess.run([others, "-c", EXPORT, kind], capture_output=True, text=True, env=own, cwd=home)
        assert done.returncode == 0, done.stderr[-3000:]
    folder = home / "export" / kind
    assert [path.name for path in folder.parent.iterdir()] == [kind]
    code = f"from pathlib import Path\nfolder = Path({str(folder)!r})\n{OPENED[kind]}"
    done = subprocess.run([others, "-c", code], capture_output=True, text=True, env=own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    if kind == "rocrate":
        return
    runs = pd.read_parquet(home / "tables/runs.parquet").set_index("run")
    epochs = pd.read_parquet(home / "tables/epochs.parquet")
    read = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.split()[0] in runs.index}
    assert set(read) == set(runs.index)
    for run, (rate, losses) in read.items():
        assert float(rate) == pytest.approx(runs.loc[run, "throughput_images_per_s"], rel=1e-6)
        assert int(losses) == (epochs["run"] == run).sum() > 0
