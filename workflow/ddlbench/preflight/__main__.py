"""A job of a minute before any training: is the machine what its file says? Rule `preflight` runs
it.

`promise.py` says what a study expects of its machine. Ranks are started like those of a run and
look around (`scout.py`); `judge.py` compares. With an error, training would fail or would not be
what was asked for: it does not start. Warnings are printed, and every record cites them: the
SHA-256 of this job's output is in `ddlbench_facts`.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from ddlbench.core import notes, site_torch
from ddlbench.core.files import aside, sha256, write_json
from ddlbench.core.formatting import count_of
from ddlbench.core.living import die_with_parent
from ddlbench.preflight.judge import Problem, judge, judge_nodes
from ddlbench.preflight.promise import FAILED
from ddlbench.preflight.scout import PROMISED
from ddlbench.run.job import reveal
from ddlbench.run.turn import turn
from ddlbench.run.watch import watch
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.slurm import squeue, srun_messages


def spans(numbers: Sequence[int]) -> str:
    """Format numbers as ranges: 0, 1, 2, 5 -> 0-2,5."""
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = ([number for _, number in run] for _, run in runs)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def summary(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    first = next((facts for facts in ranks if facts["rank"] == 0), None)
    if first is None:
        return []
    lines = [
        f"{count_of(len(ranks), 'rank')} on {', '.join(sorted({facts['host'] for facts in ranks}))}"
    ]
    if first.get("torch_from") not in (None, site_torch.OWN):
        lines.append(f"PyTorch {first['versions']['torch']} is the site's: {first['torch_from']}")
    for name, done in (first.get("all_reduce") or {}).items() if len(ranks) > 1 else ():
        lines.append(
            f"all-reduce of {done['bytes'] >> 20} MiB by {name}: {done['seconds'] * 1e3:.1f} ms"
        )
    lines += [
        f"other processes on {facts['host']} keep {facts['others_cores']:.1f} cores busy"
        for facts in ranks
        if "others_cores" in facts
    ]
    for host, clock in (first.get("clocks") or {}).items():
        lines.append(
            f"clock of {host}: {clock['offset_s'] * 1e3:+.3f} +-"
            f" {clock['uncertainty_s'] * 1e3:.3f} ms"
        )
    here = [facts for facts in ranks if facts["host"] == first["host"] and "cores" in facts]
    lines += [
        f"rank {facts['rank']} on {facts['host']}: cores {spans(facts['cores'])}" for facts in here
    ]
    for facts in ranks:
        for form in facts["read"]:
            if form["bytes_per_s"] is None:
                continue
            cached = form["cached_share"]
            cold = "unknown whether cached" if cached is None else f"{cached:.0%} of it cached"
            speed = f"{form['bytes_per_s'] / 1e6:.0f} MB/s ({form['bytes'] / 1e6:.1f} MB, {cold})"
            lines.append(f"{facts['host']} reads {form['folder']}: {speed}")
    free = ", ".join(
        f"{place} {size / 1e9:.1f} GB" for place, size in first.get("free_bytes", {}).items()
    )
    return [*lines, f"free: {free}"]


def execute(expected: dict[str, Any], output: Path, argv: list[str]) -> int:
    """Start the ranks, judge what they saw and write it to `output`.

    Returns 0 if training may start. With errors it is written to a file beside it (`FAILED`)
    instead.
    """
    folder = output.with_suffix(".partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / PROMISED, expected)
    wrong = environment_modules.complaint(expected["machine"], expected["modules"], os.environ)
    if wrong:
        ranks, problems = [], [Problem(True, wrong)]  # ranks would look at other software
    else:
        argv, hidden = reveal([*argv, str(folder)], expected["machine"])
        seen = watch(argv, folder, hidden)
        by_rank = notes.read(folder, "rank")
        ranks = [by_rank[rank] for rank in sorted(by_rank)]
        slurms = squeue.nodes_of_this_job() if expected["launcher"] == "slurm" else []
        allocated = [node.name for node in slurms]
        problems = judge(ranks, expected, allocated)
        said = srun_messages.end(seen.printed, expected["workers"]) if not ranks else None
        if said is not None and said.cause == "exited":  # before another rank could report, too
            number = "" if said.rank is None else f" {said.rank}"
            who = f"rank{number} on {said.host or 'a node'}"
            problems.insert(0, Problem(True, f"{who} {said.message}; it is the first that ended"))
        elif said is not None:  # no rank was started: what else is wrong comes of that
            problems = [Problem(True, f"the launcher started no rank: {said.message}")]
        if slurms:
            problems += judge_nodes(load_machine(expected["machine"]), slurms)
        if seen.code and not any(problem.error for problem in problems):
            problems.insert(
                0,
                Problem(
                    True, f"the launcher ended with exit code {seen.code}; what it said is above"
                ),
            )
    result = {
        "time": time.time(),
        "promised": expected,
        "problems": [asdict(problem) for problem in problems],
    }
    result["ranks"] = ranks
    failed = any(problem.error for problem in problems)
    print(*summary(ranks), *map(str, problems), sep="\n", flush=True)
    if failed:
        write_json(output.with_suffix(FAILED), result)
    else:
        write_json(output, result)
        # The next preflight takes the place of this one. Records that cite this one can still find
        # it.
        kept = output.parent / "kept"
        kept.mkdir(exist_ok=True)
        with aside(kept / f"{sha256(output)}.json") as copy:
            shutil.copyfile(output, copy)
        output.with_suffix(FAILED).unlink(missing_ok=True)
    shutil.rmtree(folder)
    return int(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--promised", required=True, help="what the study expects of its machine, as JSON"
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    die_with_parent()  # else one whose job was killed goes on beside that of the next call
    try:
        with turn("the preflight"):
            code = execute(json.loads(a.promised), a.output, a.command)
        sys.exit(code)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
