"""`ddlbench new program --try`: run a program for a while, and show what would be read of its
steps.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ddlbench.commands.configuration import DEFAULT, load
from ddlbench.commands.new import candidates, columns, kept_trial
from ddlbench.commands.new.kept_trial import Trial
from ddlbench.commands.new.program import lacked, name_of, search_path, without
from ddlbench.core import living, registry
from ddlbench.core.files import printable, write_json, write_text
from ddlbench.core.formatting import count_of
from ddlbench.core.program import WORK, Program, placeholders
from ddlbench.core.spec import RunSpec, of_program
from ddlbench.plan.kinds.program import command
from ddlbench.run import log_text, meeting, trained_together, work
from ddlbench.run.job import reveal
from ddlbench.run.printed import Printed
from ddlbench.run.rank import ASSIGNMENT, FOLDER
from ddlbench.run.readings import Output, Reading, ReadingMember, UnreadError
from ddlbench.run.watch import watch
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.program import SET, load_program
from ddlbench.settings.program import reveal as reveal_program

MOST_HEARD = 20_000  # lines
SHOWN = 3
LAST = 8  # lines of a program that failed
MOST_SHOWN = 8  # patterns
WIDTH = 160
TOLD = ("pauses", "printed_rate", "reading", "proved")  # remarks that stand in other words


def show(name: str | None, batch: int, seconds: float, config: Path, workers: int = 1) -> int:
    """Run the program, and print what was read.

    Returns 0 if steps were read, and the program ended well or was ended. Raises ConfigError.
    """
    programs = config / "programs"
    name = (
        name
        or max(
            programs.glob("*.yaml"), key=lambda path: path.stat().st_mtime, default=Path("train")
        ).stem
    )
    file = load_program(name_of(name), programs, draft=True)
    if SET in shlex.split(file.command):
        raise ConfigError(
            f"{file.path}: command: {SET} is left in {file.command!r}; allowed: what belongs there"
        )
    machine = replace(
        load_machine(str(load(DEFAULT)["machine"]), config / "machines"), launcher="local"
    )
    program, place = file.programs()[0], {"machine": machine.name, "device": machine.device}
    spec = of_program(
        program, workers=workers, workers_per_node=workers, global_batch=batch * workers, **place
    )
    argv, hidden = reveal(command(spec, machine), machine.name, config / "machines")
    _, secrets = reveal_program(program, programs)

    def run_it(partial: Path) -> Trial:
        return _run(spec, argv, partial, hidden, secrets, seconds)

    of_what = kept_trial.digest(spec, command(spec, machine), seconds)
    trial = kept_trial.of(program.name, of_what, run_it)
    print(*_told_of(trial, spec, file.path), sep="\n")
    source = Output(spec, trial.folder / FOLDER, trial.folder, trial.lines, trial.last)
    if _is_asked(program):
        if not _choose(source, file.path):
            return 1
        read = load_program(program.name, programs).programs()[0]
        spec = replace(spec, program=program.read_as(read))
        source = replace(source, spec=spec)
    member: ReadingMember = registry.member("readings", program.reads)
    try:
        run = member.read(source)
    except UnreadError as error:
        print(f"No steps were read: {error}", *_nearest(spec, trial.last), sep="\n")
        with suppress(UnreadError):
            print(*_side_by_side(_candidates(source), None, program.sample), sep="\n")
        return 1
    print(*_told(spec, trial, run, file.path), *_nearest(spec, trial.last), sep="\n")
    if workers > 1:
        met = meeting.read(trial.folder)
        alone = trained_together.says_alone((line.text for line in trial.lines), workers)
        verdict = trained_together.judge(workers, run.told, met, run.says, alone, run.one_clock)
        print(f"ranks train together: {verdict.together}: {verdict.by}")
    if trial.ended_well:
        print(f"Then: ddlbench new study mine --program {program.name} --workers 1,2")
    return 0 if trial.ended_well else 1


def _told_of(trial: Trial, spec: RunSpec, path: Path) -> Iterable[str]:
    """Yield what was run, how it ended, and of one that failed what it printed last."""
    assert spec.program is not None
    batch = ("batch_per_worker", spec.batch_per_worker)
    settings = ", ".join(f"{key} {value}" for key, value in (batch, *spec.program.settings))
    yield (
        f"{path}: ran for {trial.took_s:.0f} s on {count_of(spec.workers, 'worker')}, with"
        f" {settings}; {trial.how}"
    )
    if trial.again:
        yield kept_trial.remark(trial)
    if not trial.ended_well:
        yield from _last(trial.last)
        if module := lacked(trial.last):
            yield without(module, spec.program.environment, Path(spec.program.folder or ""))


def _is_asked(program: Program) -> bool:
    """Return whether the program's file leaves open what is read where."""
    ways = {"lines": program.patterns, "table": program.columns}
    return program.reads in ways and not ways[program.reads]


def _candidates(source: Output) -> list[candidates.Candidate]:
    """Return what could be read of the output by the way that the program's file names."""
    program = source.spec.program
    assert program is not None
    if program.reads == "table":
        return columns.candidates(source)
    return candidates.candidates(source) if program.reads == "lines" else []


def _choose(source: Output, path: Path) -> bool:
    """Print what could read the output; write what fits into the program's file. Return False where
    nothing fits, or several do.
    """
    program = source.spec.program
    assert program is not None
    if program.reads == "table":
        print("Its columns:", *columns.seen(source), sep="\n")
    try:
        found = _candidates(source)
    except UnreadError as error:
        print(f"No steps were read: {error}")
        return False
    one = candidates.chosen(found)
    print(*_side_by_side(found, one, program.sample), sep="\n")
    key = "columns" if program.reads == "table" else "lines"
    if one is None:
        fit = [other for other in found if not other.refused]
        print(
            f"{key}: {'several ways fit' if fit else 'nothing fits'}: write the right one into"
            f" {path}, or use the recorder, which is right by construction"
        )
        last = next((line for line in reversed(source.last) if line.strip()), "nothing")
        print(f"it printed last: {printable(last)[:WIDTH]}")
        return False
    lines = [f"{text}   # counts {one.unit}: {one.says}" for text in one.written[-1:]]
    lines = [*one.written[:-1], *lines]
    write_text(path, _with(path.read_text(encoding="utf-8"), lines))
    print(*(f"{path}: {line}" for line in lines), sep="\n")
    return True


def _with(text: str, lines: Sequence[str]) -> str:
    """Return a program's file with these keys: in the place of lines that have them, else at its
    end.
    """
    for line in lines:
        key = line.partition(":")[0]
        there = re.compile(rf"^{key}:.*$", re.M)
        text = (
            there.sub(line.replace("\\", r"\\"), text, count=1)
            if there.search(text)
            else f"{text.rstrip()}\n{line}\n"
        )
    return text


def _side_by_side(
    found: Sequence[candidates.Candidate], chosen: candidates.Candidate | None, sample: str
) -> Iterable[str]:
    """Yield some lines for each candidate: what it reads, and what supports or refuses it."""
    if found:
        yield "Candidates:"
    for one in found[:MOST_SHOWN]:
        what = (
            one.says
            if one.refused
            else f"{one.steps} steps, {one.rate:.4g} {sample} per s: {one.says}"
        )
        first, *more = one.written
        yield f"{'->' if one is chosen else '  '} {first}"
        yield from (f"   {line}" for line in more)
        yield f"     {one.unit}: {'refused: ' if one.refused else ''}{printable(what)}"


def _last(texts: Iterable[str]) -> Iterable[str]:
    """Yield the last lines that a program printed, among which its error is."""
    last = [text for text in texts if text.strip()][-LAST:]
    yield f"It printed last:{'' if last else ' nothing'}"
    yield from (f"  {printable(text)[:WIDTH]}" for text in last)


def _run(
    spec: RunSpec,
    argv: Sequence[str],
    partial: Path,
    hidden: dict[str, str],
    secrets: Sequence[str],
    seconds: float,
) -> Trial:
    """Run it for so many seconds at most, in an empty folder, and end all that it started."""
    program = spec.program
    assert program is not None
    (partial / FOLDER).mkdir()
    if program.folder is not None:
        work.lay_out(Path(program.folder), partial / WORK)
    write_json(partial / ASSIGNMENT, {"spec": json.loads(spec.to_json()), "resumes": False})
    member: ReadingMember = registry.member("readings", program.reads)
    patterns = member.wanted(spec)
    heard = Printed(
        patterns, float("inf"), lambda: None, labelled=True, logs=False, secrets=secrets
    )
    heard.last = deque(maxlen=MOST_HEARD)
    alarm = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    began_s, alarm.daemon = time.time(), True
    with heard, living.ending_descendants():
        alarm.start()
        paths = {
            "PATH": search_path(),
            "PYTHONPATH": str(registry.PACKAGE.parent),
        }  # as runs have them
        seen = watch([*argv, str(partial)], partial, hidden | paths)
        alarm.cancel()
    ended = seen.signal is not None
    how = "then it was ended" if ended else f"it ended with code {seen.code}"
    took_s, last = time.time() - began_s, [*heard.last]
    return Trial(partial, began_s, took_s, how, ended or not seen.code, heard.lines, last)


def _told(spec: RunSpec, trial: Trial, run: Reading, path: Path) -> Iterable[str]:
    """What was read, for people; `path` is the program's file."""
    assert spec.program is not None
    patterns = [re.compile(pattern) for pattern in spec.program.patterns]
    matched = [
        line
        for line in trial.lines
        if any(log_text.find(pattern, line.text) for pattern in patterns)
    ]
    if matched:
        yield f"{len(matched)} of its lines matched, such as"
        for line in [*matched[: SHOWN - 1], matched[-1]]:
            yield f"  {printable(line.text)[:WIDTH]}"
    losses = [row.loss for row in run.rows if row.loss == row.loss]
    lost = f", loss {losses[0]:.4g} at first, {losses[-1]:.4g} at last" if losses else ""
    yield f"{candidates.counted(run)[0]} steps, {run.proof.text}{lost}"
    took_s = max(row.end_s for row in run.rows)
    rate = (
        f"{sum(row.images for row in run.rows) / took_s:.4g}"
        if took_s
        else "(the output was buffered: all lines came at once)"
    )
    yield f"{rate} {spec.program.sample} per s by the times of its lines"
    named = placeholders(spec.program.command)
    if not {"batch_per_worker", "global_batch"} & named:
        yield (
            "command has no {batch_per_worker}: the rate is wrong unless its batch happens to be"
            " that of the study"
        )
    if "seed" not in named:
        yield (
            "command has no {seed}: all repeats train alike, so their spread is the machine's noise"
            " alone"
        )
    for name, remark in run.remarks.items():
        if name not in TOLD:
            yield f"{name}: {_words(remark)}"
    if not run.proof.proved:
        steps = run.remarks.get("steps_per_epoch")
        epoch = f" (read were {steps} steps of {spec.global_batch} an epoch)" if steps else ""
        yield (
            f"Nothing confirms these steps and samples: set samples_per_epoch{epoch} in {path}, let"
            " it print its rate (?P<samples_per_s>...), or use the recorder"
        )
    for why in dict.fromkeys(run.not_known.values()):
        yield (
            f"not known: {', '.join(name for name in run.not_known if run.not_known[name] == why)}:"
            f" {why}"
        )


def _words(remark: object) -> str:
    """Return a remark for people."""
    if isinstance(remark, Mapping):
        return ", ".join(f"{name} {value}" for name, value in remark.items())
    return f"{remark}"


def _nearest(spec: RunSpec, texts: Iterable[str]) -> Iterable[str]:
    """Yield the lines that come nearest to each pattern that has no match, and where the pattern
    left them.
    """
    assert spec.program is not None
    kinds = {re.sub(r"\d+", "0", text): text for text in texts}  # one line of each kind
    for pattern in spec.program.patterns:
        if any(re.search(pattern, text) for text in kinds.values()):
            continue
        prefixes = _prefixes(pattern)
        far = {
            text: next((b for b in prefixes if re.search(b, text)), "")
            for text in [*kinds.values()][:-500:-1]
        }
        yield f"Nearest to {pattern}, of {len(kinds)} kinds of lines (ignoring digits):"
        for text in sorted(far, key=lambda text: len(far[text]), reverse=True)[:SHOWN]:
            rest = (
                f"from here on it does not match: {pattern[len(far[text]) :]}"
                if far[text]
                else "no part of it matches"
            )
            yield f"  {printable(text)[:WIDTH]}\n    {rest}"


def _prefixes(pattern: str) -> Sequence[str]:
    """List prefixes of a pattern that are patterns themselves and match no empty text, the longest
    first.
    """
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for end in range(len(pattern) - 1, 0, -1):
            with suppress(re.error):
                if not re.compile(pattern[:end]).search(""):
                    found.append(pattern[:end])
    return found
