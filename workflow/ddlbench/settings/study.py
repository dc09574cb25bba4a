"""A study: one YAML file that names axes and figures; read and checked here, made into runs in `plan/runs.py`."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.core.spec import COLUMNS
from ddlbench.settings.config import CONFIG, ConfigError, check, check_against, complain, names_in, one_of, schema
from ddlbench.settings.inference import Inference, inference
from ddlbench.settings.reading import read_yaml
from ddlbench.settings.recipe import RecipeFile, load_recipe

SCHEDULES = ("step", "cosine", "exponential", "polynomial")
# Axes whose values are names of members; the rest are numbers. Frameworks are members too, or variants of a study.
NAMED_AXES: dict[str, Callable[[], tuple[str, ...]]] = {
    "models": registry.models,
    "loaders": lambda: registry.members("loaders"),
    "schedules": lambda: SCHEDULES,
}
# What each block needs, from itself or from the top level of its study; and one of BATCH, and one of LENGTH.
REQUIRED = ("dataset", "recipe", "models", "frameworks", "loaders", "workers", "schedules")
BATCH = ("batch_per_worker", "global_batch")
LENGTH = ("epochs", "measure")


@dataclass(frozen=True)
class Framework:
    """A framework as a study names it: a member of `frameworks/`, or a variant with options (see RunSpec)."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Block:
    """One product of axes in a study; the study's top-level keys with this block's own laid over them.

    Batch sizes are either per worker (weak scaling) or global; the other tuple is empty. `epochs` are trained; the
    whole training has `of_epochs`, which are more where a block only measures throughput. Recipes are as their files
    say: no batch size is chosen yet. `fit` leaves out numbers of workers that the machine does not have. Runs with
    `interrupt_steps` are killed after so many steps, and go on.
    """

    name: str
    dataset: str
    recipe: RecipeFile
    epochs: int
    of_epochs: int | None
    repeats: int
    profiled: bool
    timed: bool
    fit: bool
    form: str | None
    interrupt_steps: int | None
    models: tuple[str, ...]
    frameworks: tuple[Framework, ...]
    loaders: tuple[str, ...]
    workers: tuple[int, ...]
    batch_per_worker: tuple[int, ...]
    global_batch: tuple[int, ...]
    schedules: tuple[str, ...]
    bandwidths_mbit: tuple[int, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One picture: the member of `figures/` that draws it, the blocks whose runs it shows, its settings.

    `basis` is the time that speed-up and efficiency compare: `steps` or `run`.
    """

    name: str
    plot: str
    runs: tuple[str, ...]
    title: str
    reference: str | None
    select: tuple[tuple[str, tuple[Any, ...]], ...]
    basis: str = "steps"
    target: float | None = None

    @property
    def reference_file(self) -> str | None:
        """The file of published numbers that is drawn beside, relative to the working directory."""
        return os.path.relpath(CONFIG / "references" / f"{self.reference}.csv") if self.reference else None


@dataclass(frozen=True)
class Control:
    """The run of block `runs` is repeated after every `every` timed runs of the study."""

    every: int
    runs: str


@dataclass(frozen=True)
class Published:
    """Records of others that a study shows: their kind (a member of `records/`), their folder, and which benchmarks."""

    kind: str
    folder: str
    benchmarks: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A checked study file. It does not say on which machine it runs.

    Its own blocks come first; those that figures borrow from other studies follow, by the name `study/block`.
    A figure is marked if its runs break a rule of the audit whose severity is `fail_on` or worse; None marks none.
    A study of `records` of others plans no runs and has no blocks.
    """

    name: str
    path: Path
    title: str
    blocks: tuple[Block, ...]
    figures: tuple[Figure, ...]
    fail_on: str | None = None
    control: Control | None = None
    records: Published | None = None
    inference: Inference | None = None


def load_study(name: str, folder: Path = CONFIG / "studies") -> Study:
    """The study of that name, with recipes found beside its folder. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data = check(read_yaml(path), schema("study"), path)
    published = _published(path, data)
    blocks = _blocks(path, data)
    figures = tuple(_figure(path, n, own, data["runs"], folder.parent) for n, own in data["figures"].items())
    borrowed = _borrowed(path, figures)
    if published and borrowed:
        raise complain(path, "figures", [one.name for one in borrowed], "allowed: no runs beside records of others")
    control = Control(**data["control"]) if "control" in data else None
    if control:
        _is_one_of(data["runs"], control.runs, path, "control.runs")
    blocks += borrowed
    asked = inference(path, data, data["runs"])
    return Study(name, path, data["title"], blocks, figures, data["audit"].get("fail_on"), control, published, asked)


def _blocks(path: Path, data: dict[str, Any]) -> tuple[Block, ...]:
    """A study's own blocks, of its checked file. Raises ConfigError."""
    own_keys = ("title", "variants", "runs", "figures", "audit", "control", "records", "inference")
    common = {k: v for k, v in data.items() if k not in own_keys}
    frameworks = {name: Framework(name) for name in registry.members("frameworks")}
    frameworks |= {name: _variant(path, name, own) for name, own in data["variants"].items()}
    recipes = path.parent.parent / "recipes"
    return tuple(_block(path, n, common, own, recipes, frameworks) for n, own in data["runs"].items())


def _borrowed(path: Path, figures: Iterable[Figure]) -> tuple[Block, ...]:
    """Blocks of other studies that figures show, `study/block`; runs of one id are made once. Raises ConfigError."""
    lent: dict[str, tuple[Block, ...]] = {}
    taken: dict[str, Block] = {}
    for figure in figures:
        key = f"figures.{figure.name}.runs"
        for named in figure.runs:
            study = named.partition("/")[0]
            if study == named:
                continue
            others = [name for name in names_in(path.parent, ".yaml") if name != path.stem]
            _is_one_of(others, study, path, key)
            if study not in lent:
                other = path.with_name(f"{study}.yaml")
                lent[study] = _blocks(other, check(read_yaml(other), schema("study"), other))
            blocks = {f"{study}/{one.name}": one for one in lent[study]}
            if not blocks:
                raise complain(path, key, named, f"study {study} shows records of others; allowed: a study with runs")
            _is_one_of(blocks, named, path, key)
            taken[named] = replace(blocks[named], name=named)
    return tuple(taken.values())


def _published(path: Path, data: dict[str, Any]) -> Published | None:
    """What `records` names; a study has either that or `runs`. Raises ConfigError."""
    given = data.get("records")
    if (given is None) == (not data["runs"]):
        raise complain(path, "runs", sorted({"runs", "records"} & {*data}), "allowed: either runs or records")
    if given is None:
        return None
    kinds = [kind for kind in registry.members("records") if kind != "ours"]
    _is_one_of(kinds, given["kind"], path, "records.kind")
    if not Path(given["folder"]).is_dir():
        raise complain(path, "records.folder", given["folder"], "allowed: a folder that is there, from where you start")
    return Published(given["kind"], given["folder"], tuple(given["benchmarks"]))


def _variant(path: Path, name: str, own: dict[str, Any]) -> Framework:
    """A framework with options, which its adapter knows. Raises ConfigError."""
    members = registry.members("frameworks")
    if name in members:
        raise ConfigError(f"{path}: variants.{name}: is a framework's own name; allowed: any other name")
    adapter = own["framework"]
    _is_one_of(members, adapter, path, f"variants.{name}.framework")
    known = {"framework": {"type": "string"}, **registry.options(adapter)}
    check_against(own, {"type": "object", "additionalProperties": False, "properties": known}, path, f"variants.{name}")
    defaults = registry.option_defaults(adapter)
    options = {k: v for k, v in own.items() if k == "framework" or v != defaults[k]}
    return Framework(name, tuple(sorted(options.items())))


def _block(
    path: Path,
    name: str,
    common: dict[str, Any],
    own: dict[str, Any],
    recipes: Path,
    frameworks: dict[str, Framework],
) -> Block:
    for either in (BATCH, LENGTH):
        if own.keys() & set(either):  # a block's own way of saying it replaces the study's
            common = {k: v for k, v in common.items() if k not in either}
    merged = common | own
    for key in REQUIRED:
        if key not in merged:
            raise ConfigError(f"{path}: runs.{name}.{key}: is missing, here and at the study's top level")
    for either in (BATCH, LENGTH):
        given = [key for key in either if key in merged]
        if not given:
            here = "here and at the study's top level"
            raise ConfigError(f"{path}: runs.{name}: {' or '.join(either)} is missing, {here}")
        if len(given) != 1:
            raise complain(path, f"runs.{name}", given, f"allowed: exactly one of {' and '.join(either)}")

    def where(key: str) -> str:
        return f"runs.{name}.{key}" if key in own else key

    for key, members in NAMED_AXES.items():
        if key == "models" and members() == registry.OWN_MODELS:
            continue  # timm is not installed here (a login node): the job checks the name
        for value in merged[key]:
            _is_one_of(members(), value, path, where(key))
    for value in merged["frameworks"]:
        _is_one_of(frameworks, value, path, where("frameworks"))
    _is_one_of(registry.members("datasets"), merged["dataset"], path, where("dataset"))
    _is_one_of(names_in(recipes, ".yaml"), merged["recipe"], path, where("recipe"))
    if merged["form"] is not None:
        _is_one_of(registry.members("forms"), merged["form"], path, where("form"))
    measure = merged.pop("measure", None) or {"epochs": merged["epochs"], "of": None}
    if measure["of"] is not None and measure["epochs"] > measure["of"]:
        raise complain(path, where("measure") + ".epochs", measure["epochs"], f"allowed: at most {measure['of']} (of)")
    interrupt = merged.pop("interrupt", None)
    if interrupt and merged["profiled"]:
        raise complain(path, where("interrupt"), interrupt, "allowed: none with profiled: true, which measures no time")
    axes = {k: tuple(v) for k, v in merged.items() if isinstance(v, list)}
    scalars = {k: v for k, v in merged.items() if not isinstance(v, list)}
    own_types = {
        "recipe": load_recipe(merged["recipe"], recipes),
        "frameworks": tuple(frameworks[name] for name in merged["frameworks"]),
        "epochs": measure["epochs"],
        "of_epochs": measure["of"],
        "interrupt_steps": interrupt and interrupt["steps"],
    }
    empty: dict[str, tuple[int, ...]] = dict.fromkeys(BATCH, ())
    return Block(name=name, **empty | axes | scalars | own_types)


def _figure(path: Path, name: str, own: dict[str, Any], blocks: dict[str, Any], config: Path) -> Figure:
    key = f"figures.{name}"
    _is_one_of(registry.members("figures"), own["plot"], path, f"{key}.plot")
    runs = own.get("runs", list(blocks))
    for block in runs:
        if "/" not in block:  # those of other studies: `_borrowed`
            _is_one_of(blocks, block, path, f"{key}.runs")
    plot = registry.member("figures", own["plot"])
    for setting in own.keys() - {"plot", "runs", "title", "reference", "select", *plot.SETTINGS}:
        raise ConfigError(f"{path}: {key}.{setting}: plot {own['plot']} has no such setting; leave it out")
    reference = own.get("reference")
    if reference is not None:
        names = [name for name in names_in(config / "references", ".csv") if name != "claims"]  # of no figure
        _is_one_of(names, reference, path, f"{key}.reference")
        offered = published(config / "references" / f"{reference}.csv")
        if offered.isdisjoint(plot.PUBLISHED):
            wanted = f"it can draw {', '.join(plot.PUBLISHED)}" if plot.PUBLISHED else "it draws no published numbers"
            offers = f"plot {own['plot']} can draw nothing of it: {wanted}, the file has {', '.join(sorted(offered))}"
            raise complain(path, f"{key}.reference", reference, offers)
    select = own.get("select", {})
    for column in select:
        if column not in COLUMNS:
            raise ConfigError(f"{path}: {key}.select.{column}: unknown column; {one_of(COLUMNS, column)}")
    chosen = tuple((c, tuple(v) if isinstance(v, list) else (v,)) for c, v in select.items())
    basis, title = own.get("basis", "steps"), own.get("title", name)
    return Figure(name, own["plot"], tuple(runs), title, reference, chosen, basis, own.get("target"))


def published(path: Path) -> set[str]:
    """What a reference file offers to figures: its quantities, or its columns where it has no column `quantity`."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        if "quantity" in (rows.fieldnames or ()):
            return {row["quantity"] for row in rows}
        return set(rows.fieldnames or ())


def _is_one_of(names: Iterable[str], value: str, path: Path, key: str) -> None:
    """Raises ConfigError if `value` is none of the names."""
    names = list(names)
    if value not in names:
        raise complain(path, key, value, one_of(names, value))
