# What runs at more workers would do, from those that are done: snakemake predict, with the same options.
rule predict:
    input:
        runs=layout.table(STUDY.name, "runs") + ".parquet",
        priors="config/references/prediction-priors.json",
        code=registry.source("analysis/prediction", "regression"),
    output:
        table=layout.table(STUDY.name, "predictions") + ".csv",
    log:
        layout.study_log(STUDY.name, "predict"),
    params:
        planned=sorted({run.spec.workers for run in PLAN.runs.values()}),
        workers_per_node=MACHINE.workers_per_node,
        price_per_hour=MACHINE.price_per_gpu_hour,
    message:
        f"predict {STUDY.name}: more workers than were measured"
    script:
        "../scripts/predict.py"
