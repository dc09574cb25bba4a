"""What parts of the check train with: the settings of small runs, and the run path of every study to make them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddlbench.analysis.record import Record
from ddlbench.analysis.times import measures
from ddlbench.commands.gpucheck import FAIL, SKIPPED, Row
from ddlbench.core import registry
from ddlbench.core.columns import Why
from ddlbench.core.spec import RunSpec
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.plan import launch
from ddlbench.plan.installed import missing_packages
from ddlbench.records import ours
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.recipe import load_recipe

IMAGES = 2000  # of an epoch of synthetic-imagenet, without a size of its own
PROGRAM = ("python", "-m", "ddlbench.commands.gpucheck._ranks")


class RunFailedError(Exception):
    """A run of the check failed; its text is the end of what the run said."""


@dataclass(frozen=True)
class Bench:
    """Where a check runs: on which device, and the folder that is its own."""

    device: str
    folder: Path

    @property
    def tiny(self) -> bool:
        """Whether sizes are those of a CPU, where only the check itself is tried."""
        return self.device == "cpu"

    @property
    def machine(self) -> Machine:
        """This machine with one worker."""
        cores = len(os.sched_getaffinity(0))
        return replace(
            load_machine("local"),
            name="gpu-check",
            device=self.device,
            workers_per_node=1,
            cores_per_worker=1 if self.tiny else cores,
            loader_threads=min(cores, 8),
        )

    def spec(
        self, framework: str = "ddp", precision: str = "bf16", loader: str = "synthetic", **changes: Any
    ) -> RunSpec:
        """ResNet-50 with 200 images a step, which divide IMAGES: all steps are alike. On a CPU a model for its tests.

        `changes` are of RunSpec; `options` a mapping, `recipe` changes of the recipe.
        """
        recipe = load_recipe("imagenet-bf16").at(200)
        own: dict[str, Any] = {"name": f"gpu-check-{precision}", "precision": precision}
        own |= {"image_size": 32} if self.tiny else {}
        recipe = replace(recipe, **{**own, **changes.pop("recipe", {})})
        options = {"framework": framework, **changes.pop("options", {})}
        spec = RunSpec(
            machine=self.machine.name,
            device=self.device,
            dataset="synthetic-imagenet",
            model="lenet" if self.tiny else "resnet50",
            recipe=recipe,
            framework=framework,
            loader=loader,
            workers=1,
            workers_per_node=1,
            loader_threads=self.machine.loader_threads,
            global_batch=200,
            schedule="cosine",
            epochs=2 if self.tiny else 4,
            repeat=1,
            options=tuple(sorted(options.items())) if len(options) > 1 else (),
        )
        return replace(spec, **changes)

    def lacks(self, spec: RunSpec) -> str | None:
        """Why this run cannot be made here, or None."""
        missing = missing_packages([spec], self.machine)
        if missing:
            return missing[0]
        wants = registry.member("loaders", spec.loader).DEVICE
        if wants not in (None, self.device):
            return f"loader {spec.loader} needs device {wants}"
        if self.tiny and (spec.recipe.precision == "tf32" or spec.option("cudnn_benchmark")):
            return "tf32 and cudnn_benchmark are of GPUs only"
        refused: str | None = registry.member("frameworks", spec.adapter).refuses(spec)
        return refused

    def command(self, spec: RunSpec, label: str, inside: str | None = None, data: Path | None = None) -> list[str]:
        """What makes the run, as rule `train` would; `inside` names what its ranks do differently (`_ranks.py`)."""
        program = (*PROGRAM, inside) if inside else launch.PROGRAM
        manifest = ["--manifest", str(data / "manifest.json")] if data else []
        told = ["--spec", spec.to_json(), "--folder", str(self.place(spec, label)), *manifest]
        return [sys.executable, "-m", "ddlbench.run", *told, "--", *launch.command(spec, self.machine, program)]

    def place(self, spec: RunSpec, label: str) -> Path:
        """Where the run's record will lie. Runs of one spec that differ inside have different labels."""
        return self.folder / "runs" / label / spec.id

    def train(self, spec: RunSpec, label: str = "plain", inside: str | None = None, data: Path | None = None) -> Record:
        """The record of the run, which is made if it is not there. Raises RunFailedError."""
        folder = self.place(spec, label)
        if not (folder / "run.mllog").exists():
            done = subprocess.run(
                self.command(spec, label, inside, data), capture_output=True, text=True, env=self.environment()
            )
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "train.log").write_text(done.stdout + done.stderr, encoding="utf-8")
            if done.returncode:
                raise RunFailedError(last_words(done.stderr) + f" ({folder / 'train.log'})")
        return ours.record(folder)

    def environment(self) -> dict[str, str]:
        """This process's, with this Python's programs (torchrun, horovodrun) first."""
        return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def pictures(self, form: str) -> Path:
        """A small synthetic-imagenet in this form, made if it is not there."""
        folder = self.folder / "data" / "synthetic-imagenet" / form
        if not (folder / "manifest.json").exists():
            sizes = "train=200,val=20,classes=10" if self.tiny else f"train={IMAGES},val=200,classes=10"
            with redirect_stdout(sys.stderr):
                place = Place(sizes, self.folder / "fetched")
                prepare("synthetic-imagenet", form, folder, place=place, processes=len(os.sched_getaffinity(0)))
        return folder


def last_words(text: str) -> str:
    """The last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def images_per_s(record: Record) -> float:
    """The run's throughput after warm-up. Raises RunFailedError if there is none."""
    rate = measures(record)["throughput_images_per_s"]
    if isinstance(rate, Why):
        raise RunFailedError(str(rate))
    return float(rate)


def each(bench: Bench, runs: Mapping[str, RunSpec], judge: Callable[[str, RunSpec], Row]) -> Iterator[Row]:
    """A row per run: first of those that cannot be made here, then what `judge` says; it may raise RunFailedError."""
    lacks = {what: bench.lacks(spec) for what, spec in runs.items()}
    yield from (Row(what, SKIPPED, reason) for what, reason in lacks.items() if reason)
    for what, spec in runs.items():
        if not lacks[what]:
            try:
                yield judge(what, spec)
            except RunFailedError as error:
                yield Row(what, FAIL, str(error))


def losses(record: Record) -> list[float]:
    """Reads the loss of each step of a run with one worker, in their order."""
    return [float(loss) for loss in record.steps["loss"]]
