# The page that people read: the answer first, in one file. Snakemake's own report (report.smk) says which job made what.
PAGE_ROOMS = (*sources.ROOMS, "answers", "plan", "settings")  # it shows the plan and its bill
PAGE_FILES = [
    path
    for path in sorted(registry.PACKAGE.glob("show/page/*"))
    if path.suffix in (".css", ".jinja", ".js")
]
PAGE_FILES += [
    *registry.paths("questions"),
    *sorted(registry.PACKAGE.glob("answers/templates/*.jinja")),
]
PAGE_FILES += registry.paths("sheets")  # it says what columns mean
SOURCES_OF_PAGE = ["config/references/tables.yaml", "config/references/claims.csv"]
SOURCES_OF_PAGE += [figure.reference_file for figure in STUDY.figures if figure.reference_file]
SECTIONS = {
    file
    for name in registry.members("sections")
    for file in registry.constant("sections", name, "READS")
}


rule page:
    input:
        figures=FIGURES,
        tables=[
            f"{TABLES}/{name}.parquet"
            for name in ("runs", "comparisons", "losses", "kernels", "failures", "refused")
        ],
        sections=[f"{TABLES}/{file}" for file in sorted(SECTIONS)],
        of_jobs=[f"{table}.parquet" for table in OF_JOBS],  # what failed of them is not on the page: they are whole by then
        said=[f"{TABLES}/{name}.csv" for name in ("audit", "frameworks")],
        preflight=START.preflight if PLAN.runs else [],
        nodes=[path for path in [layout.nodes(MACHINE.name)] if os.path.exists(path)],
        published=SOURCES_OF_PAGE,
    output:
        layout.page(PLAN.home),
        layout.numbers(PLAN.home),
    log:
        layout.study_log(PLAN.home, "page"),
    params:
        config=lambda wildcards: config,
        # Titles, prices, what the machine is called.
        settings=lambda wildcards: snakefile.said(PLAN),
        sources=lambda wildcards: sources.of_script(
            "page", *PAGE_FILES, *SOURCES_OF_PAGE, *registry.paths("sections"), packages=PAGE_ROOMS
        ),
    message:
        f"page of {STUDY.name}: {{output}}"
    script:
        "../scripts/page.py"
