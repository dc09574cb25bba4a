"""Good files of each kind under config/, for tests that spoil them."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError, read_yaml
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import Study, load_study
from ddlbench.settings.workflow import check_config

STUDY = """\
title: A study
dataset: mnist5k
recipe: demo
models: [lenet]
schedules: [cosine]
epochs: 2
repeats: 1
runs:
  scaling:
    frameworks: [ddp]
    loaders: [native]
    workers: [1, 2]
    batch_per_worker: [64]
  batch-size:
    frameworks: [ddp]
    loaders: [native]
    workers: [2]
    global_batch: [128]
figures:
  efficiency:
    plot: efficiency
    runs: [scaling]
    reference: aach2023
    select: {loader: native}
"""

MACHINE = """\
launcher: local
device: cpu
device_name: CPU core
nodes: 1
workers_per_node: 2
cores_per_worker: 1
loader_threads: 1
data: results/data
environment: {A: b}
images_per_s: {lenet: 1000}
"""

CLUSTER = """\
launcher: slurm
device: cuda
device_name: GPU
nodes: 2
workers_per_node: 4
partitions:
  - {name: gpu, max_nodes: 2, max_minutes: 60}
"""

RECIPE = """\
base_lr: 0.1
base_batch: 256
momentum: 0.9
weight_decay: 0.0001
warmup_epochs: 1
step_epochs: [1, 2]
image_size: 32
nesterov: false
"""

WHERE = """\
study: mine
machine: mine
account: null
"""


def bad_input(section: str, inputs: int = 1) -> list[tuple[Any, ...]]:
    """Rows of a section of `bad_input.txt`, which says how they are written: so many cells, and the facts as one."""
    text = Path(__file__).with_name("bad_input.txt").read_text(encoding="utf-8")
    (rows,) = re.findall(rf"^## {section}: .*\n((?:[^#]|#(?!#))*)", text, re.MULTILINE)
    lines = [line for line in rows.splitlines() if line and not line.startswith("#")]
    cells = [[cell.encode().decode("unicode_escape") for cell in line.split(" | ")] for line in lines]
    return [(*row[:inputs], tuple(row[inputs:])) for row in cells]


def write_study(folder: Path, text: str | Mapping[str, Any], name: str = "mine") -> Study:
    """A study of this text, or of these keys, in a folder like config/ with our recipes and references. Loads it."""
    for shared in ("recipes", "references"):
        if not (folder / shared).exists():
            (folder / shared).symlink_to(CONFIG / shared)
    (folder / "studies").mkdir(exist_ok=True)
    text = text if isinstance(text, str) else yaml.safe_dump(text)
    (folder / f"studies/{name}.yaml").write_text(text, encoding="utf-8")
    return load_study(name, folder / "studies")


def write_machine(folder: Path, shipped: str | Mapping[str, Any], name: str = "mine", **changes: Any) -> Machine:
    """A machine with these keys, or with those of one that we ship, and others laid over them. Loads it."""
    if isinstance(shipped, str):
        shipped = yaml.safe_load((CONFIG / f"machines/{shipped}.yaml").read_text(encoding="utf-8"))
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**shipped, **changes}), encoding="utf-8")
    return load_machine(name, folder)


class Files:
    """A copy of config/ with a good file of each kind, named mine, to spoil."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(CONFIG, folder)
        self.folder = folder
        self.path = {
            "study": folder / "studies/mine.yaml",
            "machine": folder / "machines/mine.yaml",
            "cluster": folder / "machines/cluster.yaml",
            "recipe": folder / "recipes/mine.yaml",
            "config": folder / "config.yaml",
        }
        for kind, text in zip(self.path, (STUDY, MACHINE, CLUSTER, RECIPE, WHERE), strict=True):
            self.path[kind].write_text(text, encoding="utf-8")

    def spoil(self, kind: str, right: str, wrong: str) -> None:
        """Replace the first `right` in a file."""
        text = self.path[kind].read_text(encoding="utf-8")
        assert right in text
        self.path[kind].write_text(text.replace(right, wrong, 1), encoding="utf-8")

    def machine(self, name: str = "mine") -> Machine:
        """A machine of this copy."""
        return load_machine(name, self.folder / "machines")

    def load(self) -> None:
        """All that a workflow reads before it starts."""
        settings = check_config(read_yaml(self.path["config"]), str(self.path["config"]))
        study = load_study(settings["study"], self.folder / "studies")
        self.machine("cluster")
        make_plan(study, self.machine(settings["machine"]))

    def complaint(self, load: Callable[[], object] | None = None) -> str:
        """The one line that loading says."""
        with pytest.raises(ConfigError) as error:
            (load or self.load)()
        text = str(error.value)
        assert text.strip()
        assert "\n" not in text
        return text
