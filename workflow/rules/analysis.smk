# Records to tables and to figures. A figure is one job, and needs the records of its own runs and no others; its own
# code is an input: change one, and only that one is drawn again.
PLOTS = {figure.name: figure for figure in STUDY.figures}
FIGURES_SHARE = [registry.source("figures", path.stem) for path in sorted(registry.PACKAGE.glob("show/figures/_*.py"))]
COLLECTED = (
    "runs",
    "epochs",
    "step_times",
    "losses",
    "comparisons",
    "kernels",
    "not_measured",
    "failures",
    "refused",
    *SHEETS,
)
PARTS = runs.parts(PLAN)


wildcard_constraints:
    figure="|".join(re.escape(figure) for figure in PLOTS) or "none",
    part="|".join(PARTS) or "none",
    dataset="|".join(map(re.escape, datasets())),
    form="|".join(registry.members("forms")),


SETTINGS_OF, SCALING_OF = runs.digests(PLAN), runs.scaling(PLAN)
READING = {
    "peaks": dict(MACHINE.peak_tflops_per_worker),
    "terms": configuration.terms(MACHINE, config["checkpoint"]["minutes"]),
}
READERS = [
    *[registry.source(room, name) for room in ("analysis", "sheets") for name in registry.members(room)],
    *[os.path.relpath(path) for path in sorted(registry.PACKAGE.glob("records/*.py"))],
    registry.source("train", "measure"),
    "config/references/operations.csv",
]


# Runs that the same figures show, by the digests of their records: so thousands of runs are inputs of one job each, and
# not of every figure.
rule records:
    input:
        # Both files of each record: a change of either is looked at.
        lambda wildcards: [
            file(run) for run in PARTS[wildcards.part].runs for file in (layout.run_log, layout.run_steps)
        ],
    output:
        layout.records(PLAN.home, "{part}"),
    log:
        layout.study_log(PLAN.home, "records-{part}"),
    params:
        runs=lambda wildcards: PARTS[wildcards.part].runs,
    message:
        "records of runs that the same figures show: {output}"
    script:
        "../scripts/records.py"


rule collect:
    input:
        [layout.records(PLAN.home, part) for part in PARTS],
        # A function: in plain text Snakemake would take what is in braces for wildcards.
        others=lambda wildcards: OTHERS,
        code=READERS,
    output:
        [f"{TABLES}/{name}.{suffix}" for name in COLLECTED for suffix in ("parquet", "csv")],
        f"{TABLES}/learning_rates.parquet",
    log:
        layout.study_log(PLAN.home, "collect"),
    params:
        **READING,
        runs=list(PLAN.runs),
        kind=STUDY.records.kind if STUDY.records else "ours",
        beside=[str(job.folder()) for job in PLAN.beside.values()],
        settings=lambda wildcards: SETTINGS_OF,
        order=list(PLAN.order),
        scaling=lambda wildcards: SCALING_OF,
        tariff=astuple(tariff(MACHINE)),
    message:
        f"collect {STUDY.name}: tables of all runs"
    script:
        "../scripts/collect.py"


# What the claims of sources come to by these runs; `ddlbench verdicts` prints it.
rule verdict_table:
    input:
        claims="config/references/claims.csv",
        runs=layout.table(PLAN.home, "runs") + ".parquet",
        kernels=layout.table(PLAN.home, "kernels") + ".parquet",
        code=[registry.source("analysis", name) for name in ("claims", "comparisons", "scaling", "statistics")],
    output:
        layout.table(PLAN.home, "verdicts") + ".csv",
    log:
        layout.study_log(PLAN.home, "verdict-table"),
    message:
        f"table of {STUDY.name}: verdicts on what sources claim"
    script:
        "../scripts/verdict_table.py"


# What the frameworks of the house are and do: no run is asked. Another version that is installed makes it again.
rule frameworks:
    input:
        code=registry.source("analysis", "frameworks"),
    output:
        layout.table(PLAN.home, "frameworks") + ".csv",
    log:
        layout.study_log(PLAN.home, "frameworks"),
    params:
        rows=lambda wildcards: frameworks.rows(),
    message:
        "frameworks: what they share out, how they communicate, options and versions: {output}"
    script:
        "../scripts/frameworks.py"


# Records that cannot be true do not stop the others' tables; but nobody should miss them.
onsuccess:
    from ddlbench.analysis import refusals

    said = [*refusals.lines(refusals.read(Path(TABLES))), *snakefile.audited(Path(TABLES))]
    said += terminal.page(PLAN, snakefile.STARTED)
    print(*said, sep="\n", end="\n" * bool(said), file=sys.stderr)


onerror:
    from ddlbench.analysis import failures, refusals

    print(*refusals.lines(refusals.read(Path(TABLES))), sep="\n", file=sys.stderr)
    failed = failures.failures(PLAN.folders())
    print("", *promise.errors(Path(START.preflight)), sep="\n", file=sys.stderr)
    print(*failures.lines(failed, most=5), sep="\n", file=sys.stderr)
    if failed:
        print(f"{failures.counted(failed)}; all of them: ddlbench failures, with the same options", file=sys.stderr)
        print(
            "figures and page of the runs that are there: ddlbench partial, with the same options", file=sys.stderr
        )


# What a figure is drawn from, in a file of its own that people can take and plot themselves, and which of its runs it
# shows. Records of others, and jobs that do not train, are read from the study's tables.
rule figure_data:
    input:
        records=lambda wildcards: [
            layout.records(PLAN.home, part) for part in PARTS if wildcards.figure in PARTS[part].figures
        ],
        tables=lambda wildcards: [
            layout.table(PLAN.home, table) + ".parquet"
            for table in registry.constant("figures", PLOTS[wildcards.figure].plot, "TABLES")
            if OTHERS or f"{TABLES}/{table}" in BESIDE
        ],
        code=lambda wildcards: registry.source("figures", PLOTS[wildcards.figure].plot),
        shared=FIGURES_SHARE,
        readers=READERS,
    output:
        layout.figure(PLAN.home, "{figure}") + ".csv",
        layout.figure(PLAN.home, "{figure}") + ".runs.csv",
    log:
        layout.study_log(PLAN.home, "figure-data-{figure}"),
    params:
        **READING,
        plot=lambda wildcards: PLOTS[wildcards.figure].plot,
        runs=lambda wildcards: runs.figure_runs(PLAN, wildcards.figure),
        settings=lambda wildcards: runs.of_figure(PLAN, wildcards.figure, SETTINGS_OF),
        scaling=lambda wildcards: runs.of_figure(PLAN, wildcards.figure, SCALING_OF),
        select=lambda wildcards: PLOTS[wildcards.figure].select,
        device=runs.device(PLAN),
        target=lambda wildcards: PLOTS[wildcards.figure].target,
        basis=lambda wildcards: PLOTS[wildcards.figure].basis,
    message:
        "data of figure {wildcards.figure}"
    script:
        "../scripts/figure_data.py"


# Each in a process of its own: eight take 26 s of CPU time, 11 s in one process. But on one machine Snakemake runs the
# jobs of a group each in its process, and figures that share a service would all wait for all runs.
rule figure:
    input:
        data=layout.figure(PLAN.home, "{figure}") + ".csv",
        shown=layout.figure(PLAN.home, "{figure}") + ".runs.csv",
        reference=lambda wildcards: PLOTS[wildcards.figure].reference_file or [],
        code=lambda wildcards: registry.source("figures", PLOTS[wildcards.figure].plot),
        shared=FIGURES_SHARE,
    output:
        report(
            layout.figure(PLAN.home, "{figure}") + ".png",
            caption="../report/figure.rst",
            category=STUDY.name,
            labels={"figure": "{figure}"},
        ),
        layout.figure(PLAN.home, "{figure}") + ".svg",
        layout.figure(PLAN.home, "{figure}") + ".pdf",
    log:
        layout.study_log(PLAN.home, "figure-{figure}"),
    params:
        plot=lambda wildcards: PLOTS[wildcards.figure].plot,
        options=lambda wildcards: runs.figure_options(PLAN, wildcards.figure),
        caption=lambda wildcards: registry.docstring("figures", PLOTS[wildcards.figure].plot),
    message:
        "figure {wildcards.figure}"
    script:
        "../scripts/figure.py"
