# What a study will take and cost, before anything is started: snakemake plan, with the same options. Seconds, and
# nothing but Python: for login nodes.
rule plan:
    log:
        f"{TABLES}/plan.txt",
    params:
        config=lambda wildcards: config,
        tables=TABLES,
        memories=lambda wildcards: stale.memories(workflow.persistence, PLAN.jobs),
        command=lambda wildcards: rules.train.rule.shellcmd,
    message:
        "plan of {STUDY.name} on {MACHINE.name}"
    script:
        "../scripts/plan.py"


onstart:
    # Exactly the runs that this call would make. A dry run does not come here.
    made = {job.wildcards.run for job in workflow.dag.needrun_jobs() if job.rule.name == "train"}
    try:
        bill.keep_limit(PLAN, IMAGES, made, config["max_gpu_hours"])
    except settings.ConfigError as error:
        raise WorkflowError(str(error)) from None


if workflow.output_settings.dryrun:
    # What is stale is not known yet: all that have no record.
    missing = {run for run in PLAN.jobs if not os.path.exists(layout.run_log(run))}
    try:
        bill.keep_limit(PLAN, IMAGES, missing, config["max_gpu_hours"])
    except settings.ConfigError as error:
        print(f"warning: {error}", file=sys.stderr)
