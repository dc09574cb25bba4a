"""The keys of a study's file, each declared here and nowhere else. `study.py` reads the file,
`plan/` acts on it.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ddlbench.settings.config import NAME
from ddlbench.settings.keys import (
    Count,
    Counts,
    Keys,
    Models,
    Name,
    Names,
    Positive,
    each_once,
    key,
    mapping,
)

Repeats = Annotated[int, Field(ge=1, le=1000)]
Scalar = str | int | float | bool
ScalarOrList = Scalar | Annotated[tuple[Scalar, ...], Field(min_length=1)]
BorrowedName = Annotated[str, Field(pattern=f"^{NAME.pattern}(/{NAME.pattern})?$")]


@dataclass(frozen=True, kw_only=True)
class MeasureKeys(Keys):
    epochs: Count = key("Epochs to train.")
    of: Count = key("Epochs of the full run, for which schedules are made.")


@dataclass(frozen=True, kw_only=True)
class Interrupt(Keys):
    steps: int = key(
        "Steps after which the run is killed; fewer than it has.", minimum=2, maximum=1_000_000_000
    )


@dataclass(frozen=True, kw_only=True)
class Until(Keys):
    """The key `repeats` as a mapping: more repeats only for settings whose verdict is open
    (`plan/rounds.py`).
    """

    until: str = key(
        "decided: until every question of the first screen that more repeats could change is"
        " decided.",
        enum=["decided"],
    )
    at_least: int = key("Least number of repeats of each run.", 3, minimum=2, maximum=1000)
    at_most: int = key(
        "Largest number of repeats of a run; more than at_least.", 10, minimum=3, maximum=1000
    )
    gpu_hours: Positive = key(
        "Hours of workers that all runs of the study may take together: a round that would exceed"
        " them is not made. Left out, as many as it takes.",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class BlockKeys(Keys):
    """The keys of a block, or of the top level for all blocks.

    One of the batch sizes is given: per worker, or global.
    """

    dataset: str = key(
        "Data set, a member of workflow/ddlbench/data/datasets or a file in config/datasets.", None
    )
    recipe: Name = key("Name of a file in config/recipes, without .yaml.", None)
    epochs: Count = key("Epochs to train.", None)
    measure: MeasureKeys = key(
        "Instead of epochs, `{epochs: 3, of: 90}`: train 3 epochs of a run of 90, and extrapolate"
        " its time to the full run. Tables and figures mark such values. Its keys are below.",
        None,
    )
    repeats: Repeats | Until = key(
        "How often each run is made, each time with another seed. At the top level also `{until:"
        " decided, at_least: 3, at_most: 10, gpu_hours: 500}`: first `at_least` times, then more"
        " often where a verdict is open that could change what to take. Its keys are below.",
        1,
    )
    profiled: bool = key("Whether runs carry a profiler; such runs are never timed.", False)
    timed: bool = key(
        "Whether speed is measured. Timed runs have the machine to themselves (in a queue, their"
        " nodes); others may share it.",
        True,
    )
    minutes: Count = key(
        "Time limit that each of its jobs asks a queue for [min], in place of the first guess; the"
        " longest where several blocks name a run. It is not part of run ids. Left out, of a"
        " program what its file says, else the first guess.",
        None,
    )
    interrupt: Interrupt = key(
        "`{steps: 60}`: every rank of each run is killed (kill -9) after so many steps, and the run"
        " goes on from a checkpoint that it wrote after half of them. The tables then have"
        " `checkpoint_s`, `lost_steps` and `restart_s`. Such runs have ids of their own. Its keys"
        " are below.",
        None,
    )
    form: str | None = key(
        "The form that the loaders read: raw, tfrecord or webdataset. Left out, each reads the one"
        " it prefers. A loader that cannot read it is refused; synthetic reads nothing.",
        None,
    )
    models: Models = key(
        "Axis. lenet, lenet5 (without padding, as its sources have it), resnet8_half,"
        " squeezenet1_1, names that timm knows, or models of your own, `<module>:<function>`: see"
        " above.",
        None,
    )
    programs: Names = key(
        "Axis, in place of models, frameworks, loaders and all that says how to train: training"
        " programs of your own, files in config/programs. Their settings are further axes.",
        None,
    )
    frameworks: Names = key(
        "Axis. Members of workflow/ddlbench/train/frameworks, or names from variants.", None
    )
    loaders: Names = key("Axis. Members of workflow/ddlbench/train/loaders.", None)
    workers: Counts = key("Axis. Ranks, one device each.", None)
    fit: bool = key(
        "What to do with numbers of workers above what the machine has: false refuses the study,"
        " true leaves them out. The plan says which were left out.",
        False,
    )
    batch_per_worker: Counts = key(
        "Axis. Images per step on each worker; the global batch grows with workers.", None
    )
    global_batch: Counts = key(
        "Axis. Images per step over all workers; instead of batch_per_worker.", None
    )
    bandwidths_mbit: Counts = key(
        "Axis. Bandwidth of the cable between two workers, each way [Mbit/s]; on machines with"
        " launcher namespaces only. Left out, as much as it can carry.",
        None,
    )
    schedules: Names = key("Axis. step, cosine, exponential, polynomial.", None)


@dataclass(frozen=True, kw_only=True)
class Published(Keys):
    """The key `records`: results of others that a study shows."""

    kind: str = key(
        "Format of the records, a member of workflow/ddlbench/records. mlperf, MLCommons' training"
        " results."
    )
    folder: str = key(
        "Folder of results, from where Snakemake starts; of mlperf, a checkout of"
        " training_results_vX.Y."
    )
    benchmarks: Names = key("Only logs of these benchmarks. Left out, all logs.", ())


@dataclass(frozen=True, kw_only=True)
class Inference(Keys):
    """The key `inference`. Members that split a model do so over each of `workers`; the others take
    one.
    """

    runs: Name = key(
        "The block of this study whose models serve: each model and recipe once, of its run with"
        " framework ddp on the fewest workers. Pictures are those of that run's validation. Models"
        " answer in their recipe's precision: fp32, tf32 or bf16."
    )
    weights: str = key(
        "trained, those at the end of that run, which then leaves weights.pt; a run that was made"
        " without is made again. initial, those with which it began, made from its seed: then top-1"
        " says little.",
        "trained",
        enum=["trained", "initial"],
    )
    members: Names = key("Ways to serve, members of workflow/ddlbench/train/inference.")
    workers: Annotated[
        tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1), AfterValidator(each_once)
    ] = key(
        "Numbers of workers over which a model is split, by members that can split it. The others"
        " take one worker.",
        (2,),
    )
    batches: Counts = key("Pictures in one request.", (1, 2, 4, 8, 16, 32, 64))
    repeats: Repeats = key("How often each job is made, each time by another process.", 1)

    @property
    def trained(self) -> bool:
        """Tell whether models serve with the weights that their run ended with."""
        return self.weights == "trained"


@dataclass(frozen=True, kw_only=True)
class FigureKeys(Keys):
    """One of `figures`: the member of `show/figures/` that draws it, the blocks whose runs it
    shows, its settings.
    """

    plot: str = key("Which figure to draw, a member of workflow/ddlbench/show/figures.")
    runs: Annotated[tuple[BorrowedName, ...], Field(min_length=1), AfterValidator(each_once)] = key(
        "Blocks whose runs it shows; `study/block` is one of another study, whose runs are then"
        " made too. Left out, all of this study's.",
        None,
    )
    title: str = key("Its title. Left out, its name.", None)
    reference: str = key(
        "A file of config/references, without .csv, whose numbers are drawn for comparison.", None
    )
    basis: str = key(
        "What speed-up and efficiency compare, for plots that show them: steps, the time of the"
        " training steps of an epoch after warm-up, or run, the time of the whole training with"
        " validation and warm-up in it. Left out, steps.",
        None,
        enum=["steps", "run"],
    )
    target: float = key(
        "Top-1 accuracy to reach, a fraction, for plots of the time to accuracy. Left out, they"
        " show the whole training.",
        None,
        exclusiveMinimum=0,
        maximum=1,
    )
    select: Annotated[tuple[tuple[str, Any], ...], mapping(ScalarOrList, in_order=False)] = key(
        "Only runs whose column has this value, or one of these: `{loader: [dali-cpu]}`.", ()
    )


@dataclass(frozen=True, kw_only=True)
class StudyKeys(Keys):
    """The keys that only the top level has, and that the plan takes as they are."""

    title: str = key("What the study asks, for the report.")
    goal: str = key(
        "What the answer on workers looks for: balanced, the most speed per money (least time x"
        " hours); fastest, the least time; cheapest, the least money, or hours of workers where the"
        " machine names no price; target, the least time to the accuracy that a figure of the study"
        " names (`target`). It is not part of run ids.",
        "balanced",
        enum=["balanced", "fastest", "cheapest", "target"],
    )
    records: Published = key(
        "Instead of runs, results that others published, in the same tables and figures; its keys"
        " are below.",
        None,
    )
    inference: Inference = key(
        "What inference with trained models costs, in several ways: latency, throughput, bytes of"
        " weights, change of top-1. Its keys are below. Left out, no inference is measured.",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class TopLevelKeys(StudyKeys):
    """The top level without the keys of blocks."""

    variants: dict[Name, dict[str, Any]] = key(
        "Frameworks with options, by the name that axes and figures then use: `{deepspeed-zero2:"
        " {framework: deepspeed, zero_stage: 2}}`. Each framework's options are below.",
        {},
    )
    runs: dict[Name, BlockKeys] = key(
        "Blocks by name. Each is the product of its axes; keys of the top level hold where a block"
        " is silent.",
        {},
    )
    figures: dict[Name, FigureKeys] = key(
        "Figures by name; the name is the file's name. `{}` for none."
    )


@dataclass(frozen=True, kw_only=True)
class FileKeys(BlockKeys, TopLevelKeys):
    """The keys of the whole file."""
