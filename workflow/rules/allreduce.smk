# All-reduces of growing messages over growing numbers of nodes, measured alone: minutes on a cluster. Nothing else needs
# it: snakemake --profile profiles/local allreduce, with the other options as for the study; --force measures again.
rule allreduce:
    output:
        layout.allreduce(MACHINE.name),
    log:
        layout.log(f"allreduce-{MACHINE.name}"),
    envmodules:
        *MACHINE.modules,
    threads: allreduce.trial(PLAN).workers
    resources:
        **launch.resources(allreduce.trial(PLAN), MACHINE, allreduce.MINUTES, config["account"], allreduce.PROGRAM),
    params:
        machine=MACHINE.name,
        device=MACHINE.device,
        workers=allreduce.trial(PLAN).workers,
    message:
        f"allreduce: what the network of {MACHINE.name} gives"
    shell:
        "python -m ddlbench.preflight.allreduce {output:q} --machine {params.machine} --device {params.device} "
        "--workers {params.workers} -- {resources.launch} 2>&1 | tee {log:q}"
