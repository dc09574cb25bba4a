# Data sets on disk: one job a form, finished when its manifest is there. `ddlbench verify` reads them all again.
DATA = MACHINE.data.replace("{", "{{").replace("}", "}}")
MANIFESTS = sorted({job.manifest for job in PLAN.runs.values() if job.manifest})


rule prepare:
    output:
        f"{DATA}/{{dataset}}/{{form}}/manifest.json",
    log:
        layout.log("prepare-{dataset}-{form}"),
    # Before all training: else runs of data that are still to be prepared would all come last.
    priority: len(PLAN.runs) + 2
    envmodules:
        *MACHINE.modules,
    threads: 8
    resources:
        **node_resources(MACHINE, config["account"]),
        # No param: under another policy a finished form holds the same, and nothing is trained again.
        on_error=config["data"]["on_error"],
    params:
        source=lambda wildcards: config["data"]["sources"].get(wildcards.dataset, ""),
    message:
        "prepare {wildcards.dataset} as {wildcards.form}"
    shell:
        "python -m ddlbench.prepare {wildcards.dataset} {wildcards.form} {output:q} --source={params.source:q} "
        "--on-error {resources.on_error:q} --workers {threads} 2>&1 | tee {log:q}"


rule data_table:
    input:
        lambda wildcards: MANIFESTS,
    output:
        report(
            f"{TABLES}/data.csv",
            caption="../report/data.rst",
            category=STUDY.name,
            labels={"figure": "data"},
        ),
    log:
        layout.study_log(PLAN.home, "data"),
    params:
        sources=lambda wildcards: sources.digest([sources.PACKAGE / "data/manifest.py"]),
    message:
        f"data {STUDY.name}: what its forms hold"
    shell:
        "python -m ddlbench.data.manifest {input:q} 2>&1 > {output:q} | tee {log:q} >&2"
