# All training, whatever the framework: one job per run. `ddlbench/commands/job_rule.py` says what TRAINING answers, and
# what must be over before a job starts.
rule train:
    input:
        TRAINING.input,
    output:
        log=layout.run_log("{run}"),
        steps=layout.run_steps("{run}"),
    log:
        layout.train_log("{run}"),
    # The order of the runs (`ddlbench/plan/runs.py`). Snakemake does not compare it with finished jobs.
    priority: TRAINING.priority
    envmodules:
        *MACHINE.modules,
    threads: TRAINING.threads
    # How the run is started: another partition, launcher or checkpoint interval makes no finished run stale.
    resources:
        **TRAINING.resources,
        supervision=START.supervision,
    # What is trained: a change makes the run stale. So does another text of the command below.
    params:
        spec=TRAINING.spec,
    message:
        f"train {{wildcards.run}}{TRAINING.asks}\n$ {{resources.launch}}"
    shell:
        stale.COMMAND


# max_gpu_hours is kept when jobs start, which no dry run does.
onstart:
    START.keep_limit()
    START.forget_parts()


if workflow.output_settings.dryrun:
    START.warn()
