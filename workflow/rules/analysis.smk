# Records to tables, tables to figures. A figure is one job, and its own code is an input: change one, and only that
# one is drawn again.
PLOTS = {figure.name: figure for figure in STUDY.figures}
FIGURES_SHARE = [registry.source("figures", path.stem) for path in sorted(registry.PACKAGE.glob("figures/_*.py"))]


rule collect:
    input:
        # Both files of each record: a change of either is looked at.
        [file(run) for run in PLAN.runs for file in (layout.run_log, layout.run_steps)],
        others=OTHERS,
        code=[registry.source("analysis", name) for name in registry.members("analysis")],
        measures=registry.source("rank", "measure"),
        published="config/references/operations.csv",
        readers=[os.path.relpath(path) for path in sorted(registry.PACKAGE.glob("records/*.py"))] if OTHERS else [],
    output:
        multiext(layout.table("{study}", "runs"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "epochs"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "step_times"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "losses"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "comparisons"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "costs"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "kernels"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "operations"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "messages"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "not_measured"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "submissions"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "failures"), ".parquet", ".csv"),
        multiext(layout.table("{study}", "refused"), ".parquet", ".csv"),
        layout.table("{study}", "learning_rates") + ".parquet",
    log:
        layout.study_log("{study}", "collect"),
    params:
        runs=list(PLAN.runs),
        inferences=list(PLAN.inferences),
        kind=STUDY.records.kind if STUDY.records else "ours",
        settings=lambda wildcards: runs.digests(PLAN),
        peaks=dict(MACHINE.peak_tflops_per_worker),
        order=list(PLAN.order),
        price=(MACHINE.price_per_gpu_hour, MACHINE.currency),
        terms=snakefile.terms(MACHINE, config["checkpoint"]["minutes"]),
    message:
        "collect {wildcards.study}: tables of all runs"
    script:
        "../scripts/collect.py"


# What the claims of sources come to by these runs.
rule verdicts:
    input:
        claims="config/references/claims.csv",
        runs=layout.table(STUDY.name, "runs") + ".parquet",
        kernels=layout.table(STUDY.name, "kernels") + ".parquet",
        code=[registry.source("analysis", name) for name in ("claims", "comparisons", "scaling", "statistics")],
    output:
        layout.table(STUDY.name, "verdicts") + ".csv",
    log:
        layout.study_log(STUDY.name, "verdicts"),
    message:
        f"verdicts of {STUDY.name} on what sources claim"
    script:
        "../scripts/verdicts.py"


# What the frameworks of the house are and do: no run is asked. Another version that is installed makes it again.
rule frameworks:
    input:
        code=registry.source("analysis", "frameworks"),
    output:
        layout.table(STUDY.name, "frameworks") + ".csv",
    log:
        layout.study_log(STUDY.name, "frameworks"),
    params:
        rows=lambda wildcards: frameworks.rows(),
    message:
        "frameworks: what they share out, how they communicate, options and versions: {output}"
    script:
        "../scripts/frameworks.py"


# Runs that failed keep collect from running: this asks what they, and jobs of inference, left, whatever else is done.
rule failures:
    log:
        layout.study_log(STUDY.name, "failures"),
    params:
        runs=list(PLAN.runs),
        inferences=list(PLAN.inferences),
        tables=TABLES,
    message:
        f"failures: runs and jobs of inference of {STUDY.name} that left no record"
    script:
        "../scripts/failures.py"


# Which host of the machine slows the others, by all records of it, of any study; and whether it is its hardware.
rule nodes:
    log:
        layout.log(f"nodes-{MACHINE.name}"),
    params:
        machine=MACHINE.name,
    message:
        f"nodes: each host of {MACHINE.name} beside the others"
    script:
        "../scripts/nodes.py"


# Whether a new software stage is faster, from runs that both sides have: --config before=... after=...
rule compare:
    log:
        layout.log("compare"),
    params:
        before=config["before"],
        after=config["after"],
    message:
        "compare: {params.after} beside {params.before}"
    script:
        "../scripts/compare.py"


# Records that cannot be true do not stop the others' tables; but nobody should miss them.
onsuccess:
    from ddlbench.analysis import refusals

    print(*refusals.lines(refusals.read(Path(TABLES))), sep="\n", file=sys.stderr)
    print(*snakefile.audited(Path(TABLES)), sep="\n", file=sys.stderr)


onerror:
    from ddlbench.analysis import failures, refusals

    print(*refusals.lines(refusals.read(Path(TABLES))), sep="\n", file=sys.stderr)
    asked = [Path(layout.inference(job)).parent for job in PLAN.inferences]
    failed = failures.failures([Path(layout.run(run)) for run in PLAN.runs], asked)
    print("", *promise.errors(Path(TRAINING.preflight)), sep="\n", file=sys.stderr)
    print(*failures.lines(failed, most=5), sep="\n", file=sys.stderr)
    if failed:
        asking = "all of them: snakemake failures, with the same options"
        print(f"{failures.counted(failed)}; {asking}", file=sys.stderr)


# What a figure is drawn from, in a file of its own that people can take and plot themselves. A checkpoint: only when it
# is made does Snakemake look whether it has changed. A new run changes all tables, and the data of the figures that
# show it; the others are not drawn again.
checkpoint figure_data:
    input:
        tables=lambda wildcards: [
            layout.table(wildcards.study, table) + ".parquet"
            for table in registry.member("figures", PLOTS[wildcards.figure].plot).TABLES
        ],
        code=lambda wildcards: registry.source("figures", PLOTS[wildcards.figure].plot),
        shared=FIGURES_SHARE,
        formulas=[registry.source("analysis", name) for name in ("losses", "scaling", "statistics")],
        # Of a study that marks figures which rest on a broken comparison: what tells them.
        audited=[*AUDITED, *AUDIT_CODE] if STUDY.fail_on else [],
    output:
        layout.figure("{study}", "{figure}") + ".csv",
        [layout.figure("{study}", "{figure}") + ".audit.csv"] if STUDY.fail_on else [],
    log:
        layout.study_log("{study}", "figure-data-{figure}"),
    params:
        plot=lambda wildcards: PLOTS[wildcards.figure].plot,
        runs=lambda wildcards: runs.figure_runs(PLAN, wildcards.figure),
        select=lambda wildcards: PLOTS[wildcards.figure].select,
        device=runs.device(PLAN),
        target=lambda wildcards: PLOTS[wildcards.figure].target,
        basis=lambda wildcards: PLOTS[wildcards.figure].basis,
        fail_on=STUDY.fail_on,
    message:
        "data of figure {wildcards.figure}"
    script:
        "../scripts/figure_data.py"


rule figure:
    input:
        data=lambda wildcards: checkpoints.figure_data.get(**wildcards).output[0],
        audit=lambda wildcards: checkpoints.figure_data.get(**wildcards).output[1:],
        reference=lambda wildcards: PLOTS[wildcards.figure].reference_file or [],
        code=lambda wildcards: registry.source("figures", PLOTS[wildcards.figure].plot),
        shared=FIGURES_SHARE,
    output:
        report(
            layout.figure("{study}", "{figure}") + ".png",
            caption="../report/figure.rst",
            category="{study}",
            labels={"figure": "{figure}"},
        ),
        layout.figure("{study}", "{figure}") + ".svg",
        layout.figure("{study}", "{figure}") + ".pdf",
    log:
        layout.study_log("{study}", "figure-{figure}"),
    params:
        plot=lambda wildcards: PLOTS[wildcards.figure].plot,
        options=lambda wildcards: runs.figure_options(PLAN, wildcards.figure),
        caption=lambda wildcards: registry.docstring("figures", PLOTS[wildcards.figure].plot),
    message:
        "figure {wildcards.figure}"
    script:
        "../scripts/figure.py"
