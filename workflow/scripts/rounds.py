"""Rule rounds: the looks at a study that makes repeats until it is decided, and the runs of its
next round.
"""

from collections.abc import Collection
from pathlib import Path

import pandas as pd
from ddlbench.analysis.price import tariff
from ddlbench.answers import choose
from ddlbench.core import layout
from ddlbench.core.files import logged
from ddlbench.plan import bill, reads, rounds

with logged(snakemake.log[0]):
    every, images = reads.plan_of(snakemake.params.config, all_repeats=True)
    study, runs = every.study, pd.read_parquet(snakemake.input.runs)
    targets = {figure.name: figure.target for figure in study.figures if figure.target}
    reached = [
        pd.read_csv(path).assign(target=targets[Path(path).stem])
        for path in snakemake.input.reached
    ]
    reached = pd.concat(reached) if reached else pd.DataFrame()
    asked = {
        "tariff": tariff(every.machine),
        "goal": study.goal,
        "looks": len(rounds.looks(study.until)),
    }

    def ask(some: Collection[str]) -> dict[str, tuple[str, ...]]:
        return choose.open_runs({"runs": runs[runs["run"].isin(some)], "reached": reached}, **asked)

    hours = {row.run: row.gpu_hours or 0.0 for row in bill.rows(every, images, layout.RESULTS)}
    looks = rounds.replay(
        study.until, rounds.runs_by_setting(every), snakemake.params.runs, hours, ask
    )
    rounds.write(Path(snakemake.output[0]), looks, study.until)
    print(*rounds.last_look_lines(looks, study.until), sep="\n")
