# ddlbench: how far does your training scale, and at what price?
#
#   snakemake --profile profiles/local -n        what would be done, and why
#   snakemake --profile profiles/local plan      ... and what it would take and cost
#   snakemake --profile profiles/local           do it: here ...
#   snakemake --profile profiles/juwels          ... or on a cluster
#
# The map:
#   config/config.yaml names a study (what to run: config/studies/) and a machine (where: config/machines/).
#   workflow/ddlbench/plan/runs.py makes runs of them; the rules make everything else:
#       data.smk      prepare   <data>/<data set>/<form>/manifest.json
#                     verify    reads what was prepared again: snakemake --profile profiles/local verify
#       preflight.smk preflight results/machines/<machine>/preflight-<study>.json    is the machine as promised?
#       train.smk     train     results/runs/<run id>/{run.mllog,steps.parquet}    shared by all studies
#       plan.smk      plan      hours, energy, price, disk; what is done, what is stale and why
#       analysis.smk  collect   results/<study>/tables/*.{parquet,csv}
#                     figure    results/<study>/figures/<figure>.{png,svg,pdf}
#                     failures  what went wrong, at any time: snakemake --profile profiles/local failures
#       report.smk    report    results/<study>/report.html
import gc
import json
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow"))

from snakemake.exceptions import WorkflowError

from ddlbench import layout, registry
from ddlbench.plan import bill, launch, runs, stale
from ddlbench.preflight import promise
from ddlbench.run import survivors
from ddlbench.settings import config as settings, environment_modules
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import check_sources, load_study

# A plan of thousands of jobs is millions of objects that all stay; do not look for garbage among them all the time.
gc.freeze()
gc.set_threshold(200_000, 50, 1000)


configfile: "config/config.yaml"


report: "workflow/report/study.rst"


try:
    config = settings.check(config, "config", "config/config.yaml")
    check_sources(config["data"]["sources"])
    STUDY, MACHINE = load_study(config["study"]), load_machine(config["machine"])
    IMAGES = bill.images(STUDY, MACHINE, config["data"]["sources"])
    PLAN = runs.make_plan(STUDY, MACHINE, config["account"], IMAGES)
    # To look needs none of what runs need; Snakemake does not say its targets here.
    if {"plan", "failures"}.isdisjoint(sys.argv):
        runs.check_installed(PLAN, layout.RESULTS)
except settings.ConfigError as error:
    raise WorkflowError(str(error)) from None

# Nothing is planned while jobs that a killed Snakemake left are still making it.
GUARD = survivors.Guard(workflow, runs.outputs(PLAN), slurm=bool(MACHINE.partitions))
# Every rule runs the package that lies beside this file, with the Python that runs Snakemake (environment modules,
# where used, put theirs before it).
shell.prefix(
    f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
    f"PYTHONPATH={shlex.quote(str(Path(workflow.basedir) / 'workflow'))}${{{{PYTHONPATH:+:$PYTHONPATH}}}} "
    f"{environment_modules.export(MACHINE.name, MACHINE.modules)}; "
)
FIGURES = [f"{layout.figure(STUDY.name, figure.name)}.png" for figure in STUDY.figures]
TABLES = layout.tables(STUDY.name)


include: "workflow/rules/data.smk"
include: "workflow/rules/preflight.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/report.smk"


# Seconds each: no queue for them.
localrules:
    all,
    failures,
    figures,
    plan,
    tables,
    collect,
    figure,
    data_table,
    report,


rule all:
    default_target: True
    input:
        [layout.run_log(run) for run in PLAN.jobs],
        f"{TABLES}/runs.parquet",
        FIGURES,
        layout.report(STUDY.name),
        [] if GATE.is_open else PREFLIGHT,
    message:
        "all of the study is there"


rule figures:
    input:
        FIGURES,


rule tables:
    input:
        f"{TABLES}/runs.parquet",
        f"{TABLES}/data.csv",
