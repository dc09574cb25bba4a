# What trained models cost to ask: one job per model, way to serve and repeat, for studies with a key `inference`.
SERVING = training.Serving(START)
INFERRED = [layout.inference(job) for job in PLAN.inferences]
INFER_TABLE = [layout.table(STUDY.name, "inference") + ".parquet"] if PLAN.inferences else []


rule infer:
    input:
        manifest=SERVING.manifest,
        trained=SERVING.trained,
    output:
        layout.inference("{job}"),
    log:
        layout.inference_log("{job}"),
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
        records=INFERRED,
        code=[registry.source("analysis", name) for name in ("inference", "statistics", "tables")],
    output:
        multiext(layout.table(STUDY.name, "inference"), ".parquet", ".csv"),
    log:
        layout.study_log(STUDY.name, "infer-table"),
    params:
        specs=lambda wildcards: [job.spec.to_json() for job in PLAN.inferences.values()],
    message:
        "table of {STUDY.name}: inference"
    script:
        "../scripts/infer_table.py"
