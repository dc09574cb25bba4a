# Records to tables and to figures. A figure is one job, and needs the records of its own runs and no others; its own
# code is a param: change one, and only that one is drawn again.
PLOTS = {figure.name: figure for figure in STUDY.figures}


wildcard_constraints:
    figure="|".join(re.escape(figure) for figure in PLOTS) or "none",
    part="|".join(PARTS.runs) or "none",
    dataset="|".join(map(re.escape, datasets())),
    form="|".join(registry.members("forms")),


# What the machine and the configuration say that tables rest on; a figure names what it shows of it (MACHINE).
READING = {
    "peaks": dict(MACHINE.peak_tflops_per_worker),
    "terms": configuration.terms(MACHINE, config["checkpoint"]),
}
RECORDS = registry.path("records", STUDY.records.kind if STUDY.records else "ours")


# Runs of a block, or those of them that a figure selects, by the digests of their records: so thousands of runs are
# inputs of one job each, and not of every figure.
rule records:
    input:
        # Of a log, which has the digests of the files beside it. `Start` looks at these.
        lambda wildcards: [layout.run_log(run) for run in PARTS.runs[wildcards.part]],
    output:
        layout.records(PLAN.home, "{part}"),
    log:
        layout.study_log(PLAN.home, "records-{part}"),
    params:
        runs=lambda wildcards: PARTS.runs[wildcards.part],
        sources=lambda wildcards: sources.of_script("records"),
    message:
        "records of runs that figures show together: {output}"
    script:
        "../scripts/records.py"


rule collect:
    input:
        [layout.records(PLAN.home, part) for part in PARTS.whole],
        # A function: in plain text Snakemake would take what is in braces for wildcards.
        others=lambda wildcards: OTHERS,
        published=snakefile.OPERATIONS,
    output:
        [f"{TABLES}/{file}" for file in COLLECTED],
    log:
        layout.study_log(PLAN.home, "collect"),
    params:
        **READING,
        runs=list(PLAN.runs),
        kind=STUDY.records.kind if STUDY.records else "ours",
        non_training=[str(job.folder()) for job in PLAN.non_training.values()],
        settings=lambda wildcards: PLAN.digests,
        order=list(PLAN.order),
        scaling=lambda wildcards: PLAN.scaling,
        tariff=astuple(tariff(MACHINE)),
        sources=lambda wildcards: sources.of_script(
            "collect", RECORDS, snakefile.OPERATIONS, *registry.paths("sheets")
        ),
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
    output:
        layout.table(PLAN.home, "verdicts") + ".csv",
    log:
        layout.study_log(PLAN.home, "verdict-table"),
    params:
        sources=lambda wildcards: sources.of_script("verdict_table", "config/references/claims.csv"),
    message:
        f"table of {STUDY.name}: verdicts on what sources claim"
    script:
        "../scripts/verdict_table.py"


# What the frameworks of the house are and do: no run is asked. Another version that is installed makes it again.
rule frameworks:
    output:
        layout.table(PLAN.home, "frameworks") + ".csv",
    log:
        layout.study_log(PLAN.home, "frameworks"),
    params:
        rows=lambda wildcards: frameworks.rows(),
        sources=lambda wildcards: sources.of_script("frameworks"),
    message:
        "frameworks: what they share out, how they communicate, options and versions: {output}"
    script:
        "../scripts/frameworks.py"


# Records that cannot be true do not stop the others' tables; but nobody should miss them.
onsuccess:
    from ddlbench.analysis import refusals

    said = [*refusals.lines(refusals.read(Path(TABLES))), *snakefile.audited(Path(TABLES))]
    said += [
        *terminal.answers(PLAN, snakefile.STARTED),
        *terminal.page(PLAN, snakefile.STARTED),
    ]
    print(*said, sep="\n", end="\n" * bool(said), file=sys.stderr)
    next_round.continue_with_round(workflow, PLAN)


onerror:
    from ddlbench.analysis import failures, refusals

    print(*refusals.lines(refusals.read(Path(TABLES))), sep="\n", file=sys.stderr)
    failed = failures.failures(PLAN.folders())
    print("", *promise.errors(Path(START.preflight)), sep="\n", file=sys.stderr)
    print(*failures.lines(failed, most=5), sep="\n", file=sys.stderr)
    if failed:
        print(
            f"{failures.counted(failed)}; all of them: ddlbench failures, with the same options",
            file=sys.stderr,
        )
        print(
            "figures and page of the runs that are there: ddlbench partial, with the same options",
            file=sys.stderr,
        )


# What a figure is drawn from, in a file of its own that people can take and plot themselves, and which of its runs it
# shows. Records of others, and jobs that do not train, are read from the study's tables.
rule figure_data:
    input:
        records=lambda wildcards: [
            layout.records(PLAN.home, part) for part in PARTS.of_figure[wildcards.figure]
        ],
        tables=lambda wildcards: [
            layout.table(PLAN.home, table) + ".parquet"
            for table in registry.constant("figures", PLOTS[wildcards.figure].plot, "TABLES")
            if OTHERS or f"{TABLES}/{table}" in OF_JOBS
        ],
        published=lambda wildcards: snakefile.published(PLOTS[wildcards.figure].plot),
    output:
        layout.figure(PLAN.home, "{figure}") + ".csv",
        layout.figure(PLAN.home, "{figure}") + ".runs.csv",
    log:
        layout.study_log(PLAN.home, "figure-data-{figure}"),
    params:
        plot=lambda wildcards: PLOTS[wildcards.figure].plot,
        runs=lambda wildcards: runs.figure_runs(PLAN, wildcards.figure),
        settings=lambda wildcards: runs.of_figure(PLAN, wildcards.figure, PLAN.digests),
        scaling=lambda wildcards: runs.of_figure(PLAN, wildcards.figure, PLAN.scaling),
        # Of ours the plan knows which runs that gives.
        select=lambda wildcards: PLOTS[wildcards.figure].select if OTHERS else (),
        machine=lambda wildcards: {
            name: READING[name]
            for name in registry.constant("figures", PLOTS[wildcards.figure].plot, "MACHINE")
        },
        sources=lambda wildcards: sources.of_figure(
            PLOTS[wildcards.figure].plot,
            *snakefile.published(PLOTS[wildcards.figure].plot),
            script="figure_data",
        ),
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
        sources=lambda wildcards: sources.of_figure(
            PLOTS[wildcards.figure].plot, PLOTS[wildcards.figure].reference_file
        ),
    message:
        "figure {wildcards.figure}"
    script:
        "../scripts/figure.py"
