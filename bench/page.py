#!/usr/bin/env python
"""How large the page of a study is and how long a browser takes to show it, for the demo, for 540
and for 10 080 runs.

`python bench/page.py` prints a table and exits with 1 if a page is beyond its limit. The runs are
made up and shaped as real ones: each has a log and a row in every table, tables and figures are
made as the workflow makes them. No number on these pages means anything. It needs Chromium;
`--keep` leaves the pages to be looked at.
"""

import argparse
import copy
import json
import math
import random
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]

from ddlbench.analysis import claim_verdicts, claims, frameworks, slow_nodes, summary  # noqa: E402
from ddlbench.analysis.collect import collect  # noqa: E402
from ddlbench.analysis.price import tariff  # noqa: E402
from ddlbench.analysis.sheets import Costs, Planned  # noqa: E402
from ddlbench.audit import finding_rows  # noqa: E402
from ddlbench.audit.check import audit  # noqa: E402
from ddlbench.audit.material import of_study  # noqa: E402
from ddlbench.core import layout  # noqa: E402
from ddlbench.core.columns import write_csv  # noqa: E402
from ddlbench.core.rank_log import RankLog  # noqa: E402
from ddlbench.core.record import MLLOG, STEPS  # noqa: E402
from ddlbench.core.spec import RunSpec, steps_per_epoch  # noqa: E402
from ddlbench.plan import bill, reads, runs  # noqa: E402
from ddlbench.plan.estimate import Estimator, read_published  # noqa: E402
from ddlbench.plan.values import Plan  # noqa: E402
from ddlbench.records import ours  # noqa: E402
from ddlbench.settings.machine import load_machine  # noqa: E402
from ddlbench.settings.study import load_study  # noqa: E402
from ddlbench.show.figures import Options  # noqa: E402
from ddlbench.show.make_figure import draw, write_data  # noqa: E402
from ddlbench.show.page import about, spent, write  # noqa: E402

from tests.browser import CHROMIUM, Browser  # noqa: E402
from tests.builders.records import RANKS, write_record  # noqa: E402

MIB = 1_000_000


class Page(NamedTuple):
    """A study's page: what it is called here, the study, the machine, its repeats (None: those of
    its file), the most megabytes, and the most seconds until it is open.
    """

    name: str
    study: str
    machine: str
    repeats: int | None
    most_mb: float
    most_s: float


PAGES = (
    Page("demo", "demo", "local", None, 3.0, 1.0),
    Page("aach2023", "aach2023", "juwels-booster", None, 10.0, 1.0),
    Page("large", "aach2023", "juwels-booster", 56, 5.0, 1.0),
)
BEGAN_S = 1.79e9
# Milliseconds from asking for the page until something is drawn, and until all of it is loaded.
TIMES = """new Promise(done => {
  const load = () => performance.getEntriesByType("navigation")[0].loadEventEnd;
  new PerformanceObserver((list, observer) => {
    const paint = list.getEntries().find((one) => one.name === "first-contentful-paint");
    if (paint) { observer.disconnect(); done([paint.startTime, Math.max(load(), paint.startTime)]); }
  }).observe({ type: "paint", buffered: true });
})"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--opens", type=int, default=5, help="times that each page is opened")
    parser.add_argument("--studies", nargs="+", default=[page.name for page in PAGES])
    parser.add_argument("--keep", type=Path, help="a folder for results/")
    a = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("no chromium: apt-get install chromium")
    failed = False
    print(
        f"{'study':10} {'runs':>5} {'made [s]':>9} {'MB':>6} {'/limit':>7} {'seen [s]':>9}"
        f" {'open [s]':>9} /limit"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for asked in PAGES:
            if asked.name not in a.studies:
                continue
            results = (a.keep or Path(scratch)) / f"{asked.name}/results"
            count, made_s, page = make(asked, results)
            mb = page.stat().st_size / MIB
            seen_s, open_s = opened(page, Path(scratch), a.opens)
            size = f"{asked.name:10} {count:5} {made_s:9.1f} {mb:6.2f} {mb / asked.most_mb:7.2f}"
            print(f"{size} {seen_s:9.2f} {open_s:9.2f} {open_s / asked.most_s:6.2f}", flush=True)
            failed |= mb > asked.most_mb or open_s > asked.most_s
    sys.exit(failed)


def opened(page: Path, scratch: Path, times: int) -> tuple[float, float]:
    """Medians [s]: from asking for the page until something is seen, and until all of it is
    loaded.
    """
    taken = []
    with Browser(Path(tempfile.mkdtemp(dir=scratch))) as browser:
        for _ in range(times):
            browser.open(page)
            taken.append(browser.evaluate(TIMES))
    seen, loaded = (median(side) / 1e3 for side in zip(*taken, strict=True))
    return seen, loaded


def make(asked: Page, results: Path) -> tuple[int, float, Path]:
    """(runs, seconds that the page took, the page) of a study whose runs are made up."""
    study, machine = load_study(asked.study), load_machine(asked.machine)
    if asked.repeats is not None:
        blocks = tuple(replace(block, repeats=asked.repeats) for block in study.blocks)
        study = replace(study, blocks=blocks)
    images = reads.images(study, machine, {})
    plan = runs.make_plan(study, machine, None, images)
    # There are no pictures, which would make all runs stale.
    plan = replace(plan, runs={run: replace(job, manifest=None) for run, job in plan.runs.items()})
    home = results / plan.home
    collect_runs(plan, images, results)
    verdicts = claims.read(ROOT / "config/references/claims.csv")
    frames = (pd.read_parquet(home / f"tables/{table}.parquet") for table in ("runs", "kernels"))
    claim_verdicts.verdicts(verdicts, *frames).to_csv(home / "tables/verdicts.csv", index=False)
    write_csv(audit(of_study(home / "tables")), finding_rows.COLUMNS, home / "tables/audit.csv")
    frameworks.write(home / "tables/frameworks.csv")
    for figure in study.figures:
        options = Options(**json.loads(runs.figure_options(plan, figure.name)))
        if figure.reference_file:
            options = replace(options, reference=pd.read_csv(figure.reference_file))
        path = home / "figures" / figure.name
        data = path.with_name(f"{path.name}.csv")
        path.parent.mkdir(exist_ok=True)
        write_data(
            figure.plot, home / "tables", runs.figure_runs(plan, figure.name) or (), data, options
        )
        draw(figure.plot, data, path, options)
    began = perf_counter()
    rows = bill.rows(plan, images, results)
    page = about.from_plan(plan, rows, spent.planned(plan, images, read_published()))
    write.write(page, home / "index.html", results)
    return len(plan.runs), perf_counter() - began, home / "index.html"


def collect_runs(plan: Plan, images: Mapping[str, int], results: Path) -> None:
    """The tables of made-up runs, a log of each, the hosts of their machine and what a preflight
    said of it.
    """
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        template = summary.make(ours.record(write_record(Path(folder))))
    before = Estimator(plan.machine, (), read_published())
    made, began_s = {}, BEGAN_S
    for run in plan.order:
        spec = plan.runs[run].spec
        planned_s = before.estimate(spec, images[spec.dataset]).s or 600.0
        took_s = planned_s * slower(spec) * rng.gauss(1.1, 0.03)
        hosts = [f"{plan.machine.name}-{number:04d}" for number in range(spec.nodes)]
        made[run] = summary_of(template, spec, images[spec.dataset], took_s, began_s, hosts, rng)
        write_log(
            Path(layout.run(run, results=results)), spec, images[spec.dataset], took_s, began_s
        )
        began_s += took_s + 20
    folders = [Path(layout.run(run, results=results)) for run in plan.runs]
    home = results / plan.home / "tables"
    planned = Planned(order=list(plan.order), scaling=plan.scaling)
    collect(
        folders, home, planned, Costs(tariff(plan.machine)), read=lambda place, _: made[place.name]
    )
    of_machine(plan, results / "machines" / plan.machine.name, rng)


def slower(spec: RunSpec) -> float:
    """How many times as long as planned a made-up run takes: frameworks and loaders differ, and all
    lose on the way.
    """
    by = {"horovod": 1.05, "deepspeed": 1.2, "native": 1.1, "torchvision": 1.3, "synthetic": 0.95}
    return by.get(spec.framework, 1.0) * by.get(spec.loader, 1.0) * spec.workers**0.05


def summary_of(
    template: summary.Summary,
    spec: RunSpec,
    images: int,
    took_s: float,
    began_s: float,
    hosts: Sequence[str],
    rng: random.Random,
) -> summary.Summary:
    """A run's summary: the template's columns, with numbers of this run's size."""
    made = copy.deepcopy(template)
    epoch_s = 0.95 * took_s / spec.epochs
    step_s = epoch_s / steps_per_epoch(images, spec.global_batch)
    parts = {
        "data_wait_s": 0.1,
        "forward_s": 0.2,
        "backward_s": 0.4,
        "communication_s": 0.2,
        "optimizer_s": 0.1,
    }
    parts = {name: share * step_s for name, share in parts.items()}
    made["run"] |= spec.columns() | {
        "images": images,
        "extrapolated": spec.epochs < spec.full_epochs,
    }
    made["run"] |= {"hosts": ",".join(hosts), "command": f"srun {'--option=value ' * 40}"}
    made["run"] |= {
        "cpu": "AMD EPYC 7402",
        "gpu": "A100-SXM4-40GB" if spec.device == "cuda" else None,
    }
    values = made["values"]
    values |= parts | {"compute_s": 0.7 * step_s, "communication_transfer_s": 0.15 * step_s}
    values |= {
        "communication_wait_s": 0.05 * step_s,
        "throughput_images_per_s": images / epoch_s,
        "epoch_s": epoch_s,
    }
    values |= {name: step_s for name in values if name.startswith("step_")}
    speeds = [*values.keys() & {*parts, "epoch_s", "throughput_images_per_s", "compute_s"}]
    speeds += [name for name in values if name.startswith(("step_", "communication_"))]
    values |= {
        "train_s": took_s,
        "full_train_s": took_s * spec.full_epochs / spec.epochs,
        "run_s": took_s + 20,
    }
    top1 = 0.97 - 0.01 * max(0.0, math.log2(spec.global_batch / 64)) ** 2 / 2 + rng.gauss(0, 0.004)
    values |= {
        "final_top1": (top := max(top1, 0.02)),
        "final_loss": 2.0 / spec.epochs,
        "best_top1": top,
        "final_top5": top,
        "best_top5": top,
        "started_s": began_s,
    }
    numbers = [*range(1, spec.epochs + 1)]
    made["epochs"] = {
        name: [column[-1]] * spec.epochs for name, column in template["epochs"].items()
    }
    made["epochs"] |= {
        "epoch": numbers,
        "train_s": [epoch_s] * spec.epochs,
        "top1": [n / 120 for n in numbers],
    }
    made["epochs"]["loss"] = [2.0 / n for n in numbers]
    made["learning_rates"] = {
        "epoch": [n / 2 for n in range(2 * spec.epochs)],
        "lr": [0.1] * 2 * spec.epochs,
    }
    losses = dict.fromkeys(
        ("transfer_s", "input_s", "waiting_s", "epochs_s", "validation_s", "checkpoint_s"), 0.05
    )
    losses |= {"compute_s": 0.7, "unexplained_s": 0.0, "total_s": 1.0}
    made["losses"] |= {name: share * took_s for name, share in losses.items()} | {"run": spec.id}
    made["losses"]["images"] = images * spec.epochs
    made["step_times"] |= parts | {"run": spec.id}
    if not spec.timed:
        made |= {"losses": None, "step_times": None}
        made["why"] |= dict.fromkeys(speeds, "the run was not timed")
        made["values"] = {name: value for name, value in values.items() if name not in speeds}
    if spec.profiled:
        shares = {"communication": 20.0, "input": 10.0, "computation": 65.0, "other": 5.0}
        made["kernels"] = {
            name: made["run"][name] for name in ("run", "model", "framework", "loader", "workers")
        }
        made["kernels"] |= {f"{name}_percent": share for name, share in shares.items()}
    return made


def write_log(folder: Path, spec: RunSpec, images: int, took_s: float, began_s: float) -> None:
    """What the bill reads of a record: its log, with one event per epoch and what each rank
    measured.
    """
    folder.mkdir(parents=True)
    log = RankLog(folder, 0)
    log.write_settings(spec, {}, images, 50_000)
    begin_ms, long_ms = round(1000 * began_s), round(1000 * took_s)
    path = folder / MLLOG
    path.write_text(re.sub(r'"time_ms": \d+', f'"time_ms": {begin_ms}', path.read_text()))
    log.mllog.start("run_start", None, None, time_ms=begin_ms)
    log.mllog.start("epoch_start", None, {"epoch_num": 1}, time_ms=begin_ms)
    # mllog asks for its caller's file, which takes milliseconds: too long for 30 000 epochs.
    mark, said = path.read_text().splitlines()[-1].split(" ", 1)
    first = json.loads(said)
    with path.open("a") as file:
        for epoch in range(1, spec.epochs):
            metadata = first["metadata"] | {"epoch_num": epoch + 1}
            later = first | {
                "time_ms": begin_ms + long_ms * epoch // spec.epochs,
                "metadata": metadata,
            }
            file.write(f"{mark} {json.dumps(later)}\n")
    log.mllog.end("run_stop", None, {"status": "success"}, time_ms=begin_ms + long_ms)
    log.mllog.event("ddlbench_elapsed_s", took_s, None, time_ms=begin_ms + long_ms)
    measured = [RANKS[0] | {"device_energy_j": 300.0 * took_s}] * spec.workers
    log.mllog.event("ddlbench_ranks", measured, None, time_ms=begin_ms + long_ms)
    for name in (STEPS, "train.log"):
        (folder / name).touch()


def of_machine(plan: Plan, folder: Path, rng: random.Random) -> None:
    """What `ddlbench nodes` and a preflight leave of a machine: all its hosts."""
    hosts = [f"{plan.machine.name}-{number:04d}" for number in range(plan.machine.nodes)]
    folder.mkdir(parents=True)
    write_csv(
        [
            {
                "host": host,
                "part": part,
                "verdict": slow_nodes.LIKE,
                "runs": 9,
                "epochs": 800,
                "slow_epochs": 3,
            }
            | {
                "local_rank": 1,
                "excess_s": rng.gauss(0, 1e-3),
                "ratio": rng.gauss(1, 0.01),
                "low": 0.98,
                "high": 1.02,
            }
            | {"over": "runs", "over_own_best": 1.01}
            for host in hosts
            for part in slow_nodes.PARTS
        ],
        slow_nodes.COLUMNS,
        folder / "nodes.csv",
    )
    found = {
        "time": BEGAN_S,
        "problems": [],
        "ranks": [{"rank": number, "host": host} for number, host in enumerate(hosts)],
    }
    (folder / f"preflight-{plan.study.name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
