"""A study: one YAML file that names axes and figures; read and checked here, made into runs in
`plan/runs.py`.

Its keys are in `study_keys.py`. What they cannot say of themselves is checked here: names of
members, blocks and files, and what does not go together.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.core.files import read_csv
from ddlbench.core.program import Program
from ddlbench.core.spec import COLUMNS
from ddlbench.settings import own_models
from ddlbench.settings.config import CONFIG, ConfigError, complain, names_in, one_of, read_yaml
from ddlbench.settings.dataset import datasets, load_dataset
from ddlbench.settings.keys import class_of, value_of
from ddlbench.settings.program import ProgramFile, load_program
from ddlbench.settings.recipe import RecipeFile, load_recipe
from ddlbench.settings.study_keys import BlockKeys, FigureKeys, FileKeys, StudyKeys, Until

SCHEDULES = ("step", "cosine", "exponential", "polynomial")
# What each block needs, from itself or from the top level of its study; and one of BATCH, and one
# of LENGTH.
REQUIRED = ("dataset", "recipe", "models", "frameworks", "loaders", "workers", "schedules")
BATCH = ("batch_per_worker", "global_batch")
LENGTH = ("epochs", "measure")
# Keys of how to train. A program defines them itself.
TRAINING = (
    *(key for key in REQUIRED if key != "workers"),
    *LENGTH,
    "profiled",
    "interrupt",
    "form",
    "bandwidths_mbit",
)
# Of a block of programs.
NO_RECIPE = RecipeFile(name="own", base_lr=1.0, base_batch=1, warmup_epochs=0, image_size=8)


@dataclass(frozen=True)
class Variant:
    """A framework as a study names it: a member of `frameworks/`, or a variant with options (see
    RunSpec).
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Block(BlockKeys):
    """One product of axes in a study; the study's top-level keys with this block's own laid over
    them. The recipe is as its file says: no batch size is chosen yet. `adapters` are what
    `frameworks` names. `repeats` are made in any case, `further` ones where the study makes more
    until it is decided.
    """

    name: str
    repeats: int
    further: int = 0
    recipe_file: RecipeFile
    adapters: tuple[Variant, ...]
    sources: Mapping[str, str]  # digests of the source of models that people wrote, by name
    own_programs: tuple[
        Program, ...
    ] = ()  # those of `programs`, with each combination of their settings
    program_files: tuple[ProgramFile, ...] = ()  # which those are of


@dataclass(frozen=True, kw_only=True)
class Figure(FigureKeys):
    """One picture. `basis` is the time that speed-up and efficiency compare; of `select`, all
    values are tuples.
    """

    name: str

    @property
    def reference_file(self) -> str | None:
        """Return the file of published numbers that is drawn for comparison, relative to the
        working directory.
        """
        return (
            os.path.relpath(CONFIG / "references" / f"{self.reference}.csv")
            if self.reference
            else None
        )


@dataclass(frozen=True, kw_only=True)
class Study(StudyKeys):
    """A checked study file. It does not depend on the machine.

    Its own blocks come first. Those that figures borrow from other studies follow, by the name
    `study/block`. A study of `records` of others plans no runs and has no blocks. `until` is the
    value of its key `repeats` where that is not a number.
    """

    name: str
    path: Path
    until: Until | None
    blocks: tuple[Block, ...]
    figures: tuple[Figure, ...]


def load_study(name: str, folder: Path = CONFIG / "studies") -> Study:
    """Load the study of that name, with recipes found beside its folder. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data, keys = _read(path)
    if keys.records:
        kinds = [kind for kind in registry.members("records") if kind != "ours"]
        _is_one_of(kinds, keys.records.kind, path, "records.kind")
        if not Path(keys.records.folder).is_dir():
            allowed = "allowed: a folder that is there, from where you start"
            raise complain(path, "records.folder", keys.records.folder, allowed)
    if (keys.records is None) == (not keys.runs):
        raise complain(
            path, "runs", sorted({"runs", "records"} & {*data}), "allowed: either runs or records"
        )
    blocks = _blocks(path, data, keys)
    figures = tuple(_figure(path, *named, keys, folder.parent) for named in keys.figures.items())
    if keys.goal == "target" and not any(figure.target for figure in figures):
        raise complain(
            path,
            "goal",
            keys.goal,
            "allowed: balanced, fastest, cheapest; target with a figure's target",
        )
    borrowed = _borrowed(path, figures)
    if keys.records and borrowed:
        raise complain(
            path,
            "figures",
            [block.name for block in borrowed],
            "allowed: no runs beside records of others",
        )
    if keys.inference:
        if not keys.runs:
            raise complain(
                path,
                "inference.runs",
                keys.inference.runs,
                "allowed: no inference in a study without runs",
            )
        _is_one_of(keys.runs, keys.inference.runs, path, "inference.runs")
        for member in keys.inference.members:
            _is_one_of(registry.members("inference"), member, path, "inference.members")
    taken = {field.name: getattr(keys, field.name) for field in fields(StudyKeys)}
    until = keys.repeats if isinstance(keys.repeats, Until) else None
    return Study(
        name=name, path=path, until=until, blocks=blocks + borrowed, figures=figures, **taken
    )


def _read(path: Path) -> tuple[dict[str, Any], FileKeys]:
    data = read_yaml(path)
    return data, value_of(FileKeys, data, path)


def _blocks(path: Path, data: Mapping[str, Any], keys: FileKeys) -> tuple[Block, ...]:
    """Return a study's own blocks; `data` tell which keys are given. Raises ConfigError."""
    common = _given(keys, data)
    frameworks = {name: Variant(name) for name in registry.members("frameworks")}
    frameworks |= {name: _variant(path, name, variant) for name, variant in keys.variants.items()}
    return tuple(
        _block(path, name, common, _given(block, data["runs"][name]), frameworks)
        for name, block in keys.runs.items()
    )


def _given(keys: BlockKeys, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return those keys of blocks that the file gives, with their values."""
    return {
        field.name: getattr(keys, field.name) for field in fields(BlockKeys) if field.name in data
    }


def _borrowed(path: Path, figures: Iterable[Figure]) -> tuple[Block, ...]:
    """Return the blocks of other studies that figures show, `study/block`; runs of one id are made
    once. Raises ConfigError.
    """
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
                lent[study] = _blocks(other, *_read(other))
            blocks = {f"{study}/{block.name}": block for block in lent[study]}
            if not blocks:
                raise complain(
                    path,
                    key,
                    named,
                    f"study {study} shows records of others; allowed: a study with runs",
                )
            _is_one_of(blocks, named, path, key)
            # What that study decides by more repeats is its own question.
            taken[named] = replace(blocks[named], name=named, further=0)
    return tuple(taken.values())


def _variant(path: Path, name: str, keys: dict[str, Any]) -> Variant:
    """Return a framework with options, which its adapter knows. Raises ConfigError."""
    members = registry.members("frameworks")
    if name in members:
        raise ConfigError(
            f"{path}: variants.{name}: is a framework's own name; allowed: any other name"
        )
    where, adapter = f"variants.{name}", str(keys.get("framework"))
    if adapter not in members:
        value_of(
            _options(None),
            {key: value for key, value in keys.items() if key == "framework"},
            path,
            where,
        )
    value_of(_options(adapter), keys, path, where)
    defaults = registry.option_defaults(adapter)
    options = {k: v for k, v in keys.items() if k == "framework" or v != defaults[k]}
    return Variant(name, tuple(sorted(options.items())))


@cache
def _options(adapter: str | None) -> type:
    """Return the keys of a variant of a framework; for None, the key that names its framework."""
    framework = {
        "description": "A member of workflow/ddlbench/train/frameworks.",
        "enum": registry.members("frameworks"),
    }
    return class_of({"framework": framework, **(registry.options(adapter) if adapter else {})})


def _block(
    path: Path,
    name: str,
    common: dict[str, Any],
    keys: dict[str, Any],
    frameworks: dict[str, Variant],
) -> Block:
    for either in (BATCH, LENGTH):
        if keys.keys() & set(either):  # a block's own way of saying it replaces the study's
            common = {k: v for k, v in common.items() if k not in either}
    for these, those in ((("programs",), TRAINING), (TRAINING, ("programs",))):
        if keys.keys() & set(these):
            common = {k: v for k, v in common.items() if k not in those}
    merged = common | keys
    if isinstance(keys.get("repeats"), Until):
        allowed = "allowed: a whole number; until stands at the study's top level, for all blocks"
        raise ConfigError(f"{path}: runs.{name}.repeats: {allowed}")
    merged |= _repeats(path, merged.get("repeats", 1))
    programs = merged.get("programs")
    for key in ("workers",) if programs else REQUIRED:
        if key not in merged:
            raise ConfigError(
                f"{path}: runs.{name}.{key}: is missing, here and at the study's top level"
            )
    for key in TRAINING if programs else ():
        if key in merged:
            text = (
                f"is said by a program itself (programs: {', '.join(programs or ())}); leave it out"
            )
            raise ConfigError(f"{path}: {f'runs.{name}.{key}' if key in keys else key}: {text}")
    for either in (BATCH,) if programs else (BATCH, LENGTH):
        batches = [key for key in either if key in merged]
        if not batches:
            here = "here and at the study's top level"
            raise ConfigError(f"{path}: runs.{name}: {' or '.join(either)} is missing, {here}")
        if len(batches) != 1:
            raise complain(
                path, f"runs.{name}", batches, f"allowed: exactly one of {' and '.join(either)}"
            )

    def where(key: str) -> str:
        return f"runs.{name}.{key}" if key in keys else key

    if programs:
        folder = path.parent.parent / "programs"
        for program in programs:
            _is_one_of(names_in(folder, ".yaml"), program, path, where("programs"))
        files = [load_program(program, folder) for program in programs]
        each = tuple(program for file in files for program in file.programs())
        return Block(
            name=name,
            recipe_file=NO_RECIPE,
            adapters=(),
            sources={},
            own_programs=each,
            program_files=tuple(files),
            **merged,
        )
    recipes, own_sources = path.parent.parent / "recipes", {}
    for model in filter(own_models.is_own, merged["models"]):
        own_sources[model] = own_models.find(model, path.parent.parent / "models").sha256
    named: dict[str, Iterable[str]] = {
        "models": (*registry.models(), *own_sources),
        "loaders": registry.members("loaders"),
        "schedules": SCHEDULES,
        "frameworks": frameworks,
        "dataset": datasets(path.parent.parent / "datasets"),
        "recipe": names_in(recipes, ".yaml"),
        "form": registry.members("forms"),
    }
    if registry.models() == registry.OWN_MODELS:
        del named["models"]  # timm is not installed here (a login node): the job checks the name
    for key, names in named.items():
        values = merged.get(key) or ()
        for value in (values,) if isinstance(values, str) else values:
            _is_one_of(names, value, path, where(key))
    folder, dataset = path.parent.parent / "datasets", merged["dataset"]
    if dataset not in registry.members("datasets") or (folder / f"{dataset}.yaml").exists():
        load_dataset(dataset, folder)
    block = Block(
        name=name,
        recipe_file=load_recipe(merged["recipe"], recipes),
        adapters=tuple(frameworks[framework] for framework in merged["frameworks"]),
        sources=own_sources,
        **merged,
    )
    if block.measure and block.measure.epochs > block.measure.of:
        allowed = f"allowed: at most {block.measure.of} (of)"
        raise complain(path, where("measure") + ".epochs", block.measure.epochs, allowed)
    if block.interrupt and block.profiled:
        allowed = "allowed: none with profiled: true, which measures no time"
        raise complain(path, where("interrupt"), {"steps": block.interrupt.steps}, allowed)
    return block


def _repeats(path: Path, value: int | Until) -> dict[str, int]:
    """Return how many repeats a block has in any case, and how many more it may get. Raises
    ConfigError.
    """
    if not isinstance(value, Until):
        return {"repeats": value}
    if value.at_most <= value.at_least:
        raise complain(
            path,
            "repeats.at_most",
            value.at_most,
            f"allowed: more than {value.at_least} (at_least)",
        )
    return {"repeats": value.at_least, "further": value.at_most - value.at_least}


def _figure(path: Path, name: str, keys: FigureKeys, study: FileKeys, config: Path) -> Figure:
    key = f"figures.{name}"
    _is_one_of(registry.members("figures"), keys.plot, path, f"{key}.plot")
    for block in keys.runs or ():
        if "/" not in block:  # those of other studies: `_borrowed`
            _is_one_of(study.runs, block, path, f"{key}.runs")
    for setting in ("basis", "target"):  # those that only some figures have
        if getattr(keys, setting) is not None and setting not in registry.constant(
            "figures", keys.plot, "SETTINGS"
        ):
            raise ConfigError(
                f"{path}: {key}.{setting}: plot {keys.plot} has no such setting; leave it out"
            )
    if keys.reference is not None:
        names = [
            name for name in names_in(config / "references", ".csv") if name != "claims"
        ]  # of no figure
        _is_one_of(names, keys.reference, path, f"{key}.reference")
        offered = published(config / "references" / f"{keys.reference}.csv")
        drawn = registry.constant("figures", keys.plot, "PUBLISHED")
        if offered.isdisjoint(drawn):
            wanted = f"it can draw {', '.join(drawn)}" if drawn else "it draws no published numbers"
            offers = (
                f"plot {keys.plot} can draw nothing of it: {wanted}, the file has"
                f" {', '.join(sorted(offered))}"
            )
            raise complain(path, f"{key}.reference", keys.reference, offers)
    for column, _ in keys.select:
        if column not in COLUMNS:
            raise ConfigError(
                f"{path}: {key}.select.{column}: unknown column; {one_of(COLUMNS, column)}"
            )
    given = {field.name: getattr(keys, field.name) for field in fields(keys)}
    given |= {
        "runs": keys.runs or tuple(study.runs),
        "title": keys.title if keys.title is not None else name,
        "basis": keys.basis or "steps",
        "select": tuple(
            (column, tuple(v) if isinstance(v, list) else (v,)) for column, v in keys.select
        ),
    }
    return Figure(name=name, **given)


def published(path: Path) -> set[str]:
    """Return what a reference file offers to figures: its quantities, or its columns where it has
    no column `quantity`.
    """
    rows = read_csv(path) or [{}]
    return {row["quantity"] for row in rows} if "quantity" in rows[0] else {*rows[0]}


# How people add what a key may name.
OWN = {
    "models": "NAME:FUNCTION of a file in config/models (docs/tutorial.md)",
    "frameworks": "a name under variants",
    "dataset": "config/datasets/NAME.yaml",
    "recipe": "config/recipes/NAME.yaml",
    "programs": "ddlbench new program NAME",
}


def _is_one_of(names: Iterable[str], value: str, path: Path, key: str) -> None:
    """Raise ConfigError if `value` is none of the names."""
    names = list(names)
    if value not in names:
        hint = OWN.get(key.rpartition(".")[2], "")
        raise complain(
            path, key, value, one_of(names, value) + (f"; one of your own: {hint}" if hint else "")
        )
