"""How `results/` is laid out, said once: rules, scripts and the package ask here where a file lies.

All paths are relative to the folder that Snakemake runs in, as Snakemake wants them. Each takes
names or Snakemake's wildcards: `run_log("{run}")` is the pattern of all of them. `home` is
`<study>/<machine>`.

    results/
        index.html              a line of answers for each study (`show/overview.py`)
        runs/<run>/             run.mllog, steps.parquet, train.log    shared by all studies
        inference/<job>/        inference.json, infer.log, failed/     another kind of job (`plan/kinds/`)
        <study>/<machine>/      what follows from the runs of a study on a machine:
            tables/             one .parquet and .csv per table, plan.csv, plan.txt
            records/            digests of records, by block and by what a figure selects of it
            figures/            <figure>.csv (what it is drawn from), .runs.csv (of which runs), .png, .svg, .pdf
            index.html          the page of the study; study.json says the same for programs; report.html is Snakemake's
            export/<kind>/      what `ddlbench export` made
            partial/            the same of the runs that were there when it was asked for
            rounds.json         of a study that makes repeats until it is decided: each look, and the runs it asked for
            logs/
        machines/<machine>/     preflight-<study>.json and what lies beside it, kept/<sha256>.json, nodes.csv
        compare/                <before>-<after>.csv, .html
        kept/<name>/<study>/<machine>/  what `ddlbench keep` froze; kept/<name>/runs/ has records, by link
        trials/<program>/       what the last trial of a program left, to be read again
        logs/                   of jobs that belong to no study: prepare, verify, preflight, slurm/
"""

import re
from collections.abc import Callable
from pathlib import Path
from string import Formatter

from ddlbench.core.record import MLLOG, STEPS

RESULTS = Path("results")


def _path(pattern: str) -> Callable[..., str]:
    """Return a function that makes this path from names, in the order of the pattern; `results=` is
    another folder than RESULTS.

    The function raises ValueError if names are missing or too many.
    """
    fields = [name for _, name, _, _ in Formatter().parse(pattern) if name and name != "results"]

    def path(*names: str, results: Path = RESULTS) -> str:
        return pattern.format(**dict(zip(fields, names, strict=True)), results=results)

    return path


runs = _path("{results}/runs")
run = _path("{results}/runs/{run}")  # `run/__main__.py` says what lies in it while the run is made
run_log = _path(f"{{results}}/runs/{{run}}/{MLLOG}")  # there if and only if the run has ended well
run_steps = _path(f"{{results}}/runs/{{run}}/{STEPS}")
train_log = _path("{results}/runs/{run}/train.log")  # what the run's processes printed
tables = _path("{results}/{home}/tables")
table = _path("{results}/{home}/tables/{name}")  # without suffix
records = _path(
    "{results}/{home}/records/{part}.csv"
)  # digests of the records of runs that figures show together
figure = _path("{results}/{home}/figures/{name}")  # without suffix
page = _path("{results}/{home}/index.html")  # for people
numbers = _path("{results}/{home}/study.json")  # the same for programs (`show/page/numbers.py`)
partial = _path(
    "{results}/{home}/partial"
)  # of what there was when somebody asked; laid out as that of the study
report = _path("{results}/{home}/report.html")  # Snakemake's: which job made what, and how
rounds = _path(
    "{results}/{home}/rounds.json"
)  # looks at a study that makes repeats until it is decided
study_log = _path("{results}/{home}/logs/{job}.log")
log = _path("{results}/logs/{job}.log")  # of a job that belongs to no study, or to several
nodes = _path(
    "{results}/machines/{machine}/nodes.csv"
)  # what the records of a machine say of its hosts
trial = _path("{results}/trials/{name}")  # what the last trial of a program printed and left
kept = _path("{results}/kept/{name}")  # what was frozen under a name
preflight = _path("{results}/machines/{machine}/preflight-{study}.json")  # what the last one found


def begun(results: Path = RESULTS) -> frozenset[str]:
    """List the runs that have a folder. The other runs have no files. So a plan of thousands of
    runs looks for no file of a run that has not begun.
    """
    try:
        return frozenset(folder.name for folder in Path(runs(results=results)).iterdir())
    except OSError:  # none is begun
        return frozenset()


def comparison(before: str, after: str) -> str:
    """Return the path of the table that compares two sides, each a machine or a folder."""
    names = [re.sub(r"[^A-Za-z0-9._-]+", "_", side).strip("_") for side in (before, after)]
    return f"{RESULTS}/compare/{'-'.join(names)}.csv"
