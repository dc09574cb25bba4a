# Rates on another machine or with another batch, model or precision, computed from the records that are there:
# snakemake what_if --config what_if='{bandwidth: 4, workers: 1024}', with the other options as for the study. It starts
# no training.
rule what_if:
    log:
        layout.study_log(STUDY.name, "what_if"),
    params:
        config=lambda wildcards: config,
        records=OTHERS or [layout.run(run) for run in PLAN.runs],
    message:
        f"what if: computed from {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/what_if.py"
