# The page that people read: the answer first, in one file. Snakemake's own report (report.smk) says which job made what.
PAGE_CODE = [
    os.path.relpath(path)
    for folder in ("show/page", "show/page/sections")
    for path in sorted(registry.PACKAGE.glob(f"{folder}/*"))
    if path.is_file()
]
SECTIONS = {file for name in registry.members("sections") for file in registry.constant("sections", name, "READS")}


rule page:
    input:
        figures=FIGURES,
        tables=[
            f"{TABLES}/{name}.parquet" for name in ("runs", "comparisons", "losses", "kernels", "failures", "refused")
        ],
        sections=[f"{TABLES}/{file}" for file in sorted(SECTIONS)],
        beside=[f"{table}.parquet" for table in BESIDE],  # what failed of them is not on the page: they are whole by then
        said=[f"{TABLES}/{name}.csv" for name in ("audit", "frameworks")],
        # Titles, prices, what the machine is called, what the preflight found.
        settings=snakefile.written(PLAN),
        preflight=START.preflight if PLAN.runs else [],
        nodes=[path for path in [layout.nodes(MACHINE.name)] if os.path.exists(path)],
        tables_of_sources=["config/references/tables.yaml", "config/references/claims.csv"],
        references=[figure.reference_file for figure in STUDY.figures if figure.reference_file],
        code=PAGE_CODE,
    output:
        layout.page(PLAN.home),
        layout.numbers(PLAN.home),
    log:
        layout.study_log(PLAN.home, "page"),
    params:
        config=lambda wildcards: config,
    message:
        f"page of {STUDY.name}: {{output}}"
    script:
        "../scripts/page.py"
