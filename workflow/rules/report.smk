# One HTML page with every figure, its caption, and how it was made.
rule report:
    input:
        shown=[*FIGURES, f"{TABLES}/data.csv"],
        words=[os.path.relpath(path) for path in sorted((HERE / "report").glob("*.rst"))],
    output:
        layout.report(PLAN.home),
    log:
        layout.study_log(PLAN.home, "report"),
    params:
        snakefile=os.path.relpath(workflow.main_snakefile),
        config=[f"study={STUDY.name}", f"machine={MACHINE.name}"],
    message:
        f"report of {STUDY.name}: {{output}}"
    shell:
        # This Snakemake holds the lock and knows its own jobs; the inner one only reads what they left.
        "snakemake --snakefile {params.snakefile:q} --nolock --executor local --cores 1 --report {output:q} "
        "--config {params.config:q} -- {input.shown:q} > {log:q} 2>&1 || "
        '{{ echo "$(grep . {log:q} | tail -n 1) (more in {log})" >&2; exit 1; }}'
