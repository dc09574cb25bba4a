# Data sets on disk: one job a form, finished when its manifest is there.
DATA = MACHINE.data.replace("{", "{{").replace("}", "}}")


rule prepare:
    output:
        f"{DATA}/{{dataset}}/{{form}}/manifest.json",
    log:
        "results/logs/prepare-{dataset}-{form}.log",
    conda:
        "../../envs/train.yaml"
    envmodules:
        *MACHINE.modules,
    message:
        "prepare {wildcards.dataset} as {wildcards.form}"
    shell:
        "python -m ddlbench.prepare {wildcards.dataset} {wildcards.form} {output:q} > {log:q} 2>&1"
