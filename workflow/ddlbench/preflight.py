"""A job of a minute before any training: is the machine what its file says? Rule `preflight` runs it.

`promise` says what a study expects of its machine; ranks look around (`scout.py`), started as those of a run are;
`judge.py` compares. An error would break training, or make it something else than what was asked for, and training does
not start. A warning is printed, and every record cites it, like everything that was measured: the file's SHA-256 is in
`ddlbench_facts`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddlbench import guard, launch, modules, registry
from ddlbench.facts import PACKAGES, sha256
from ddlbench.judge import Problem, count, judge
from ddlbench.plan import Plan
from ddlbench.watch import notes, watch

PROGRAM = ("python", "-m", "ddlbench.scout")
MINUTES = 10  # that a queue is asked for


@dataclass(frozen=True)
class Trial:
    """The ranks of a preflight, for `launch`: PyTorch's launcher starts them on one machine."""

    workers: int
    workers_per_node: int
    adapter: str = "ddp"

    @property
    def nodes(self) -> int:
        """Nodes that they fill."""
        return -(-self.workers // self.workers_per_node)


def trial(plan: Plan) -> Trial:
    """Two nodes, or one if the study uses no more, with as many workers on each as it uses; two workers on a machine
    without a queue.
    """
    if plan.machine.launcher == "local":
        workers = min(2, plan.machine.workers)
        return Trial(workers, workers)
    specs = [job.spec for job in plan.jobs.values()]
    per_node = max(spec.workers_per_node for spec in specs)
    return Trial(min(2, max(spec.nodes for spec in specs)) * per_node, per_node)


def promise(plan: Plan) -> dict[str, Any]:
    """What the study expects of its machine, as plain values: a change of one makes a new preflight."""
    machine, of = plan.machine, trial(plan)
    specs = [job.spec for job in plan.jobs.values()]
    rooms = {"frameworks": {spec.adapter for spec in specs}, "loaders": {spec.loader for spec in specs}}
    members = [(room, name, registry.member(room, name)) for room in rooms for name in sorted(rooms[room])]
    return {
        "machine": machine.name,
        "launcher": machine.launcher,
        "nodes": of.nodes,
        "workers": of.workers,
        "workers_per_node": of.workers_per_node,
        "cores_per_worker": machine.cores_per_worker,
        "device": machine.device,
        "gpu_name": machine.gpu_name,
        "modules": list(machine.modules),
        "environment": dict(machine.environment),
        "host_suffix": machine.host_suffix,
        "data": machine.data,
        "manifests": sorted({job.manifest for job in plan.jobs.values() if job.manifest}),
        "packages": {
            m.PACKAGE: f"{room[:-1]} {name} needs it: {m.INSTALL}" for room, name, m in members if m.PACKAGE is not None
        },
        "versions": sorted({*PACKAGES, *(m.DISTRIBUTION for _, _, m in members if m.DISTRIBUTION)}),
    }


def path(plan: Plan) -> str:
    """Where the preflight of this study on its machine lies."""
    return f"results/machines/{plan.machine.name}/preflight-{plan.study.name}.json"


def failed_path(of: Path) -> Path:
    """Where what a preflight found lies if training must not start."""
    return of.with_suffix(".failed.json")


def is_current(plan: Plan) -> bool:
    """Whether there is a preflight for just this."""
    try:
        made = json.loads(Path(path(plan)).read_text(encoding="utf-8"))["promised"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    wanted = promise(plan)
    return bool(made == wanted and all(Path(manifest).exists() for manifest in wanted["manifests"]))


@dataclass(frozen=True)
class Gate:
    """`gate(files)` is `files`, and makes the job that asks for them wait for the preflight if it is still to be made.

    An input, even an ancient one, would stay among the finished run's: each new preflight would make finished runs
    stale, and hide those that are (Snakemake 9.27 looks at nothing behind an ancient file that it makes again). With a
    checkpoint, Snakemake asks again when it is there, and then it is forgotten. A dry run has nothing to wait for.
    """

    workflow: Any
    checkpoints: Any
    is_open: bool

    def __call__(self, files: Any) -> Any:
        w = self.workflow
        if not self.is_open and w.is_main_process and w.executor_plugin is not None and not w.dryrun:
            self.checkpoints.preflight.get()
        return files


def resources(plan: Plan, account: str | None) -> dict[str, str | int | None]:
    """What Snakemake asks of the machine for it, as `launch.resources` of a run."""
    return launch.resources(trial(plan), plan.machine, MINUTES, account, PROGRAM)


def summary(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was measured, a line each."""
    first = next((facts for facts in ranks if facts["rank"] == 0), None)
    if first is None:
        return []
    lines = [f"{count(len(ranks), 'rank')} on {', '.join(sorted({facts['host'] for facts in ranks}))}"]
    for name, done in (first.get("all_reduce") or {}).items() if len(ranks) > 1 else ():
        lines.append(f"all-reduce of {done['bytes'] >> 20} MiB by {name}: {done['seconds'] * 1e3:.1f} ms")
    for host, clock in (first.get("clocks") or {}).items():
        lines.append(f"clock of {host}: {clock['offset_s'] * 1e3:+.3f} +- {clock['uncertainty_s'] * 1e3:.3f} ms")
    for facts in ranks:
        for form in facts["read"]:
            if form["bytes_per_s"] is None:
                continue
            cached = form["cached_share"]
            cold = "cached or not is unknown" if cached is None else f"{cached:.0%} of it cached"
            speed = f"{form['bytes_per_s'] / 1e6:.0f} MB/s ({form['bytes'] / 1e6:.1f} MB, {cold})"
            lines.append(f"{facts['host']} reads {form['folder']}: {speed}")
    free = ", ".join(f"{place} {size / 1e9:.1f} GB" for place, size in first.get("free_bytes", {}).items())
    return [*lines, f"free: {free}"]


def execute(promised: dict[str, Any], output: Path, argv: list[str]) -> int:
    """Start the ranks, judge what they found and write it down. 0 if training may start.

    With errors, what was found is in `failed_path(output)` instead.
    """
    folder = output.with_suffix(".partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    guard.write(folder / "job.json", promised)
    wrong = modules.complaint(promised["machine"], promised["modules"], os.environ)
    if wrong:
        ranks, problems = [], [Problem(True, wrong)]  # what ranks would find is something else
    else:
        seen = watch([*argv, str(folder)], folder)
        left = notes(folder, "rank")
        ranks = [left[rank] for rank in sorted(left)]
        problems = judge(ranks, promised)
        if seen.code and not any(problem.error for problem in problems):
            problems.insert(0, Problem(True, f"the launcher ended with {seen.code}; its words are above"))
    found = {
        "time": time.time(),
        "promised": promised,
        "problems": [asdict(problem) for problem in problems],
        "ranks": ranks,
    }
    failed = any(problem.error for problem in problems)
    print(*summary(ranks), *map(str, problems), sep="\n", flush=True)
    if failed:
        guard.write(failed_path(output), found)
    else:
        guard.write(output, found)
        # The next one takes its place; records that cite this one can still find it.
        kept = output.parent / "kept"
        kept.mkdir(exist_ok=True)
        shutil.copyfile(output, kept / f"{sha256(output)}.json")
        failed_path(output).unlink(missing_ok=True)
    shutil.rmtree(folder)
    return int(failed)


def errors(of: Path) -> list[str]:
    """The errors of a preflight that failed, and of no other; lines for people."""
    try:
        problems = json.loads(failed_path(of).read_text(encoding="utf-8"))["problems"]
    except FileNotFoundError:
        return []
    return [f"preflight: {problem['text']}" for problem in problems if problem["error"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--promised", required=True, help="what the study expects of its machine, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    sys.exit(execute(json.loads(a.promised), a.output, a.command))


if __name__ == "__main__":
    main()
