"""Where runs happen: `config/machines/<name>.yaml` as a frozen value; `launch.py` makes commands of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.settings.config import CONFIG, ConfigError, check, complain, read_yaml


@dataclass(frozen=True)
class Partition:
    """A queue of a SLURM machine: at most `max_nodes` nodes for at most `max_minutes`."""

    name: str
    max_nodes: int
    max_minutes: int


@dataclass(frozen=True)
class Machine:
    """One machine; every key is explained in `config/README.md`."""

    name: str
    launcher: str
    device: str
    device_name: str
    gpu_name: str | None
    nodes: int
    workers_per_node: int
    cores_per_worker: int
    loader_threads: int
    memory_mb_per_worker: int | None
    data: str
    partitions: tuple[Partition, ...]
    modules: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    host_suffix: str
    images_per_s: tuple[tuple[str, float], ...]
    peak_tflops_per_worker: tuple[tuple[str, float], ...]
    cores_per_node_billed: int | None
    price_per_gpu_hour: float | None
    currency: str | None
    power_per_worker_w: float | None
    power_per_node_w: float | None
    pue: float | None

    @property
    def workers(self) -> int:
        """The most workers that one run can have."""
        return self.nodes * self.workers_per_node

    def partition(self, nodes: int, minutes: int | None = None) -> Partition | None:
        """The first partition with room for so many nodes and minutes, else the one that gives them most minutes.

        None if none holds so many nodes. `minutes` is None where nobody knows how long it will take.
        """
        wide = [p for p in self.partitions if nodes <= p.max_nodes]
        enough = (p for p in wide if minutes is not None and minutes <= p.max_minutes)
        return next(enough, max(wide, key=lambda p: p.max_minutes, default=None))


def expand(text: str) -> str:
    """`${NAME}` and `${NAME:-default}` as a shell would; an unset name without default stays as it is."""
    return re.sub(
        r"\$\{(\w+)(?::-([^}]*))?\}",
        lambda m: os.environ.get(m[1]) or (m[2] if m[2] is not None else m[0]),
        text,
    )


def load_machine(name: str, folder: Path = CONFIG / "machines") -> Machine:
    """The machine of that name. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data: dict[str, Any] = check(read_yaml(path), "machine", path)
    if data["launcher"] == "slurm":
        _check_slurm(data, path)
    if (data["price_per_gpu_hour"] is None) != (data["currency"] is None):
        raise complain(path, "currency", data["currency"], "allowed: one with price_per_gpu_hour, none without")
    data["workers_per_node"] = data["workers_per_node"] or len(os.sched_getaffinity(0))
    if data["launcher"] == "local" and data["nodes"] != 1:
        raise complain(path, "nodes", data["nodes"], "allowed: 1, because launcher is local")
    partitions = tuple(Partition(**p) for p in data.pop("partitions"))
    environment = tuple(sorted((k, str(v)) for k, v in data.pop("environment").items()))
    for table in ("images_per_s", "peak_tflops_per_worker"):
        data[table] = tuple(sorted(data[table].items()))
    modules = tuple(data.pop("modules"))
    data["data"] = expand(data["data"])
    return Machine(name=name, partitions=partitions, environment=environment, modules=modules, **data)


def _check_slurm(data: dict[str, Any], path: Path) -> None:
    """Raises ConfigError without a partition, or workers a node, or if no partition holds so many nodes."""
    if not data["partitions"]:
        raise ConfigError(f"{path}: partitions: is missing; a machine with launcher slurm needs at least one")
    if data["workers_per_node"] is None:  # the cores of a login node say nothing
        raise ConfigError(f"{path}: workers_per_node: is missing; a machine with launcher slurm needs it")
    largest = max(partition["max_nodes"] for partition in data["partitions"])
    if data["nodes"] > largest:
        allowed = f"allowed: at most {largest}, the most that one of its partitions holds"
        raise complain(path, "nodes", data["nodes"], allowed)
