"""What a run is: a frozen value. Its id, folder, command line and table columns all derive from its
fields.

A study and a machine become RunSpecs in `plan/runs.py`; `train/loop.py` trains one;
`analysis/collect.py` reads its columns.
"""

from __future__ import annotations  # records are held to the fields' types as they are written here

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from ddlbench.core import registry
from ddlbench.core.program import IMAGES, Program
from ddlbench.core.recipe import ROLES as recipe_roles
from ddlbench.core.recipe import Recipe, unused
from ddlbench.core.registry import OWN
from ddlbench.core.roles import AXIS, EXTENT, FOLLOWS, REPEAT, SETTING, SIZE, WATCHED, Role, role


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training with all its settings.

    `framework` is its name in the study: a member of `frameworks/`, or a variant, whose `options`
    name the member and its settings, sorted. `workers` are ranks, one device each; `global_batch`
    is images a step over all of them; `repeat` counts from 1 and moves the seed. Where throughput
    is measured and the rest extrapolated, `epochs` are trained of a run of `of_epochs`. `timed`
    runs have the machine to themselves; those that are not say nothing about speed. `profiled` runs
    carry a profiler and are never timed. A run with `interrupt_steps` is killed once, to measure
    what that costs (`train/interruption.py`).
    """

    machine: str = role(SETTING, "The machine file.")
    device: str = role(FOLLOWS, "`cpu` or `cuda`.", "machine")
    dataset: str = role(SETTING, "The data set.")
    model: str = role(SETTING, "The model.")
    recipe: Recipe = role(
        SETTING, "The recipe file; of its keys, those that the run does not use are null."
    )
    framework: str = role(
        AXIS, "The framework's name in the study: a member of `frameworks/`, or a variant."
    )
    loader: str = role(AXIS, "The loader.")
    workers: int = role(
        SIZE,
        "Ranks, one device each.",
        "global_batch",
        "batch_per_worker",
        title="workers {}",
        noun="worker",
    )
    workers_per_node: int = role(FOLLOWS, "Ranks on each node.", "workers")
    loader_threads: int = role(
        FOLLOWS, "Threads or processes of a loader.", "machine", title="{} loader threads"
    )
    global_batch: int = role(
        SIZE,
        "Images per step over all workers.",
        "workers",
        "batch_per_worker",
        title="batch size {}",
        words="batch {}",
    )
    schedule: str = role(SETTING, "The schedule of the learning rate.")
    epochs: int = role(EXTENT, "Epochs that were trained.", title="{} epochs", words="{} trained")
    repeat: int = role(REPEAT, "The repeat, counted from 1; it moves the seed.", words="repeat {}")
    options: tuple[tuple[str, Any], ...] = role(
        AXIS, "Options of a variant, as JSON.", "framework", default=()
    )
    of_epochs: int | None = role(
        SETTING,
        "Epochs of the whole run that schedules are made for.",
        default=None,
        title="of {} epochs",
        noun="epoch",
    )
    timed: bool = role(
        WATCHED,
        "Whether the run had the machine to itself; others say nothing of speed.",
        default=True,
    )
    profiled: bool = role(WATCHED, "Whether the run carried a profiler.", default=False)
    form: str | None = role(
        AXIS,
        "The form of the data set that was read; null where nothing is read.",
        "loader",
        default=None,
        null="no data read",
    )  # None: the one that the loader prefers
    bandwidth_mbit: int | None = role(
        SETTING,
        "Bandwidth of the cable between nodes that are network namespaces [Mbit/s]; null"
        " elsewhere.",
        default=None,
        title="{:.0f} Mbit/s",
        words="{} Mbit/s",
        null="own bandwidth",
    )  # None: all that the cable can
    interrupt_steps: int | None = role(
        EXTENT,
        "Steps after which all ranks were killed, once; null for runs that were left alone.",
        default=None,
        title="killed after {} steps",
        words="killed after {} steps",
        null="not killed",
    )  # all ranks are killed after so many steps, and the run goes on
    program: Program | None = (
        None  # a user's own, in place of our training; its settings are column `settings`
    )
    model_sha256: str | None = role(
        SETTING,
        "SHA-256 of the source of a model of your own; null for models that ddlbench or timm"
        " brings.",
        "model",
        default=None,
        title="source {:.8}",
        words="source {:.8}",
        null="no source of its own",
    )  # None: the name determines the model

    @property
    def id(self) -> str:
        """Return a readable id, which is the name of its folder.

        What studies vary is in it; machine and recipe are in it by name.

        A variant's name is followed by four digits made from its options: two studies may mean
        different things by it.
        """
        if self.program:
            return self._id_of(self.program)
        epochs = f"{self.epochs}of{self.of_epochs}" if self.of_epochs else f"{self.epochs}"
        parts = [
            self.machine,
            self.dataset,
            self.model_name,
            self.recipe.name,
            self.framework + self._variant,
            self.loader,
            *([self.form] if self.form not in (None, self._preferred) else []),
            f"{self.workers}workers",
            *([f"{self.bandwidth_mbit}mbit"] if self.bandwidth_mbit else []),
            f"bs{self.global_batch}",
            self.schedule,
            f"{epochs}epochs",
            f"r{self.repeat}",
        ]
        parts += ["profiled"] if self.profiled else []
        return "-".join(
            parts + ([f"interrupt{self.interrupt_steps}"] if self.interrupt_steps else [])
        )

    def _id_of(self, program: Program) -> str:
        """Return the id of a program's run: its settings in words.

        Four hex digits distinguish values that no path can hold.
        """
        settings = [f"{name}_{value}" for name, value in program.settings]
        plain = [re.sub(r"[^A-Za-z0-9._]+", "_", text)[:60] for text in settings]
        odd = (
            f".{sha256(json.dumps(settings).encode()).hexdigest()[:4]}" if plain != settings else ""
        )
        parts = [
            self.machine,
            program.name,
            *plain,
            f"{self.workers}workers",
            f"bs{self.global_batch}",
        ]
        return "-".join([*parts, f"r{self.repeat}"]) + odd

    @property
    def model_name(self) -> str:
        """Return the model's name for a file name: `nets.wide.build` for `nets.wide:build`."""
        return self.model.replace(":", ".")

    @property
    def _variant(self) -> str:
        return (
            "." + sha256(json.dumps(self.options).encode()).hexdigest()[:4] if self.options else ""
        )

    @property
    def _preferred(self) -> str | None:
        return (
            None
            if self.program
            else next(iter(registry.member("loaders", self.loader).FORMS), None)
        )

    @property
    def reads(self) -> str | None:
        """Return the form that is read; None if the loader reads nothing."""
        return self.form or self._preferred

    @property
    def kind(self) -> str:
        """Return the member of `plan/kinds/` that plans it."""
        return "program" if self.program else "training"

    @property
    def adapter(self) -> str:
        """Return the member of `frameworks/`; `own` for a program, which has nothing of ours."""
        if self.program:
            return OWN
        return str(dict(self.options).get("framework", self.framework))

    @property
    def versioned(self) -> str:
        """Return the member of `frameworks/` whose package gives the version: a program may name
        one of ours.
        """
        return self.framework if self.framework in registry.members("frameworks") else self.adapter

    @property
    def full_epochs(self) -> int:
        """Return the number of epochs that schedules are made for."""
        return self.of_epochs or self.epochs

    def all_options(self) -> dict[str, Any]:
        """Return the adapter's options with their values in this run; for a program, its
        settings.
        """
        if self.program:
            return dict(self.program.settings)
        given = {name: value for name, value in self.options if name != "framework"}
        return {**registry.option_defaults(self.adapter), **given}

    def option(self, name: str) -> Any:
        """Return the value of one of the adapter's options.

        Raises KeyError on one that it does not have.
        """
        return self.all_options()[name]

    @property
    def nodes(self) -> int:
        """Return the number of nodes that the workers fill, `workers_per_node` on each."""
        return -(-self.workers // self.workers_per_node)

    @property
    def batch_per_worker(self) -> int:
        """Return the images a step on one rank; the planner has made sure that the ranks divide the
        batch.
        """
        return self.global_batch // self.workers

    @property
    def seed(self) -> int:
        """Return the seed: the same for every framework, loader and worker count of a repeat, so
        that they can be compared.
        """
        return self.recipe.seed + self.repeat - 1

    def columns(self) -> dict[str, Any]:
        """Return flat columns for tables, the same for every run (`COLUMNS`): each field, and each
        key of the recipe.

        `recipe` is the recipe's name and `seed` this run's own; `options` and a recipe's lists are
        JSON. Keys of the recipe that the run does not use are None.
        """
        recipe = vars(self.recipe)
        keys = {
            name: json.dumps(v) if isinstance(v := recipe[name], tuple) else v
            for name in _RECIPE_COLUMNS
        }
        keys |= dict.fromkeys(unused(recipe, self.schedule))
        if self.program:  # which has none of a recipe's keys
            keys = dict.fromkeys(keys)
        flat = {name: getattr(self, name) for name in _OWN_COLUMNS}
        flat["options"] = json.dumps(dict(self.options), sort_keys=True)
        flat |= {"of_epochs": self.full_epochs, "form": self.reads, "recipe": self.recipe.name}
        return {"run": self.id, **flat, **keys, "seed": self.seed}

    @property
    def settings(self) -> str | None:
        """Return `precision=bf16, sequence=128`: a program's settings except its framework, in
        their file's order.
        """
        return self.program.words if self.program else None

    @property
    def sample(self) -> str:
        """Return what a step counts, such as images."""
        return self.program.sample if self.program else IMAGES

    def trains_like(self, other: RunSpec) -> bool:
        """Tell whether both are the same training: they differ at most in settings that neither
        uses.
        """
        return self == other or relevant_settings(json.loads(self.to_json())) == relevant_settings(
            json.loads(other.to_json())
        )

    def to_json(self) -> str:
        """Return the settings on one line; `from_json` gives the same value back.

        OMITTED names what is left out at its default.
        """
        # Not asdict: it copies deeply, and a plan of thousands of runs would notice.
        return json.dumps({**_written(self), "recipe": _written(self.recipe)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Parse the RunSpec that `to_json` wrote. Raises ValueError on anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("recipe"), dict):
            raise ValueError(
                "these are not the settings of a run; expected: a mapping with a recipe"
            )
        recipe = data.pop("recipe")
        for part, kind in ((data, cls), (recipe, Recipe)):
            if unknown := sorted(part.keys() - {f.name for f in fields(kind)}):
                raise ValueError(
                    f"this version of ddlbench does not know the setting {', '.join(unknown)}; "
                    "read the run with the version that made it"
                )
        recipe = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in recipe.items()
        }
        if "options" in data:
            data["options"] = tuple((name, value) for name, value in data["options"])
        try:
            if data.get("program"):
                data["program"] = Program.parse(data["program"])
            return cls(recipe=Recipe(**recipe), **data)
        except TypeError as error:  # a field without a default is missing
            raise ValueError(f"these are not the settings of a run: {error}") from None


# Fields that the text of a run leaves out where they have their default. Snakemake compares this
# text: a field that is added to RunSpec or Recipe belongs here, or all finished runs become stale.
OMITTED = {
    RunSpec: ("bandwidth_mbit", "interrupt_steps", "program", "model_sha256"),
    Recipe: ("exponential_start", "cosine_moves", "zero_init_last"),
}
_OWN_COLUMNS = (
    *(f.name for f in fields(RunSpec) if f.name not in ("recipe", "program")),
    "settings",
    "sample",
    "batch_per_worker",
    "nodes",
)
_RECIPE_COLUMNS = tuple(f.name for f in fields(Recipe) if f.name != "name")
COLUMNS = ("run", *_OWN_COLUMNS, "recipe", *_RECIPE_COLUMNS)
# What each column is in a comparison; the run itself, which is none of these, is left out.
_DERIVED = {
    "settings": Role(
        SETTING,
        "Settings of a program but its framework, as `precision=bf16, sequence=128`; null for our"
        " own trainings.",
    ),
    "sample": Role(
        FOLLOWS, "What a step counts: images, or what the file of a program says.", ("model",)
    ),
    "batch_per_worker": Role(
        FOLLOWS,
        "Images per step on one worker.",
        ("workers", "global_batch"),
        title="batch {} per worker",
        words="batch {} per worker",
    ),
    "nodes": Role(FOLLOWS, "Nodes that the workers fill.", ("workers",)),
}
ROLES: Mapping[str, Role] = {
    **{f.name: f.metadata["role"] for f in fields(RunSpec) if f.name != "program"},
    **_DERIVED,
    **{name: recipe_roles.get(name, Role(SETTING)) for name in _RECIPE_COLUMNS},
}


def _written(value: RunSpec | Recipe) -> dict[str, Any]:
    """Return the fields that go into JSON."""
    given, kind = {**vars(value)}, type(value)
    for name in OMITTED[kind]:
        if given[name] == getattr(kind, name):
            del given[name]
    if "program" in given:
        given["program"] = given["program"].written()
    return given


def relevant_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, or of a job that uses one, without those that the run does not
    use: runs with equal ones are the same training.

    `settings` is the JSON of a spec, also of a record: anything may stand in it. `to_json` keeps
    unused settings, because ids of other jobs are made of it.
    """
    run, recipe, loader = settings.get("run"), settings.get("recipe"), settings.get("loader")
    if isinstance(run, Mapping):
        return {**settings, "run": relevant_settings(run)}
    if not isinstance(recipe, Mapping):
        return {**settings}
    left_out, of_recipe = set(), unused(recipe, str(settings.get("schedule")))
    ours = isinstance(loader, str) and loader in registry.members("loaders")
    if ours and not registry.member("loaders", loader).FORMS:
        left_out.add("loader_threads")  # it loads nothing
        of_recipe.add("augmentation")
    kept = {name: value for name, value in recipe.items() if name not in of_recipe}
    return {
        **{name: value for name, value in settings.items() if name not in left_out},
        "recipe": kept,
    }


def of_program(
    program: Program,
    *,
    machine: str,
    device: str,
    workers: int,
    workers_per_node: int,
    global_batch: int,
    **more: Any,
) -> RunSpec:
    """Return the run of a user's program; `more` are further fields.

    What no program says has the word OWN, or counts 1.
    """
    words = dict.fromkeys(("dataset", "loader", "form", "schedule"), OWN)
    counts = {"loader_threads": 1, "epochs": 1, "repeat": 1}
    return RunSpec(
        **(words | counts | more),
        recipe=Recipe(name=OWN, base_lr=1.0, base_batch=1, warmup_epochs=0, image_size=8),
        model=program.name,
        framework=program.framework,
        program=program,
        machine=machine,
        device=device,
        workers=workers,
        workers_per_node=workers_per_node,
        global_batch=global_batch,
    )


def id_of_repeat(run: str, repeat: int, other: int) -> str:
    """Return the id of another repeat of the run with this id."""
    before, _, after = run.rpartition(f"-r{repeat}")
    return f"{before}-r{other}{after}"


def steps_per_epoch(images: int, global_batch: int) -> int:
    """Return the number of steps in an epoch: the last batch may be smaller, no sample is dropped
    or repeated.
    """
    return -(-images // global_batch)


def smallest_share(images: int, global_batch: int, workers: int) -> int:
    """Return the images of the worker that has the fewest in an epoch's last step."""
    last = images % global_batch or global_batch
    return last // workers
