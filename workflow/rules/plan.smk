# What a study will take and cost, before anything is started: snakemake plan, with the same options. It takes seconds
# and needs nothing but Python, so that it works on login nodes.
rule plan:
    log:
        f"{TABLES}/plan.txt",
    params:
        config=lambda wildcards: config,
        tables=TABLES,
        memories=lambda wildcards: stale.memories(workflow.persistence, PLAN.runs),
        command=lambda wildcards: rules.train.rule.shellcmd,
    message:
        f"plan of {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/plan.py"


# What is done, what runs and when it will end, from files and squeue: at any time, beside a Snakemake that is at work.
rule status:
    log:
        layout.study_log(STUDY.name, "status"),
    params:
        config=lambda wildcards: config,
    message:
        f"status of {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/status.py"


# max_gpu_hours is kept when jobs start, which no dry run does.
onstart:
    TRAINING.keep_limit()


if workflow.output_settings.dryrun:
    TRAINING.warn()
