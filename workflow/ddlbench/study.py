"""A study: one YAML file that names axes and the figures made from them; read and checked here, planned in `plan.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench import registry
from ddlbench.config import CONFIG, ConfigError, check, complain, one_of, read_yaml
from ddlbench.spec import Recipe

SCHEDULES = ("step", "cosine", "exponential")
# Axes whose values are names of members; the rest are numbers.
NAMED_AXES = {
    "models": registry.models,
    "frameworks": lambda: registry.members("frameworks"),
    "loaders": lambda: registry.members("loaders"),
    "schedules": lambda: SCHEDULES,
}


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
    """One picture: the member of `figures/` that draws it, the blocks whose runs it shows, and what it is given."""

    name: str
    plot: str
    runs: tuple[str, ...]
    title: str
    reference: str | None
    select: tuple[tuple[str, tuple[Any, ...]], ...]


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
    batch_keys = {"batch_per_worker", "global_batch"}
    if batch_keys & own.keys():  # a block's own way of saying the batch replaces the study's
        common = {k: v for k, v in common.items() if k not in batch_keys}
    merged = common | own
    for key in ("dataset", "recipe", "epochs", "models", "frameworks", "loaders", "workers", "schedules"):
        if key not in merged:
            raise ConfigError(f"{path}: runs.{name}.{key}: is missing, here and at the study's top level")
    if len(batch_keys & merged.keys()) != 1:
        raise ConfigError(f"{path}: runs.{name}: allowed: exactly one of batch_per_worker and global_batch")

    def where(key: str) -> str:
        return f"runs.{name}.{key}" if key in own else key

    for key, names in NAMED_AXES.items():
        for value in merged[key]:
            if value not in names():
                raise complain(path, where(key), value, one_of(names(), value))
    if merged["dataset"] not in registry.members("datasets"):
        datasets = registry.members("datasets")
        raise complain(path, where("dataset"), merged["dataset"], one_of(datasets, merged["dataset"]))
    if not (recipes / f"{merged['recipe']}.yaml").is_file():
        known = [p.stem for p in recipes.glob("*.yaml")]
        raise complain(path, where("recipe"), merged["recipe"], one_of(known, merged["recipe"]))
    axes = {k: tuple(v) for k, v in merged.items() if isinstance(v, list)}
    scalars = {k: v for k, v in merged.items() if not isinstance(v, list)}
    empty: dict[str, tuple[int, ...]] = {"batch_per_worker": (), "global_batch": ()}
    return Block(name=name, **empty | axes | scalars | {"recipe": load_recipe(merged["recipe"], recipes)})


def _figure(path: Path, name: str, own: dict[str, Any], blocks: dict[str, Any], config: Path) -> Figure:
    if own["plot"] not in registry.members("figures"):
        raise complain(
            path, f"figures.{name}.plot", own["plot"], one_of(registry.members("figures"), own["plot"])
        )
    runs = own.get("runs", list(blocks))
    for block in runs:
        if block not in blocks:
            raise complain(path, f"figures.{name}.runs", block, one_of(blocks, block))
    reference = own.get("reference")
    if reference is not None and not (config / "references" / f"{reference}.csv").is_file():
        known = [p.stem for p in (config / "references").glob("*.csv")]
        raise complain(path, f"figures.{name}.reference", reference, one_of(known, reference))
    select = tuple(
        (column, tuple(values) if isinstance(values, list) else (values,))
        for column, values in own.get("select", {}).items()
    )
    return Figure(name, own["plot"], tuple(runs), own.get("title", name), reference, select)
