# What to train with to reach an accuracy, from the records that are there: snakemake recommend --config target=0.759,
# with the other options as for the study. It starts no training.
rule recommend:
    log:
        layout.study_log(STUDY.name, "recommend"),
    params:
        config=lambda wildcards: config,
        records=OTHERS or [layout.run(run) for run in PLAN.runs],
    message:
        f"recommend: framework, loader, workers and batch from {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/recommend.py"
