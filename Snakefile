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
#       infer.smk     infer     results/inference/<job>/inference.json    what trained models cost to ask
#       plan.smk      plan      hours, energy, price, disk; what is done, what is stale and why
#                     status    one screen while it runs: done, running, waiting, failed, expected end
#       analysis.smk  collect   results/<study>/tables/*.{parquet,csv}
#                     verdicts  results/<study>/tables/verdicts.csv    what sources claim, by these runs
#                     frameworks  what they do, their options and versions: results/<study>/tables/frameworks.csv
#                     figure    results/<study>/figures/<figure>.{csv,png,svg,pdf}, of its own runs only
#                     nodes     the slow host, from all records of a machine
#                     compare   a new software stage beside the old one: --config before=... after=...
#                     failures  what went wrong, at any time: snakemake --profile profiles/local failures
#       outlook.smk   predict   more workers than were measured: snakemake --profile profiles/local predict
#                     recommend   framework, loader, workers, batch for an accuracy: recommend --config target=0.759
#                     what_if   another bandwidth, node, batch, model, precision: what_if --config what_if='{bandwidth: 4}'
#                     application  the scaling section of an application for compute time
#       audit.smk     audit     what makes comparisons unfair: tables/audit.csv; exit code 1 on errors
#       page.smk      page      results/<study>/index.html    the page that people read
#                     partial   results/<study>/partial/    the same of the runs that are there, at any time
#       report.smk    report    results/<study>/report.html   which job made what


include: "workflow/Snakefile"


# Snakemake forgets the default target of a file that it includes.
workflow.default_target = "all"
