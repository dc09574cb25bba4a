"""Machines: two that we ship, texts of files that are good, and `write_machine` for others."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import Machine, load_machine

JUWELS = load_machine("juwels-booster")
LAPTOP = replace(
    load_machine("local"), workers_per_node=2
)  # two workers fit, whatever computer tests this

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


def write_machine(
    folder: Path, shipped: str | Mapping[str, Any], name: str = "mine", **changes: Any
) -> Machine:
    """A machine with these keys, or with those of one that we ship, and others laid over them.
    Loads it.
    """
    if isinstance(shipped, str):
        shipped = yaml.safe_load((CONFIG / f"machines/{shipped}.yaml").read_text(encoding="utf-8"))
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**shipped, **changes}), encoding="utf-8")
    return load_machine(name, folder)
