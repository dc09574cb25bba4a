# All-reduces of growing messages over growing numbers of workers, measured alone: minutes on a cluster. Nothing else
# needs it: snakemake --profile profiles/local allreduce, with the other options as for the study; --force: once more.
rule allreduce:
    output:
        layout.allreduce(MACHINE.name, STUDY.name),
    log:
        layout.log(f"allreduce-{MACHINE.name}-{STUDY.name}"),
    envmodules:
        *MACHINE.modules,
    # Without a queue the job takes all cores; SLURM allocates through `resources`.
    threads: lambda wildcards: 1 if MACHINE.partitions else workflow.cores or 1
    resources:
        **allreduce.resources(PLAN, config["account"]),
    params:
        machine=MACHINE.name,
        device=MACHINE.device,
        workers=allreduce.trial(PLAN).workers,
    message:
        f"allreduce: what the network of {MACHINE.name} gives"
    shell:
        "python -m ddlbench.preflight.allreduce {output:q} --machine {params.machine} --device {params.device} "
        "--workers {params.workers} -- {resources.launch} 2>&1 | tee {log:q}"
