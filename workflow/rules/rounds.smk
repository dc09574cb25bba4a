# Studies with `repeats: {until: decided}`: when all of a round is made, which runs the next one makes, or why there is
# none (`ddlbench/plan/rounds.py`). From then on the plan has these runs; this call goes on with them (`onsuccess`).
ROUNDS = [layout.rounds(PLAN.home)] if STUDY.until else []

if STUDY.until:

    rule rounds:
        input:
            # Last of all: a study that is stopped between two rounds has its page.
            page=layout.page(PLAN.home),
            runs=f"{TABLES}/runs.parquet",
            reached=[
                f"{layout.figure(PLAN.home, figure.name)}.csv"
                for figure in STUDY.figures
                if figure.target
            ],
        output:
            ROUNDS,
        log:
            layout.study_log(PLAN.home, "rounds"),
        localrule: True
        params:
            config=lambda wildcards: config,
            runs=list(PLAN.runs),
            sources=lambda wildcards: sources.of_script(
                "rounds",
                *registry.paths("questions"),
                packages=(*sources.ROOMS, "answers", "plan"),
            ),
        message:
            f"rounds of {STUDY.name}: is another one to be made?"
        script:
            "../scripts/rounds.py"
