#!/usr/bin/env python
"""What tables of a study's runs cost: `collect` beside pyarrow reading the same summaries.

`python bench/collecting.py` prints a table and exits with 1 if a ratio is above its limit. The runs
are made up and shaped as real ones, with the summary that each run leaves beside its record. Both
sides read the same files, in processes of their own, in turns.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]

from ddlbench.analysis import summary  # noqa: E402
from ddlbench.analysis.collect import collect  # noqa: E402
from ddlbench.analysis.price import tariff  # noqa: E402
from ddlbench.analysis.sheets import Costs, Planned  # noqa: E402
from ddlbench.core.digest import digest  # noqa: E402
from ddlbench.core.record import SUMMARY  # noqa: E402
from ddlbench.plan import reads, runs  # noqa: E402
from ddlbench.records import ours  # noqa: E402
from ddlbench.settings.machine import load_machine  # noqa: E402
from ddlbench.settings.study import load_study  # noqa: E402
from page import BEGAN_S, summary_of, write_log  # noqa: E402
from told import tell  # noqa: E402

from tests.builders.records import write_record  # noqa: E402

STUDY, MACHINE = "aach2023", "juwels-booster"
DIGESTS = "digests.json"
LIMIT = 2.0  # seconds of collect over those of pyarrow


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=3, help="times that each side is measured")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.side:
        measure(a.side, a.folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch), a.runs)
        taken: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for _ in range(a.pairs):
            for side in SIDES:
                taken[side].append(asked(side, Path(scratch)))
    print(f"{a.runs} runs: {'':11} {'s':>7} {'CPU-s':>7} {'MB':>6}")
    for side, times in taken.items():
        middle = {name: median(one[name] for one in times) for name in times[0]}
        print(f"{side:24} {middle['s']:7.2f} {middle['cpu_s']:7.2f} {middle['mb']:6.0f}")
    pairs = zip(taken["collect"], taken["pyarrow"], strict=True)
    ratios = [ours_["s"] / rival["s"] for ours_, rival in pairs]
    print(f"collect over pyarrow: {median(ratios):.2f} (limit {LIMIT})")
    tell(f"tables of {a.runs} runs", "pyarrow", ratios, LIMIT, at_most=True)
    sys.exit(median(ratios) > LIMIT)


def make(folder: Path, count: int) -> None:
    """Make the records of so many runs: the study's, repeated as often as it takes."""
    study, machine = load_study(STUDY), load_machine(MACHINE)
    images = reads.images(study, machine, {})
    plan = runs.make_plan(study, machine, None, images)
    specs = [plan.runs[run].spec for run in plan.order]
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as scratch:
        template = summary.make(ours.record(write_record(Path(scratch))))
    digests = {}
    for number in range(count):
        of_study = specs[number % len(specs)]
        spec = replace(of_study, repeat=of_study.repeat + 100 * (number // len(specs)))
        hosts = [f"{MACHINE}-{node:04d}" for node in range(spec.nodes)]
        place = folder / "runs" / spec.id
        write_log(place, spec, images[spec.dataset], 600.0, BEGAN_S)
        made = summary_of(template, spec, images[spec.dataset], 600.0, BEGAN_S, hosts, rng)
        ours._write_summary(place, ours._stamps(place), json.dumps(made))
        digests[spec.id] = digest(json.loads(spec.to_json()))
    (folder / DIGESTS).write_text(json.dumps(digests))


def asked(side: str, folder: Path) -> dict[str, float]:
    """Return what a side took, in a process of its own."""
    argv = [sys.executable, __file__, "--side", side, "--folder", str(folder)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    taken: dict[str, float] = json.loads(done.stdout)
    return taken


def measure(side: str, folder: Path) -> None:
    """Print the seconds, the CPU seconds and the memory that one side takes."""
    began, cpu = perf_counter(), process_time()
    SIDES[side](folder)
    taken = {"s": perf_counter() - began, "cpu_s": process_time() - cpu}
    print(json.dumps(taken | {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}))


def collect_all(folder: Path) -> None:
    """Write all tables of the runs, as the workflow does."""
    places = sorted((folder / "runs").iterdir())
    costs = Costs(tariff(load_machine(MACHINE)))
    digests = json.loads((folder / DIGESTS).read_text())
    planned = Planned(settings=digests, order=[place.name for place in places])
    refused = collect(places, folder / "tables", planned, costs)
    if refused:
        sys.exit(f"{len(refused)} records are refused, the first: {refused[0]}")


def read_all(folder: Path) -> None:
    """Read the same summaries with pyarrow."""
    import pyarrow as pa
    from pyarrow import json as of_arrow

    for place in sorted((folder / "runs").iterdir()):
        _, body = (place / SUMMARY).read_bytes().splitlines()
        block = of_arrow.ReadOptions(block_size=len(body) + 1, use_threads=False)
        of_arrow.read_json(pa.BufferReader(body), read_options=block)


SIDES = {"collect": collect_all, "pyarrow": read_all}

if __name__ == "__main__":
    main()
