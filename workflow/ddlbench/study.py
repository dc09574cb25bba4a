"""A study: one YAML file that names axes and figures; read and checked here, made into runs in `plan.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ddlbench import registry
from ddlbench.config import CONFIG, ConfigError, check, complain, names_in, one_of, read_yaml
from ddlbench.spec import Recipe, RunSpec

SCHEDULES = ("step", "cosine", "exponential")
# Axes whose values are names of members; the rest are numbers.
NAMED_AXES: dict[str, Callable[[], tuple[str, ...]]] = {
    "models": registry.models,
    "frameworks": lambda: registry.members("frameworks"),
    "loaders": lambda: registry.members("loaders"),
    "schedules": lambda: SCHEDULES,
}
# What each block needs, from itself or from the top level of its study; and one of BATCH.
REQUIRED = ("dataset", "recipe", "epochs", "models", "frameworks", "loaders", "workers", "schedules")
BATCH = ("batch_per_worker", "global_batch")
# Columns of the tables that a figure may select by.
COLUMNS = ("run", "nodes", *(field.name for field in fields(RunSpec)))


@dataclass(frozen=True)
class Block:
    """One product of axes in a study; the study's top-level keys with this block's own laid over them.

    Batch sizes are either per worker (weak scaling) or global; the other tuple is empty.
    """

    name: str
    dataset: str
    recipe: Recipe
    epochs: int
    repeats: int
    profiled: bool
    timed: bool
    models: tuple[str, ...]
    frameworks: tuple[str, ...]
    loaders: tuple[str, ...]
    workers: tuple[int, ...]
    batch_per_worker: tuple[int, ...]
    global_batch: tuple[int, ...]
    schedules: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """One picture: the member of `figures/` that draws it, the blocks whose runs it shows, its settings."""

    name: str
    plot: str
    runs: tuple[str, ...]
    title: str
    reference: str | None
    select: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def reference_file(self) -> str | None:
        """The file with published numbers that is drawn beside, from the working directory."""
        return os.path.relpath(CONFIG / "references" / f"{self.reference}.csv") if self.reference else None


@dataclass(frozen=True)
class Study:
    """A checked study file. Which machine it runs on is not its business."""

    name: str
    path: Path
    title: str
    blocks: tuple[Block, ...]
    figures: tuple[Figure, ...]


def load_recipe(name: str, folder: Path = CONFIG / "recipes") -> Recipe:
    """The recipe of that name. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data = check(read_yaml(path), "recipe", path)
    data["step_epochs"] = tuple(data["step_epochs"])
    return Recipe(name=name, **data)


def load_study(name: str, folder: Path = CONFIG / "studies") -> Study:
    """The study of that name, with recipes found beside its folder. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data = check(read_yaml(path), "study", path)
    common = {k: v for k, v in data.items() if k not in ("title", "runs", "figures")}
    blocks = tuple(_block(path, n, common, own, folder.parent / "recipes") for n, own in data["runs"].items())
    figures = tuple(_figure(path, n, own, data["runs"], folder.parent) for n, own in data["figures"].items())
    return Study(name, path, data["title"], blocks, figures)


def _block(path: Path, name: str, common: dict[str, Any], own: dict[str, Any], recipes: Path) -> Block:
    if own.keys() & set(BATCH):  # a block's own way of saying the batch replaces the study's
        common = {k: v for k, v in common.items() if k not in BATCH}
    merged = common | own
    for key in REQUIRED:
        if key not in merged:
            raise ConfigError(f"{path}: runs.{name}.{key}: is missing, here and at the study's top level")
    batches = [key for key in BATCH if key in merged]
    if len(batches) != 1:
        raise complain(path, f"runs.{name}", batches, f"allowed: exactly one of {' and '.join(BATCH)}")

    def where(key: str) -> str:
        return f"runs.{name}.{key}" if key in own else key

    for key, members in NAMED_AXES.items():
        if key == "models" and members() == registry.OWN_MODELS:
            continue  # timm is not installed here (a login node): the job checks the name
        for value in merged[key]:
            _is_one_of(members(), value, path, where(key))
    _is_one_of(registry.members("datasets"), merged["dataset"], path, where("dataset"))
    _is_one_of(names_in(recipes, ".yaml"), merged["recipe"], path, where("recipe"))
    axes = {k: tuple(v) for k, v in merged.items() if isinstance(v, list)}
    scalars = {k: v for k, v in merged.items() if not isinstance(v, list)}
    empty: dict[str, tuple[int, ...]] = dict.fromkeys(BATCH, ())
    return Block(name=name, **empty | axes | scalars | {"recipe": load_recipe(merged["recipe"], recipes)})


def _figure(path: Path, name: str, own: dict[str, Any], blocks: dict[str, Any], config: Path) -> Figure:
    key = f"figures.{name}"
    _is_one_of(registry.members("figures"), own["plot"], path, f"{key}.plot")
    runs = own.get("runs", list(blocks))
    for block in runs:
        _is_one_of(blocks, block, path, f"{key}.runs")
    reference = own.get("reference")
    if reference is not None:
        _is_one_of(names_in(config / "references", ".csv"), reference, path, f"{key}.reference")
    select = own.get("select", {})
    for column in select:
        if column not in COLUMNS:
            raise ConfigError(f"{path}: {key}.select.{column}: unknown column; {one_of(COLUMNS, column)}")
    chosen = tuple((c, tuple(v) if isinstance(v, list) else (v,)) for c, v in select.items())
    return Figure(name, own["plot"], tuple(runs), own.get("title", name), reference, chosen)


def check_sources(sources: Iterable[str], file: str | Path = "config/config.yaml") -> None:
    """Raises ConfigError if `data.sources` of the config names something that is no data set."""
    known = registry.members("datasets")
    for name in sources:
        if name not in known:
            raise ConfigError(f"{file}: data.sources.{name}: unknown data set; {one_of(known, name)}")


def _is_one_of(names: Iterable[str], value: str, path: Path, key: str) -> None:
    """Raises ConfigError if `value` is none of the names."""
    names = list(names)
    if value not in names:
        raise complain(path, key, value, one_of(names, value))
