"""What a study expects of its machine, and how Snakemake asks for the preflight. The Snakefile uses
this.

`__main__.py` runs in the job and compares the machine with it.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core import kinds, layout, registry
from ddlbench.plan import launch
from ddlbench.plan.values import Job, Plan
from ddlbench.run.facts import PACKAGES

PROGRAM = ("python", "-m", "ddlbench.preflight.scout")
MINUTES = 10  # what the queue is asked for
FAILED = ".failed.json"  # beside a preflight: what it leaves if training must not start


@dataclass(frozen=True)
class PreflightRanks:
    """The ranks of a preflight, for `launch`."""

    workers: int
    workers_per_node: int
    adapter: str = "ddp"
    timed: bool = False
    profiled: bool = False
    bandwidth_mbit: int | None = None

    @property
    def nodes(self) -> int:
        return -(-self.workers // self.workers_per_node)


def preflight_ranks(plan: Plan) -> PreflightRanks:
    """Return the ranks of the preflight's test job: on two nodes, or one if the study uses no more,
    with as many workers on each as the study has. On a machine without a queue: two workers, or one
    if it has no more.
    """
    if plan.machine.launcher == "local":
        workers = min(2, plan.machine.workers)
        return PreflightRanks(workers, workers)
    specs = [job.spec for job in plan.runs.values()]
    if not specs:  # a study of others' records: nothing will run
        return PreflightRanks(1, 1)
    per_node = max(spec.workers_per_node for spec in specs)
    return PreflightRanks(min(2, max(spec.nodes for spec in specs)) * per_node, per_node)


def expected_settings(plan: Plan) -> dict[str, Any]:
    """Return the settings that the study expects of its machine, as plain values.

    If one changes, a new preflight is made. The values are written to files that everybody may
    read: those of variables that might be secrets are hidden.
    """
    machine, ranks = plan.machine, preflight_ranks(plan)
    specs = [job.spec for job in plan.runs.values()]
    trained = [job for job in plan.runs.values() if kinds.uses_built_in_loop(job.spec)]
    uses = {(job.spec.adapter, job.spec.options): job.spec.all_options() for job in trained}
    rooms = {
        "frameworks": {spec.adapter for spec in specs},
        "loaders": {spec.loader for spec in specs},
    }
    members = [
        (room, name, registry.member(room, name)) for room in rooms for name in sorted(rooms[room])
    ]
    # As text: a run that reads nothing has no manifest.
    models = sorted(
        {_model(job) for job in trained}, key=lambda model: (*model[:4], *map(str, model[4:]))
    )
    return {
        "machine": machine.name,
        "launcher": machine.launcher,
        "nodes": ranks.nodes,
        "workers": ranks.workers,
        "workers_per_node": ranks.workers_per_node,
        "cores_per_worker": machine.cores_per_worker,
        "device": machine.device,
        "gpu_name": machine.gpu_name,
        "modules": list(machine.modules),
        **({"container": list(machine.container)} if machine.container else {}),
        "environment": dict(launch.hide(machine).environment),
        "host_suffix": machine.host_suffix,
        "start_timeout_s": machine.start_timeout_s,
        # Only where it is requested, so that earlier preflights stay valid.
        **(
            {"node_check": machine.node_check, "node_check_timeout_s": machine.node_check_timeout_s}
            if machine.node_check
            else {}
        ),
        "data": machine.data,
        "manifests": sorted({job.manifest for job in plan.runs.values() if job.manifest}),
        "models": [list(model) for model in models],
        "frameworks": [[name, options] for (name, _), options in sorted(uses.items(), key=str)],
        "packages": {
            m.PACKAGE: f"{room[:-1]} {name} needs it: {m.INSTALL}"
            for room, name, m in members
            if m.PACKAGE is not None
        },
        "versions": sorted({*PACKAGES, *(m.DISTRIBUTION for _, _, m in members if m.DISTRIBUTION)}),
    }


def _model(job: Job[Any]) -> tuple[Any, ...]:
    """Return a model and its picture size; for a user's model also its source, and what gives the
    number of classes.
    """
    spec = job.spec
    source = (spec.model_sha256, spec.dataset, job.manifest) if spec.model_sha256 else ()
    return spec.model, spec.recipe.image_size, *source


def path(plan: Plan) -> str:
    """Return the path of the preflight of this study on its machine."""
    return layout.preflight(plan.machine.name, plan.study.name)


def is_current(plan: Plan) -> bool:
    """Tell whether the last preflight was made for the settings that the study expects now."""
    try:
        return bool(
            json.loads(Path(path(plan)).read_text(encoding="utf-8"))["promised"]
            == expected_settings(plan)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def resources(plan: Plan, account: str | None) -> dict[str, str | int | None]:
    """Return the resources that Snakemake requests for the preflight's test job, as
    `launch.resources` does for a run.
    """
    machine, ranks = plan.machine, preflight_ranks(plan)
    minutes = MINUTES
    if machine.node_check:
        minutes += math.ceil(machine.node_check_timeout_s / 60)
    return launch.resources(
        ranks, machine, machine.limit_minutes(ranks.nodes, minutes), account, PROGRAM
    )


def errors(preflight: Path) -> list[str]:
    """Return the errors of the last preflight if it failed, one line each."""
    try:
        problems = json.loads(preflight.with_suffix(FAILED).read_text(encoding="utf-8"))["problems"]
    except FileNotFoundError:
        return []
    return [f"preflight: {problem['text']}" for problem in problems if problem["error"]]
