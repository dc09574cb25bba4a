#!/usr/bin/env python
"""What a SLURM job of ddlbench costs over the same `srun` line in a job script written by hand [s].

`python bench/slurm.py` prints a table and exits with 1 if what is ours is above the limit. It needs
what tests/slurm needs, starts that cluster of virtual nodes, and stops it again. Each round submits
four jobs, one after the other: the `srun` line alone; the same under `ddlbench.run`; the run
through `profiles/slurm`, in which Snakemake starts once more inside the job; and the `srun` line as
the only rule of a Snakefile, through the same plugin without ddlbench's patches: what Snakemake
alone takes. The ranks train nothing (tests/slurm/stand_in.py). Times are those that SLURM accounts,
whole seconds each: only their means say something.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ddlbench.plan import launch  # noqa: E402
from ddlbench.plan.runs import make_plan  # noqa: E402
from ddlbench.settings.machine import load_machine  # noqa: E402
from ddlbench.settings.study import load_study  # noqa: E402
from told import tell  # noqa: E402

from tests.conftest import copy_project  # noqa: E402
from tests.slurm.conftest import ACCOUNT, HASTE, MACHINE, STUDY, own_cluster  # noqa: E402

STAND_IN = ("python", str(ROOT / "tests/slurm/stand_in.py"))
ALONE, SUPERVISED, OURS, BARE = KINDS = (
    "srun alone",
    "under ddlbench.run",
    "through Snakemake",
    "a bare Snakefile",
)
LIMITS_S = {SUPERVISED: 1.0, OURS: 3.0}  # more than srun alone, a job
SNAKEFILE = """\
rule train:
    output:
        "runs/{number}/a/trained",
    resources:
        slurm_account="%(account)s",
        mpi="",  # the command starts its rank itself
        tasks=1,
        cpus_per_task=1,
        runtime=10,
    shell:
        "%(line)s runs/{wildcards.number}/a && touch {output}"
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=50, help="jobs of each kind")
    count = parser.parse_args().jobs
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = Path(tempfile.mkdtemp(prefix="ddlbench-slurm-", dir="/var/tmp"))  # that all nodes see
    with own_cluster() as cluster:
        os.environ |= cluster.environment
        try:
            cluster("up")
            seconds = measure(folder, count)
        finally:
            shutil.rmtree(folder)
            cluster("down")
    middle = {kind: mean(seconds[kind]) for kind in KINDS}
    print(f"| job | mean of {count}, s | more than srun alone, s |\n|---|---|---|")
    for kind, value in middle.items():
        print(f"| {kind} | {value:.2f} | {value - middle[ALONE]:+.2f} |")
    for kind, limit in LIMITS_S.items():
        more = [mine - alone for mine, alone in zip(seconds[kind], seconds[ALONE], strict=True)]
        tell(f"a job {kind}: more seconds", ALONE, more, limit, at_most=True, middle=mean)
    beside = [mine - bare for mine, bare in zip(seconds[OURS], seconds[BARE], strict=True)]
    tell(f"a job {OURS}: more seconds", BARE, beside, None, middle=mean)
    return int(any(middle[kind] - middle[ALONE] > limit for kind, limit in LIMITS_S.items()))


def measure(folder: Path, count: int) -> dict[str, list[int]]:
    """Seconds that SLURM accounts, of `count` jobs of each kind."""
    project = copy_project(folder / "project")
    source = project / "workflow/ddlbench/plan/launch.py"
    source.write_text(re.sub(r"(?m)^PROGRAM = .*", f"PROGRAM = {STAND_IN}", source.read_text()))
    (project / "config/machines/virtual.yaml").write_text(yaml.safe_dump(MACHINE))
    block = {"workers": [1], "global_batch": [512], "repeats": count, "loaders": ["synthetic"]}
    (project / "config/studies/short.yaml").write_text(
        yaml.safe_dump(STUDY | {"runs": {"digits": block}})
    )
    plan = make_plan(
        load_study("short", project / "config/studies"),
        load_machine("virtual", project / "config/machines"),
        ACCOUNT,
    )
    snakemake("preflight", project)  # once a machine, and no part of a job
    simple = folder / "bare"
    simple.mkdir()
    seconds: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for number, (run, job) in enumerate(plan.runs.items()):
        line = shlex.join(launch.command(job.spec, plan.machine, STAND_IN))
        by_hand, supervised = folder / f"hand-{number}/a", folder / f"run-{number}"
        by_rule = simple / f"runs/{number}/a"
        told = {"spec": json.loads(job.spec.to_json()), "facts": {}}
        for path in (by_hand, by_rule):
            path.mkdir(parents=True)
            (path / "assignment.json").write_text(json.dumps(told))
        for path in (by_hand.parent, by_rule.parent, supervised, project / "results/runs" / run):
            path.mkdir(parents=True, exist_ok=True)
            (path / "tried").touch()  # or one in ten would fail
        rule = SNAKEFILE % {"account": ACCOUNT, "line": line}
        (simple / "Snakefile").write_text(rule)
        seconds[ALONE].append(elapsed(sbatch(f"{line} {by_hand}", project)))
        supervisor = (
            f"python -m ddlbench.run --folder {supervised} --spec {shlex.quote(job.spec.to_json())}"
            f" -- {line}"
        )
        seconds[SUPERVISED].append(elapsed(sbatch(supervisor, project)))
        seconds[OURS].append(elapsed(snakemake(f"results/runs/{run}/run.mllog", project)))
        seconds[BARE].append(elapsed(bare_snakemake(f"runs/{number}/a/trained", simple)))
    return seconds


def sbatch(line: str, project: Path) -> str:
    """Submit a job script of one line, wait for it, and return the job's id."""
    script = f"#!/bin/bash\nexport PYTHONPATH={project}/workflow\n{line}\n"
    asks = [
        "--parsable",
        "--wait",
        f"--account={ACCOUNT}",
        "--ntasks=1",
        "--cpus-per-task=1",
        "--output=by-hand-%j.log",
    ]
    return subprocess.run(
        ["sbatch", *asks], input=script, cwd=project, capture_output=True, text=True, check=True
    ).stdout.strip()


def snakemake(target: str, project: Path) -> str:
    """Make what one job makes through the profile, and return the job's id."""
    config = ["--config", "study=short", "machine=virtual", f"account={ACCOUNT}"]
    return made(
        ["--profile", "profiles/slurm", "--printshellcmds", *HASTE, target, *config], project
    )


def bare_snakemake(target: str, folder: Path) -> str:
    """Make the same with a Snakefile that has one rule, and return the job's id."""
    return made(["--executor", "slurm", "--jobs", "1", *HASTE, target], folder)


def made(arguments: list[str], folder: Path) -> str:
    """Call Snakemake in a folder, and return the id of the only job that it submits."""
    command = [sys.executable, "-m", "snakemake", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = re.findall(r"SLURM jobid (\d+)", done.stdout + done.stderr)
    return job


def elapsed(job: str) -> int:
    """Seconds that the job had its nodes."""
    asked = ["sacct", "-X", "-n", "-P", "-j", job, "--format=State,ElapsedRaw"]
    while True:
        state, _, raw = (
            subprocess.run(asked, capture_output=True, text=True, check=True)
            .stdout.strip()
            .partition("|")
        )
        if state == "COMPLETED":
            return int(raw)
        assert state in ("", "PENDING", "RUNNING", "COMPLETING"), (job, state)


if __name__ == "__main__":
    sys.exit(main())
