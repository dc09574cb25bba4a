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
#                     status    one screen while it runs: done, running, waiting, failed, expected end
#       analysis.smk  collect   results/<study>/tables/*.{parquet,csv}
#                     verdicts  results/<study>/tables/verdicts.csv    what sources claim, by these runs: on request
#                     figure    results/<study>/figures/<figure>.{csv,png,svg,pdf}
#                     nodes     the slow host, from all records of a machine
#                     compare   a new software stage beside the old one: --config before=... after=...
#                     failures  what went wrong, at any time: snakemake --profile profiles/local failures
#       predict.smk   predict   more workers than were measured: snakemake --profile profiles/local predict
#       audit.smk     audit     what makes comparisons unfair: tables/audit.csv; exit code 1 on errors
#       page.smk      page      results/<study>/index.html    the page that people read
#       report.smk    report    results/<study>/report.html   which job made what
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow"))

from ddlbench import layout, registry, snakefile
from ddlbench.plan import launch, runs, stale
from ddlbench.preflight import promise

snakefile.check_configfile(Path("config/config.yaml"))


configfile: "config/config.yaml"


report: "workflow/report/study.rst"


SETTINGS = snakefile.read(config)
config, STUDY, MACHINE, PLAN = SETTINGS.config, SETTINGS.study, SETTINGS.machine, SETTINGS.plan
OTHERS = snakefile.others_records(STUDY)
TRAINING = snakefile.Training(workflow, checkpoints, SETTINGS)
TABLES = layout.tables(STUDY.name)
FIGURES = [f"{layout.figure(STUDY.name, figure.name)}.png" for figure in STUDY.figures]
shell.prefix(snakefile.shell_prefix(MACHINE, Path(workflow.basedir)))


include: "workflow/rules/data.smk"
include: "workflow/rules/preflight.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/page.smk"
include: "workflow/rules/report.smk"


# Seconds each: no queue for them.
localrules:
    all,
    audit,
    audit_table,
    failures,
    nodes,
    compare,
    figures,
    plan,
    status,
    tables,
    collect,
    verdicts,
    figure_data,
    figure,
    data_table,
    predict,
    page,
    report,


rule all:
    default_target: True
    input:
        [layout.run_log(run) for run in PLAN.runs],
        f"{TABLES}/runs.parquet",
        f"{TABLES}/audit.csv",
        FIGURES,
        layout.report(STUDY.name),
        TRAINING.new_preflights,
    message:
        "all of the study is there"


rule figures:
    input:
        FIGURES,


rule tables:
    input:
        f"{TABLES}/runs.parquet",
        f"{TABLES}/data.csv",
