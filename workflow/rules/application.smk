# The scaling section of an application for compute time, from the records that are there: snakemake application, with
# the same options. It starts no training.
rule application:
    log:
        layout.study_log(STUDY.name, "application"),
    params:
        config=lambda wildcards: config,
        records=OTHERS or [layout.run(run) for run in PLAN.runs],
    message:
        f"application for compute time from {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/application.py"
