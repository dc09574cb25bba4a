# More workers than were measured: snakemake predict, with options as for the study. It prints each time it is asked, from
# records that are there, and makes nothing that others need; nothing is trained.
rule predict:
    log:
        layout.study_log(PLAN.home, "predict"),
    params:
        config=lambda wildcards: config,
        records=lambda wildcards: OTHERS or [layout.run(run) for run in PLAN.runs],
    message:
        f"predict: from {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/outlook.py"
