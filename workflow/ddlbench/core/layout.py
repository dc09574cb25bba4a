"""How `results/` is laid out, said once: rules, scripts and the package ask here where a file lies.

All paths are relative to the folder that Snakemake runs in, as Snakemake wants them. Each function takes names or
Snakemake's wildcards: `run_log("{run}")` is the pattern of all of them. `home` is `<study>/<machine>`.

    results/
        runs/<run>/             run.mllog, steps.parquet, train.log    shared by all studies
        inference/<job>/        inference.json, infer.log, failed/     another kind of job (`plan/kinds/`)
        <study>/<machine>/      what follows from the runs of a study on a machine:
            tables/             one .parquet and .csv per table, plan.csv, plan.txt
            application/        the scaling section of an application, in all formats
            records/            digests of records, by which figures show them
            figures/            <figure>.csv (what it is drawn from), .runs.csv (of which runs), .png, .svg, .pdf
            index.html          the page of the study; study.json says the same for programs; report.html is Snakemake's
            export/<kind>/      what `ddlbench export` made
            partial/            the same of the runs that were there when it was asked for
            logs/
        machines/<machine>/     preflight-<study>.json and what lies beside it, kept/<sha256>.json, nodes.csv
        compare/                <before>-<after>.csv, .html
        kept/<name>/<study>/<machine>/  what `ddlbench keep` froze; kept/<name>/runs/ has records, by link
        logs/                   of jobs that belong to no study: prepare, verify, preflight, slurm/
"""

import re
from pathlib import Path

from ddlbench.core.record import MLLOG, STEPS

RESULTS = Path("results")


def runs(results: Path = RESULTS) -> str:
    """The folder of all runs."""
    return f"{results}/runs"


def run(run: str, results: Path = RESULTS) -> str:
    """The folder of a run. `run/__main__.py` says what lies in it while the run is made."""
    return f"{results}/runs/{run}"


def run_log(run: str, results: Path = RESULTS) -> str:
    """The MLPerf log of a run: there if and only if the run has ended well."""
    return f"{results}/runs/{run}/{MLLOG}"


def run_steps(run: str, results: Path = RESULTS) -> str:
    """The steps of a run."""
    return f"{results}/runs/{run}/{STEPS}"


def train_log(run: str) -> str:
    """What the run's processes printed."""
    return f"{RESULTS}/runs/{run}/train.log"


def tables(home: str) -> str:
    """The folder of a study's tables."""
    return f"{RESULTS}/{home}/tables"


def table(home: str, name: str) -> str:
    """A table of a study, without suffix."""
    return f"{tables(home)}/{name}"


def records(home: str, part: str) -> str:
    """The digests of the records of some of a study's runs: those that the same figures show."""
    return f"{RESULTS}/{home}/records/{part}.csv"


def figure(home: str, name: str) -> str:
    """A figure of a study, without suffix."""
    return f"{RESULTS}/{home}/figures/{name}"


def page(home: str) -> str:
    """The page of a study, for people."""
    return f"{RESULTS}/{home}/index.html"


def numbers(home: str) -> str:
    """What the page says, for programs (`show/page/numbers.py`)."""
    return f"{RESULTS}/{home}/study.json"


def partial(home: str, results: Path = RESULTS) -> str:
    """The folder of what there was of a study when somebody asked for it; laid out as that of the study."""
    return f"{results}/{home}/partial"


def report(home: str) -> str:
    """Snakemake's report of a study: which job made what, and how."""
    return f"{RESULTS}/{home}/report.html"


def study_log(home: str, job: str) -> str:
    """What a job printed that belongs to one study."""
    return f"{RESULTS}/{home}/logs/{job}.log"


def log(job: str) -> str:
    """What a job printed that belongs to no study, or to several."""
    return f"{RESULTS}/logs/{job}.log"


def nodes(machine: str) -> str:
    """What the records of a machine say of its hosts."""
    return f"{RESULTS}/machines/{machine}/nodes.csv"


def comparison(before: str, after: str) -> str:
    """One side of runs beside another, each a machine or a folder."""
    names = [re.sub(r"[^A-Za-z0-9._-]+", "_", side).strip("_") for side in (before, after)]
    return f"{RESULTS}/compare/{'-'.join(names)}.csv"


def kept(name: str, results: Path = RESULTS) -> str:
    """What was frozen under a name."""
    return f"{results}/kept/{name}"


def preflight(machine: str, study: str) -> str:
    """What the last preflight of a study on its machine found."""
    return f"{RESULTS}/machines/{machine}/preflight-{study}.json"
