# Words that answer: they print, each time they are asked, and make nothing that others need. With options as for the
# study.
# What these runs say to claims of sources: snakemake verdicts
rule verdicts:
    input:
        table=rules.verdict_table.output[0],
    log:
        layout.study_log(PLAN.home, "verdicts-printed"),
    message:
        f"verdicts of {STUDY.name} on what sources claim"
    script:
        "../scripts/verdicts.py"


# What lies ahead, from records that are there; nothing is trained.
# More workers than were measured: snakemake predict
rule predict:
    input:
        runs=layout.table(PLAN.home, "runs") + ".parquet",
        priors="config/references/prediction-priors.json",
        code=registry.source("analysis/prediction", "last_rate"),
    log:
        layout.study_log(PLAN.home, "predict"),
    params:
        table=layout.table(PLAN.home, "predictions") + ".csv",
        planned=sorted({run.spec.workers for run in PLAN.runs.values()}),
        workers_per_node=MACHINE.workers_per_node,
        price_per_hour=MACHINE.price_per_gpu_hour,
    message:
        f"predict {STUDY.name}: more workers than were measured"
    script:
        "../scripts/predict.py"


# What to train with to reach an accuracy: snakemake recommend --config target=0.759
rule recommend:
    log:
        layout.study_log(PLAN.home, "recommend"),
    params:
        config=lambda wildcards: config,
        records=OTHERS or [layout.run(run) for run in PLAN.runs],
    message:
        f"recommend: framework, loader, workers and batch from {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/outlook.py"


# Another machine, batch, model or precision: snakemake what_if --config what_if='{bandwidth: 4, workers: 1024}'
use rule recommend as what_if with:
    log:
        layout.study_log(PLAN.home, "what_if"),
    message:
        f"what if: computed from {STUDY.name} on {MACHINE.name}"


# The scaling section of an application for compute time: snakemake application
use rule recommend as application with:
    log:
        layout.study_log(PLAN.home, "application"),
    message:
        f"application for compute time from {STUDY.name} on {MACHINE.name}"
