# What trained models cost to ask: one job per model, way to serve and repeat, for studies with a key `inference`.
SERVING = job_rule.JobRule(START, "infer", checkpoints)
INFERRED = [job for job in PLAN.non_training.values() if job.kind == "inference"]


rule infer:
    input:
        manifest=SERVING.input,
        trained=SERVING.weights,
    output:
        "results/inference/{job}/inference.json",
    log:
        "results/inference/{job}/infer.log",
    envmodules:
        *MACHINE.modules,
    threads: SERVING.threads
    resources:
        **SERVING.resources,
    params:
        spec=SERVING.spec,
    message:
        "infer {wildcards.job}\n$ {resources.launch}"
    shell:
        "python -m ddlbench.run.infer --folder results/inference/{wildcards.job} --spec {params.spec:q} "
        "--manifest {input.manifest:q} --trained {input.trained:q} -- {resources.launch} > {log} 2>&1"


rule infer_table:
    input:
        records=[str(job.outputs()[0]) for job in INFERRED],
    output:
        multiext(layout.table(PLAN.home, "inference"), ".parquet", ".csv"),
    log:
        layout.study_log(PLAN.home, "infer-table"),
    params:
        specs=lambda wildcards: [job.spec.to_json() for job in INFERRED],
        sources=lambda wildcards: sources.of_script("infer_table"),
    message:
        "table of {STUDY.name}: inference"
    script:
        "../scripts/infer_table.py"
