"""What parts of the check start: tests, and small runs on the run path of every study, all within the part's time."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddlbench.analysis.record import Record
from ddlbench.analysis.times import measures
from ddlbench.commands.gpucheck import FAIL, SKIPPED, Outcome
from ddlbench.core import registry
from ddlbench.core.columns import Why
from ddlbench.core.spec import RunSpec
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.plan import launch
from ddlbench.plan.reads import missing_packages
from ddlbench.records import ours
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.recipe import load_recipe

IMAGES = 2000  # of an epoch of synthetic-imagenet, without a size of its own
BATCH = {False: 192, True: 20}  # by `tiny`; 192 leaves a last step of 80, as real data sets leave a smaller one


class RunFailedError(Exception):
    """A run of the check failed; its text is the end of what the run said."""


@dataclass(frozen=True)
class Bench:
    """Where a check runs: on which device, the folder that is its own, and until when [s of the monotonic clock].

    `tiny` asks for sizes that a CPU can train. Ranks execute `program`.
    """

    device: str
    folder: Path
    tiny: bool = False
    program: tuple[str, ...] = launch.PROGRAM
    ends_s: float = math.inf

    def until(self, limit_s: float) -> "Bench":
        """The same, which ends what it starts in so many seconds."""
        return replace(self, ends_s=time.monotonic() + limit_s)

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
        """Four epochs of ResNet-50, or of a small model (`tiny`). `changes` are of RunSpec; `options` a mapping."""
        options = {"framework": framework, **changes.pop("options", {})}
        batch = changes.get("global_batch", BATCH[self.tiny])
        keys: dict[str, Any] = {"name": f"gpu-check-{precision}", "precision": precision}
        keys |= {"image_size": 32} if self.tiny else {}
        spec = RunSpec(
            machine=self.machine.name,
            device=self.device,
            dataset="synthetic-imagenet",
            model="lenet" if self.tiny else "resnet50",
            recipe=replace(load_recipe("imagenet-bf16").at(batch), **keys),
            framework=framework,
            loader=loader,
            workers=1,
            workers_per_node=1,
            loader_threads=self.machine.loader_threads,
            global_batch=batch,
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
        if self.device == "cpu" and (spec.recipe.precision == "tf32" or spec.option("cudnn_benchmark")):
            return "tf32 and cudnn_benchmark are of GPUs only"
        refused: str | None = registry.member("frameworks", spec.adapter).refuses(spec)
        return refused

    def command(self, spec: RunSpec, data: Path | None = None) -> list[str]:
        """What makes the run, as rule `train` would."""
        manifest = ["--manifest", str(data / "manifest.json")] if data else []
        words = ["--spec", spec.to_json(), "--folder", str(self.place(spec)), *manifest]
        return [sys.executable, "-m", "ddlbench.run", *words, "--", *launch.command(spec, self.machine, self.program)]

    def place(self, spec: RunSpec) -> Path:
        """Where the run's record will lie."""
        return self.folder / "runs" / spec.id

    def train(self, spec: RunSpec, data: Path | None = None) -> Record:
        """The record of the run. Raises RunFailedError."""
        folder = self.place(spec)
        code, text = self.call(self.command(spec, data), folder.with_suffix(".log"))
        if code:
            raise RunFailedError(f"{last_words(text)} ({folder.with_suffix('.log')})")
        return ours.record(folder)

    def call(self, command: list[str], log: Path, **env: str) -> tuple[int, str]:
        """Exit code and output of a command, whose output also goes into `log`. `env` are variables of its environment.

        Raises RunFailedError if the part's time is over.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of torchrun and horovodrun
        with log.open("w", encoding="utf-8") as file:
            env = os.environ | {"PATH": path} | env
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=env)
            try:
                process.wait(max(0.0, self.ends_s - time.monotonic()) if math.isfinite(self.ends_s) else None)
            except subprocess.TimeoutExpired:
                raise RunFailedError(f"the time of this part is over; {log}") from None
            finally:
                with suppress(ProcessLookupError):  # ddlbench.run ends its ranks when it is ended itself
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode, log.read_text(encoding="utf-8", errors="replace")

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


def each(bench: Bench, runs: Mapping[str, RunSpec], judge: Callable[[str, RunSpec], Outcome]) -> Iterator[Outcome]:
    """A row per run: first of those that cannot be made here, then what `judge` says; it may raise RunFailedError."""
    lacks = {what: bench.lacks(spec) for what, spec in runs.items()}
    yield from (Outcome(what, SKIPPED, reason) for what, reason in lacks.items() if reason)
    for what, spec in runs.items():
        if not lacks[what]:
            try:
                yield judge(what, spec)
            except RunFailedError as error:
                yield Outcome(what, FAIL, str(error))
