# Words that answer: they print, each time they are asked, and make nothing that others need. With options as for the
# study. What lies ahead, from records that are there; nothing is trained.
# More workers than were measured: snakemake predict
# Another machine, batch, model or precision: snakemake predict --config what_if='{bandwidth: 4, workers: 1024}'
rule predict:
    log:
        layout.study_log(PLAN.home, "predict"),
    params:
        config=lambda wildcards: config,
        records=OTHERS or [layout.run(run) for run in PLAN.runs],
    message:
        f"predict: from {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/outlook.py"


# What to train with to reach an accuracy: snakemake recommend --config target=0.759
use rule predict as recommend with:
    log:
        layout.study_log(PLAN.home, "recommend"),
    message:
        f"recommend: framework, loader, workers and batch from {STUDY.name} on {MACHINE.name}"


# The scaling section of an application for compute time: snakemake application
use rule predict as application with:
    log:
        layout.study_log(PLAN.home, "application"),
    message:
        f"application for compute time from {STUDY.name} on {MACHINE.name}"
