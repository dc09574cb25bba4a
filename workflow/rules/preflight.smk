# A minute on the machine before any training: is it what its file says? Made once, and again when the study or the
# machine file promise something else, or when asked for: snakemake --profile profiles/local preflight --force
checkpoint preflight:
    input:
        MANIFESTS,
    output:
        START.preflight,
    log:
        layout.log(f"preflight-{MACHINE.name}-{STUDY.name}"),
    envmodules:
        *MACHINE.modules,
    threads: promise.preflight_ranks(PLAN).workers
    resources:
        **promise.resources(PLAN, config["account"]),
    params:
        # A function: in plain text Snakemake would take what is in braces for wildcards.
        promised=lambda wildcards: json.dumps(promise.expected_settings(PLAN)),
    message:
        f"preflight: is {MACHINE.name} what config/machines/{MACHINE.name}.yaml says?"
    # The log is a file of its own, and no pipe: the preflight reads in it what srun said.
    shell:
        "code=0; python -m ddlbench.preflight --output {output:q} --promised {params.promised:q} "
        "-- {resources.launch} > {log:q} 2>&1 || code=$?; cat {log:q}; exit $code"
