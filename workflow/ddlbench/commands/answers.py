"""The answer of each command: printed, for programs as JSON, and where it is a table written beside the others.

Nothing here starts a job. Each function gives the exit code. Rooms do the work; what they import comes late, so that a
plan needs no pandas.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from ddlbench.core import files, layout, registry
from ddlbench.core.columns import write_csv
from ddlbench.core.plural import count_of
from ddlbench.settings.config import CONVERGENCE, NAME, NAME_IN_WORDS, ConfigError

MOST = 8  # lines of an answer on a terminal


class Call:
    """What a command was called with. `settings`, the study with its plan, is read when it is asked for."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        named = [f"{key}={value}" for key in ("study", "machine") if (value := getattr(options, key, None))]
        self.entries = [*named, *getattr(options, "config", [])]
        self.json: bool = getattr(options, "json", False)
        # Whoever reads a pipe or a file wants all of it.
        self.all: bool = getattr(options, "all", False) or not sys.stdout.isatty()

    @cached_property
    def settings(self) -> Any:
        """A `configuration.Settings`. Raises ConfigError."""
        from ddlbench.commands import configuration

        return configuration.read(configuration.of_command_line(self.options.profile, self.entries))

    def snakemake(self, *targets: str) -> str:
        """The line that does the work this call is about."""
        queue = self.settings.plan.machine.partitions
        profile = self.options.profile or f"profiles/{'slurm' if queue else 'local'}"
        entries = ["--config", *self.entries] if self.entries else []
        return shlex.join(["snakemake", "--profile", profile, *targets, *entries])

    def unfinished(self) -> bool:
        """Whether a job has no result, or the page is missing, older than a result, or of another text of the study's
        files. Where Snakemake remembers nothing of the page, their times decide."""
        from ddlbench.commands import snakefile
        from ddlbench.plan import stale

        planned = self.settings.plan
        page = layout.page(planned.home)
        memory = stale.remembered(page)
        try:
            made_s = Path(page).stat().st_mtime
            read: list[Path | str] = [job.outputs()[0] for job in planned.jobs.values()]
            if memory is None:
                read += snakefile.written(planned)
            elif repr(snakefile.said(planned)) not in (memory.get("params") or ()):
                return True
            return any(Path(path).stat().st_mtime > made_s for path in read)
        except FileNotFoundError:
            return True

    def show(
        self, lines: Iterable[str], data: object, *targets: str, answer: Sequence[str] = (), stale: bool = False
    ) -> None:
        """Print the answer, the other lines, and what does the work if any is left; with --json `data` alone.

        Where there is an answer a terminal shows the other lines with --all only.
        """
        if self.json:
            print(json.dumps(data, indent=1, default=str))
            return
        rest = [*lines] if self.all or not answer else ["More: the same with --all"]
        work = [f"To do the work: {self.snakemake(*targets)}"] if stale or self.unfinished() else []
        print(*answer, *rest, *work, sep="\n", flush=True)


def plan(call: Call) -> int:
    """What the study's runs will take and cost: `plan.csv`, one row per run, and `plan.txt`."""
    from ddlbench.plan import bill, estimate, printed, reads, rounds, stale

    config, images, planned = call.settings
    rows = bill.rows(planned, images, layout.RESULTS, stale.memories(planned.runs), stale.COMMAND)
    folder, sources = Path(layout.tables(planned.home)), config["data"]["sources"]
    # What stops the runs is said first.
    answer = reads.remarks(planned, sources, [row.run for row in rows if row.state != stale.DONE])
    answer += printed.answer(planned, rows, config["max_gpu_hours"])
    if planned.study.until:
        every, _ = reads.plan_of(config, every=True)
        looks = rounds.read(Path(layout.rounds(planned.home)))
        answer += printed.until(planned, rows, bill.rows(every, images, layout.RESULTS), looks)
    records = estimate.read_all(Path(layout.runs()))
    answer += printed.shows(planned, estimate.spread(records.values(), planned.machine.name))
    lines = printed.lines(planned, rows, reads.forms(planned, sources))
    lines.append(f"One row per run: {folder}/plan.csv")
    changed = any(row.state == stale.STALE for row in rows)
    call.show(lines, [vars(row) for row in rows], answer=answer, stale=changed)
    bill.write(rows, "\n".join([*answer, *lines]) + "\n", folder)
    return 0


def status(call: Call) -> int:
    """One screen about the study while it runs."""
    from ddlbench.commands import status as screen
    from ddlbench.plan import bill

    config, images, planned = call.settings
    rows = bill.rows(planned, images, layout.RESULTS)
    states, trouble = screen.now(planned, rows, layout.RESULTS, Path.cwd())
    lines = screen.lines(planned, rows, states, layout.RESULTS, config["max_gpu_hours"], trouble)
    done = {"state": "done", "since": None, "words": "", "reason": ""}
    each = [{"run": row.run} | (asdict(states[row.run]) if row.run in states else done) for row in rows]
    first = 4 if trouble else 3
    call.show(lines[first:], {"runs": each, "squeue": trouble}, answer=lines[:first])
    return 0


def _older(planned: Any, table: Path) -> list[str]:
    """A line about records that changed since a table was made, or none: what it says may not hold any more."""
    if not table.exists():
        return []
    made_s = table.stat().st_mtime
    files_of = [Path(file) for run in planned.runs for file in (layout.run_log(run), layout.run_steps(run))]
    newer = sorted({path.parent.name for path in files_of if path.exists() and path.stat().st_mtime > made_s})
    if not newer:
        return []
    more = f" and {count_of(len(newer) - 1, 'more record')}" if len(newer) > 1 else ""
    return [f"WARNING: {table} is older than the record of {newer[0]}{more}: make it again with snakemake tables"]


def failures(call: Call) -> int:
    """What failed jobs left, whatever else is done: a table too."""
    from ddlbench.analysis import failures, refusals, tables

    planned = call.settings.plan
    rows = failures.failures(planned.folders())
    folder = Path(layout.tables(planned.home))
    # Records are checked when tables are made: this is what was refused then.
    answer = [f"{failures.counted(rows)}: {folder}/failures.csv", *failures.lines(rows, None if call.all else MOST)]
    answer = [*_older(planned, folder / "refused.csv"), *answer]
    call.show(refusals.lines(refusals.read(folder)), rows, answer=answer)
    tables.write("failures", rows, folder)
    return 0


def audit(call: Call) -> int:
    """What the rules of the audit find in the study's tables, as they are now, or in those that are named."""
    from ddlbench.audit import finding_rows, material
    from ddlbench.audit.check import audit

    named, out = call.options.tables, call.options.out
    folder: Path = named or Path(layout.tables(call.settings.plan.home))
    if not (named or (folder / "runs.parquet").exists()):
        raise ConfigError(f"{folder}: has no tables to audit; make them: {call.snakemake('tables')}")
    about = (None, ()) if named else (Path(layout.runs()), call.settings.plan.further)
    try:
        rows = audit(material.of_study(folder, CONVERGENCE, *about))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if out or named:
        write_csv(rows, finding_rows.COLUMNS, out or named / "audit.csv")
    answer = [
        *([] if named else _older(call.settings.plan, folder / "runs.parquet")),
        *finding_rows.lines(rows, call.all),
    ]
    if named and not call.json:  # they are of no study, which could be made again
        print(*answer, sep="\n", flush=True)
    else:
        call.show([f"all findings: {folder}/audit.csv"], rows, "tables", answer=answer)
    return 1 if finding_rows.worst(rows, "error") else 0


def verdicts(call: Call) -> int:
    """What the study's runs say to the claims of sources, from its table."""
    import pandas as pd

    from ddlbench.analysis import claims

    path = Path(layout.table(call.settings.plan.home, "verdicts") + ".csv")
    if not path.exists():
        raise ConfigError(f"{path}: is not made yet; make it: {call.snakemake('tables')}")
    table = pd.read_csv(path)
    *judged, counts = claims.lines(table)
    shown = judged if call.all else judged[:MOST]
    answer = [*_older(call.settings.plan, path), counts, *shown]
    call.show([f"One row per claim, and why: {path}"], table.to_dict("records"), "tables", answer=answer)
    return 0


def answer(call: Call) -> int:
    """What to take, how surely, and what would settle the rest: of the runs that are there, at any time."""
    from ddlbench.answers import wording
    from ddlbench.commands import configuration
    from ddlbench.show.page import about, numbers, partial, write

    config, _, planned = call.settings
    home, study = Path(layout.page(planned.home)).parent, about.from_plan(planned, (), {})
    made = Path(layout.tables(planned.home)) / "runs.parquet"
    if planned.study.records and not made.exists():
        raise ConfigError(f"{made}: is not made yet; make it: {call.snakemake('tables')}")
    try:
        older = _older(planned, made)
        found = None if older or not made.exists() else write.first_screen(study, *write.read_tables(study, home))
    except FileNotFoundError:  # some of what the page reads is not made yet
        found = None
    if found is None:
        found = partial.first_screen(config, configuration.terms(planned.machine, config["checkpoint"]["minutes"]))
    told = [wording.told(one, study.nouns) for one in found.answers]
    rest = [f"{words.question} {words.text}" for words in told if words.text]
    rest += [f"  {other}" for words in told for other in words.others]
    rest += [f"Not asked: {words}" for words in wording.not_asked(found, study.nouns)]
    lines = wording.lines(found, study.nouns) or ["no run has ended well yet: there is nothing to answer"]
    call.show(rest, numbers.plain(found), answer=[*lines, *_page(home)])
    return 0


def _page(home: Path) -> list[str]:
    """Return the line that says where the page lies, if it is made."""
    page = home / "index.html"
    return [f"page: {page}"] if page.exists() else []


def partial(call: Call) -> int:
    """Page, figures and tables of the runs that are there, beside those of the whole."""
    from ddlbench.commands import configuration
    from ddlbench.show.page.partial import make

    config, _, planned = call.settings
    terminal, log = sys.stdout, Path(layout.study_log(planned.home, "partial"))
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with files.logged(log):
            lines = make(config, configuration.terms(planned.machine, config["checkpoint"]["minutes"]))
    finally:
        sys.stdout = terminal
    call.show(lines, lines)
    return 0


def verify(call: Call) -> int:
    """Whether prepared data are whole: those of the study, or in the folders that are named."""
    from ddlbench.data.crew import CrewError
    from ddlbench.data.verify import verify

    folders = call.options.folders
    if not folders:
        folders = sorted({Path(job.manifest).parent for job in call.settings.plan.runs.values() if job.manifest})
    try:
        problems = verify(folders, call.options.processes)
    except CrewError as error:
        problems = [files.printable(error)]
    print(*problems, sep="\n", end="\n" * bool(problems))
    if problems and not call.options.folders:
        again = [str(folder / "manifest.json") for folder in folders]
        print(f"To prepare them again: {call.snakemake('--force', *again, '--')}")
    return 1 if problems else 0


def nodes(call: Call) -> int:
    """Each host of the machine beside the others, from its records of any study: a table too."""
    from ddlbench.analysis import nodes

    machine = call.settings.plan.machine
    found, runs, refused = nodes.records(machine.name, Path(layout.runs()))
    rows, table = nodes.rows(found), Path(layout.nodes(machine.name))
    counted = f"{runs} runs of {machine.name} on two hosts or more, one row per host and part: {table}"
    call.show([*nodes.lines(rows), counted, *refused], rows)
    write_csv(rows, nodes.COLUMNS, table)
    return 0


def keep(call: Call) -> int:
    """A study's state under a name: tables, figures and page copied, records by link."""
    from ddlbench.show import overview

    planned, name = call.settings.plan, call.options.name
    page, at = Path(layout.page(planned.home)), Path(layout.kept(name), planned.home)
    if not NAME.fullmatch(name):
        raise ConfigError(f"name: {name!r} is not allowed; allowed: {NAME_IN_WORDS}")
    if at.exists():
        raise ConfigError(f"{at}: is kept already; another name, or remove it first")
    if not page.exists():
        raise ConfigError(f"{page}: is not made yet; make it: {call.snakemake()}")
    runs = [Path(layout.run(run)) for run, job in planned.runs.items() if job.outputs()[0].exists()]
    aside = at.with_name(f".{at.name}")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(page.parent, aside, ignore=shutil.ignore_patterns("partial", "logs", ".*"))
    for folder in runs:
        to = Path(layout.kept(name), "runs", folder.name)
        to.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            if file.is_file() and not (to / file.name).exists():
                try:  # another name for the same bytes, which stay when the first is replaced
                    os.link(file, to / file.name)
                except OSError:  # a disk without links
                    shutil.copy2(file, to / file.name)
    aside.rename(at)
    overview.write()
    print(f"{at}: {len(runs)} of {len(planned.runs)} runs of {planned.study.name}, its tables, figures and page")
    print(f"To compare with it: ddlbench compare {name}/{at.name} {at.name}")
    return 0


def read(call: Call) -> int:
    """The study's programs read again, where their files say something else than they were read by."""
    from ddlbench.run import program

    code, lines = 0, []
    for run, job in call.settings.plan.runs.items():
        folder = Path(layout.run(run))
        if job.spec.kind != "program" or not folder.is_dir():
            continue
        came = program.read_again(job.spec, folder)
        if came:
            lines.append(f"{run}: {came}")
            code |= not came.startswith("read")
    call.show(lines or ["nothing is to be read again"], [])
    return code


def export(call: Call) -> int:
    """The study in the form of another program; of the runs that are there where only `ddlbench partial` was made."""
    from ddlbench.outlook import exports

    kind, home = call.options.to, call.settings.plan.home
    whole, partial = Path(layout.page(home)).parent, Path(layout.partial(home))
    only_partial = (partial / "study.json").exists() and not (whole / "study.json").exists()
    out = exports.export(kind, partial if only_partial else whole)
    print(f"{out}: {registry.member('exports', kind).__doc__.splitlines()[-1].format(folder=out)}")
    return 0


def compare(call: Call) -> int:
    """The new side's runs beside the old one's: a table and a page too."""
    from ddlbench.analysis import compare
    from ddlbench.show.page import compared

    before, after = names = call.options.before, call.options.after
    if before == after:
        raise ConfigError(f"after: {after!r} is before's too; allowed: another machine, or another folder of runs")
    sides, refused = [], []
    for key, name in zip(("before", "after"), names, strict=True):
        runs, some = compare.side(name, layout.RESULTS)
        if not runs:
            allowed = "has no timed record that ended well; allowed: a machine that has some, a folder of runs"
            raise ConfigError("; ".join([f"{key}: {name!r} {allowed}", *some]))
        sides.append(runs)
        refused += some
    rows, table = compare.rows(*sides), Path(layout.comparison(before, after))
    lines = [*compare.same(*sides), *(f"differs: {line}" for line in compare.differences(*sides))]
    lines += [*compare.lines(rows), *refused]
    if not rows:
        lines.append("no run is on both sides: pairs are runs that differ in nothing but their machine's name")
    page = table.with_suffix(".html")
    call.show([*lines, f"one row per run, host and part: {table}; the page: {page}"], rows)
    write_csv(rows, compare.COLUMNS, table)
    folders = {name: [run.folder for run in runs] for name, runs in zip(names, sides, strict=True)}
    compared.write(page, folders, rows, lines)
    return 0


def new_machine(call: Call) -> int:
    """A machine file with what SLURM and the network say."""
    from ddlbench.commands.new import machine

    name = call.options.name
    path = machine.write(name, Path("config"))
    print(f"{path}: read it through; lines with SET are yours. Then: ddlbench plan --machine {name}")
    return 0


def new_study(call: Call) -> int:
    """A study from what the command line says of it."""
    from ddlbench.commands.new import study

    names = ("model", "dataset", "frameworks", "workers", "program")
    given = {name: value for name in names if (value := getattr(call.options, name))}
    path = study.write(call.options.name, Path("config"), **given)
    print(f"{path}: it is yours. Then: ddlbench plan --study {call.options.name}")
    return 0


def new_program(call: Call) -> int:
    """A program's file from its --help and source; with --try, what is read of its steps."""
    from ddlbench.commands.new import program, trial

    options = call.options
    if options.trial:
        if options.workers < 1:
            raise ConfigError(f"--workers: {options.workers} is not allowed; allowed: numbers from 1 on")
        return trial.show(options.program, options.batch, options.seconds, Path("config"), options.workers)
    if options.program is None:
        raise ConfigError("program: is missing; allowed: the file that trains, such as train.py")
    path, problem = program.write(options.program, options.name, options.environment, Path("config"))
    print(f"{path}: read it through; lines with SET are yours. Then: ddlbench new program --try {path.stem}")
    if problem:
        print(f"--help {problem}")
        print("If it needs another Python: --environment <folder>, of an environment that has bin/python")
    return 0
