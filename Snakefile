# ddlbench: how far does your training scale, and at what price?
#
#   snakemake --profile profiles/local -n        what would be done, and why
#   ddlbench plan --profile profiles/local       ... and what it would take and cost
#   snakemake --profile profiles/local           do it: here ...
#   snakemake --profile profiles/juwels          ... or on a cluster
#
# The map:
#   config/config.yaml names a study (what to run: config/studies/) and a machine (where: config/machines/).
#   workflow/ddlbench/plan/runs.py makes runs of them; the rules make everything else:
#       data.smk      prepare   <data>/<data set>/<form>/manifest.json
#       preflight.smk preflight results/machines/<machine>/preflight-<study>.json    is the machine as promised?
#       train.smk     train     results/runs/<run id>/{run.mllog,steps.parquet}    shared by all studies
#       infer.smk     infer     results/inference/<job>/inference.json    what trained models cost to ask
#       analysis.smk  collect   <home>/tables/*.{parquet,csv}    <home> is results/<study>/<machine>
#                     verdict_table  <home>/tables/verdicts.csv    what sources claim, by these runs
#                     frameworks  what they do, their options and versions: <home>/tables/frameworks.csv
#                     figure    <home>/figures/<figure>.{csv,png,svg,pdf}, of its own runs only
#       outlook.smk   predict   more workers than were measured: snakemake --profile profiles/local predict
#       audit.smk     audit_table   what makes comparisons unfair: <home>/tables/audit.csv
#       page.smk      page      <home>/index.html    the page that people read
#       rounds.smk    rounds    <home>/rounds.json   of `repeats: {until: decided}`: is another round to be made?
#       report.smk    report    <home>/report.html   which job made what
#   Questions are commands, which wait for no job: ddlbench plan, status, failures, audit, nodes, compare, verify, partial.


include: "workflow/Snakefile"


# Snakemake forgets the default target of a file that it includes.
workflow.default_target = "all"
