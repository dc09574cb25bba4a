"""What a page is about: a study's figures and the runs that they show, its machine, its bill."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench.analysis.price import FREE, Tariff, tariff
from ddlbench.answers import Goal
from ddlbench.answers.wording import Nouns
from ddlbench.core import kinds, layout, registry
from ddlbench.core.formatting import worker
from ddlbench.core.program import IMAGES
from ddlbench.plan import budget, rounds
from ddlbench.plan import runs as plan_runs
from ddlbench.plan.values import Plan, Row
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Figure


@dataclass(frozen=True)
class PageFigure:
    """A figure of the study: its file is `layout.figure(home, name)`; `runs` are those that it
    shows (ids).

    `reference` is the file of published numbers that is drawn with it. `jobs` says how many jobs
    that do not train a figure shows instead; `target` is the accuracy that it is about.
    """

    name: str
    title: str
    plot: str
    caption: str
    runs: tuple[str, ...]
    reference: str | None = None
    jobs: str = ""
    target: float | None = None


@dataclass(frozen=True)
class PageStudy:
    """The study that a page is about.

    `command` makes it again; `planned` is what a plan said beforehand, by run [s].

    `sample` is what a step counts. `partial` is how much of the study is there (`7 of 9 runs`) if
    the page does not wait for all of it. `groups` are what its jobs take in `budget_unit`, in which
    the centre gives compute time. `tariff` is the machine's, `goal` is what the study wants of its
    workers. Where repeats are made until it is decided, `looked` is which of its `looks` this is.
    """

    name: str
    title: str
    machine: str
    device: str
    device_name: str
    command: str
    figures: tuple[PageFigure, ...]
    bill: tuple[Row, ...]
    planned: Mapping[str, float | None]
    partial: str = ""
    sample: str = IMAGES
    groups: tuple[budget.BudgetGroup, ...] = ()
    budget_unit: str = "GPU hours"
    tariff: Tariff = FREE
    goal: str = Goal.BALANCED
    looks: int = 1
    looked: int = 1

    @property
    def up(self) -> str:
        """Return the path from the page's folder up to `results`."""
        return "../../../" if self.partial else "../../"

    @property
    def worker(self) -> str:
        """Return what a worker is called."""
        return worker(self.device)

    @property
    def unit(self) -> str:
        """Return what workers are called."""
        return f"{self.worker}s"

    @property
    def nouns(self) -> Nouns:
        """Return what answers call its workers, and what a step counts."""
        return Nouns(self.worker, self.sample)

    @property
    def ours(self) -> bool:
        """Tell whether its runs are ours, not records that others made."""
        return self.device in ("cuda", "cpu")

    @property
    def where(self) -> str:
        """Describe where its runs are from."""
        if self.ours:
            return f"on machine {self.machine}, {self.device_name}"
        return f"of results that others published ({self.device})"


def from_plan(
    plan: Plan, bill: Sequence[Row], planned: Mapping[str, float | None], partial: str = ""
) -> PageStudy:
    """Return what the page of a plan's study is about, with the rows of its plan
    (`plan/bill.py`).
    """
    study, machine = plan.study, plan.machine
    device = study.records.kind if study.records else machine.device
    figures = tuple(_figure(plan, figure) for figure in study.figures)
    settings = [
        "--profile",
        profile(machine),
        "--config",
        f"study={study.name}",
        f"machine={machine.name}",
    ]
    whole = ["snakemake", *settings, "--force", "--", layout.page(plan.home)]
    again = shlex.join(["ddlbench", "partial", *settings] if partial else whole)
    named = (study.name, study.title, machine.name, device, machine.device_name)
    samples = {job.spec.sample for job in plan.runs.values()} or {IMAGES}
    sample = samples.pop() if len(samples) == 1 else "samples"
    groups = tuple(budget.groups(bill, machine))
    return PageStudy(
        *named,
        again,
        figures,
        tuple(bill),
        planned,
        partial,
        sample,
        groups=groups,
        budget_unit=machine.budget_unit,
        tariff=tariff(machine),
        goal=study.goal,
        looks=len(rounds.looks(study.until)) if study.until else 1,
        looked=rounds.look_number(plan),
    )


def _figure(plan: Plan, figure: Figure) -> PageFigure:
    shown = plan_runs.figure_runs(plan, figure.name) or ()
    rules = [plan.non_training[name].rule for name in shown if name in plan.non_training]
    return PageFigure(
        figure.name,
        figure.title or figure.name,
        figure.plot,
        " ".join(registry.docstring("figures", figure.plot).split()),
        tuple(run for run in shown if run in plan.runs),
        figure.reference_file,
        kinds.counted(rules) if rules else "",
        figure.target,
    )


def profile(machine: Machine) -> str:
    """Name the folder of the Snakemake profile that names this machine, else the one for its
    launcher.
    """
    for file in sorted(Path("profiles").glob("*/ddlbench.yaml")):
        if re.search(
            rf"^machine: {re.escape(machine.name)}$", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            return str(file.parent)
    return "profiles/slurm" if machine.launcher == "slurm" else "profiles/local"
