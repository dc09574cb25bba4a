# All training, whatever the framework: one job a run. What decides the result is in params and makes a run stale when
# it changes; how it is started is in resources and does not.
rule train:
    input:
        runs.signed(lambda wildcards: GATE(GUARD(PLAN.jobs[wildcards.run].manifest or []))),
    output:
        log=layout.run_log("{run}"),
        steps=layout.run_steps("{run}"),
    log:
        layout.train_log("{run}"),
    envmodules:
        *MACHINE.modules,
    # SLURM gives cores by the resources below, and Snakemake knows no number of them there.
    threads: runs.signed(lambda w: PLAN.jobs[w.run].threads(None if MACHINE.partitions else workflow.cores))
    resources:
        **{
            name: runs.signed(lambda w, attempt, name=name: PLAN.jobs[w.run].asks(attempt)[name])
            for name in launch.resource_names(MACHINE)
        },
        # No params: preflights, checkpoints and launchers may change without a training being made again.
        supervision=shlex.join(
            [f"--preflight={PREFLIGHT}"]
            + [f"--checkpoint-{k}={v}" for k, v in config["checkpoint"].items() if v is not None]
        ),
    params:
        spec=runs.signed(lambda wildcards: PLAN.jobs[wildcards.run].spec.to_json()),
    message:
        "train {wildcards.run}" + (": {resources.asks}" if MACHINE.partitions else "") + "\n$ {resources.launch}"
    shell:
        "python -m ddlbench.run --folder results/runs/{wildcards.run} --manifest {input:q} --spec {params.spec:q} "
        "{resources.supervision} -- {resources.launch} > {log} 2>&1"
