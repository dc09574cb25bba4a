"""A user's own training program: one YAML file in config/programs that says how it is started and
read.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ddlbench.core import registry
from ddlbench.core.files import sha256
from ddlbench.core.layout import RESULTS
from ddlbench.core.program import (
    AXES,
    COUNTS,
    EACH,
    GROUPS,
    HIDDEN,
    OWN,
    PLACEHOLDERS,
    READS,
    Program,
    Scalar,
    hide,
    placeholders,
    secrets,
)
from ddlbench.settings.config import CONFIG, ConfigError, complain, expand, one_of, read_yaml
from ddlbench.settings.keys import Count, Keys, Name, key, mapping, value_of

Texts = Annotated[tuple[str, ...], Field(min_length=1)]
Setting = Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,99}$")]
Axis = Annotated[
    list[Scalar], Field(min_length=1)
]  # inside a mapping pydantic takes no list for a tuple
LIMIT = re.compile("[1-9][0-9]{0,8} (?:steps|minutes)")
MOST_BYTES, MOST_FILES = 1 << 26, 1000  # of data whose contents are compared
MOST_LISTED = 10_000  # files of a folder that are looked at
PASSED_OVER = {"__pycache__", ".git"}  # in folders of `files`: what a run itself changes


def explained(names: Mapping[str, str]) -> str:
    """Format names, each with its meaning, as part of a sentence."""
    return ", ".join(f"{name} ({meaning})" for name, meaning in names.items())


@dataclass(frozen=True, kw_only=True)
class ProgramFile(Keys):
    """The keys of a program's file; `settings` are axes here."""

    command: str = key(
        "The command that starts it, in `folder`, or from the folder that holds config/. It is cut"
        " into words as a shell would, without a shell. In braces: the names of settings, and"
        f" {explained(PLACEHOLDERS)}.",
        minLength=1,
    )
    files: Texts = key(
        "Files and folders that are part of a run, from the folder that holds config/: a change"
        " makes its runs stale."
    )
    folder: str = key(
        "The folder that it runs in, within the one that holds config/. Each run gets a folder of"
        " its own with links to all that lies there: what it writes stays beside its record, in"
        " work/. Left out, all run in the folder that holds config/.",
        None,
        minLength=1,
    )
    data: Texts | tuple[()] = key(
        "Files and folders that it reads and that may lie anywhere; `~` and `$NAME` work. A change"
        " makes its runs stale: of up to 64 MiB in 1000 files their content counts, of more their"
        " sizes and dates.",
        (),
    )
    stop_after: str = key(
        "When a run is ended: `200 steps`, or `5 minutes` from its start. A run that was ended so"
        " is whole.",
        None,
    )
    ranks: str = key(
        "Launcher of its ranks. each: ddlbench, one process per worker, with torchrun's variables"
        " (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). own: the program, from one"
        " process.",
        EACH,
        enum=[EACH, OWN],
    )
    settings: Annotated[tuple[tuple[str, Any], ...], mapping(Axis, Setting, in_order=False)] = key(
        "Further axes: they fill the command, name the runs and stand in column settings. A setting"
        " framework is the framework of figures and comparisons.",
        (),
    )
    sample: Name = key("What a batch counts, as axes and texts name it.", "samples")
    reads: str = key(
        "How its steps are read, a member of workflow/ddlbench/run/readings.",
        "lines",
        enum=registry.members("readings"),
    )
    lines: str | Texts = key(
        "Patterns (Python's re) of the lines that it prints, for reads lines, with named groups:"
        f" {explained(GROUPS)}.",
        (),
    )
    columns: Annotated[tuple[tuple[str, Any], ...], mapping(str, Setting, in_order=False)] = key(
        "For reads table and tensorboard: which column, or scalar, is what. Left are groups of"
        " lines (step, loss, ...) and, for table, time: a date, or seconds since 1970 or since the"
        " program's start.",
        (),
    )
    file: str = key("For reads table: the file in {folder}, such as metrics.csv or *.jsonl.", None)
    axis: str = key(
        "For reads tensorboard: what the steps of its scalars count. Left out, it must show by"
        " itself.",
        None,
        enum=[*AXES],
    )
    steps_per_epoch: int = key("Steps of an epoch, where lines do not say it.", None, minimum=1)
    samples_per_epoch: int = key(
        "Samples of an epoch, over all ranks: confirms what is read.", None, minimum=1
    )
    steps_per_line: int = key(
        "Steps that each line stands for: of those with a number (?P<step>...), else of those with"
        " a loss.",
        None,
        minimum=1,
    )
    parts_per_step: int = key(
        "Into how many of the program's own steps (micro-batches) one step is divided.",
        None,
        minimum=2,
    )
    rate_of: str = key(
        "Whether the rate that it prints is that of all ranks or of one worker. Left out, words"
        " beside the rate (`per GPU`) say it; else the rate confirms nothing on several workers.",
        None,
        enum=["all", "worker"],
    )
    top1_in: str = key(
        "The unit of top1. Left out, a value above 1 shows it.", None, enum=["fraction", "percent"]
    )
    resume: str = key(
        "Words added to the command when a run is resumed after an interruption. Left out, it"
        " cannot be resumed.",
        None,
    )
    minutes: Count = key(
        "Time limit that each run asks a queue for [min]; a block's key minutes overrides it. Left"
        " out, as much as the queue gives.",
        None,
    )
    environment: str | Texts = key(
        "The folder of its own Python environment (with bin/python), or a list of environment"
        " modules. Left out, ddlbench's own.",
        None,
    )
    secret: Texts | tuple[()] = key(
        "Names of options of the command, as --licence, whose values no record, page or log shows,"
        " and no change of which makes runs stale. Names that end in token, secret, password,"
        " passphrase, api-key, access-key or credentials need not be named. Other users of a"
        " machine can list the words of its processes: a variable of the machine file is safer.",
        (),
    )
    name: str = ""
    path: Path = Path()
    digest: str = ""
    dated: tuple[tuple[str, str], ...] = ()  # `data`, each with its digest or date

    def programs(self) -> list[Program]:
        """Return one program per combination of its settings' values, in the order of the file."""
        names = [name for name, _ in self.settings]
        return [
            self.at(dict(zip(names, values, strict=True)))
            for values in product(*(v for _, v in self.settings))
        ]

    def at(self, settings: Mapping[str, Scalar]) -> Program:
        """Return the program with one value for each of its settings."""
        shared = ("name", "ranks", "sample", "digest", "folder", "stop_after", *READS)
        patterns = (self.lines,) if isinstance(self.lines, str) else self.lines
        return Program(
            command=hide(self.command, self.secret),
            resume=self.resume and hide(self.resume, self.secret),
            settings=tuple(settings.items()),
            patterns=patterns,
            environment=self.environment,
            data=self.dated,
            **{name: getattr(self, name) for name in shared if name != "patterns"},
        )


SET = "SET"  # stands where only a person knows


def load_program(name: str, folder: Path = CONFIG / "programs", draft: bool = False) -> ProgramFile:
    """Return the program of that name; its files lie beside the folder config/.

    Of a draft, lines may be SET. Raises ConfigError.
    """
    given = load_reading(name, folder, draft)
    project = folder.parent.parent
    return replace(
        given,
        digest=_digest(given.files, given.path, project),
        dated=_dated(given.data, given.path, project),
    )


def load_reading(name: str, folder: Path = CONFIG / "programs", draft: bool = False) -> ProgramFile:
    """Return how the program of that name is started and read, without a check of its files. Raises
    ConfigError.
    """
    path = folder / f"{name}.yaml"
    given = value_of(ProgramFile, read_yaml(path), path, name=name)
    if draft and given.lines == SET:
        given = replace(given, lines=())
    elif given.lines == SET:
        raise complain(
            path, "lines", SET, f"allowed: patterns; ddlbench new program {name} --try finds some"
        )
    _check_settings(given, path)
    for text in ("command", "resume"):
        if getattr(given, text) is not None:
            _check_words(getattr(given, text), dict(given.settings), path, text)
    if given.lines or not draft:
        _check_patterns(given, path)
    if given.stop_after is not None and not LIMIT.fullmatch(given.stop_after):
        raise complain(
            path, "stop_after", given.stop_after, "allowed: such as 200 steps, or 5 minutes"
        )
    if given.folder is not None:
        _check_folder(given.folder, path, folder.parent.parent)
    if isinstance(given.environment, str):
        place = Path(expand(given.environment, path, "environment"))
        if not (folder.parent.parent / place / "bin" / "python").exists():
            raise complain(
                path,
                "environment",
                str(place),
                "allowed: a folder with bin/python in it, or [modules]",
            )
    return replace(given, path=path)


def _check_settings(given: ProgramFile, path: Path) -> None:
    for name, values in given.settings:
        if name in PLACEHOLDERS:
            free = f"allowed: a name that commands do not have already: {', '.join(PLACEHOLDERS)}"
            raise complain(path, f"settings.{name}", values, free)
        if len({repr(value) for value in values}) < len(values):
            raise complain(path, f"settings.{name}", values, "allowed: each item once")


def _check_words(text: str, settings: Mapping[str, Any], path: Path, where: str) -> None:
    """Raise ConfigError unless a shell could cut the text into words, and all its placeholders are
    known.
    """
    try:
        words, names = shlex.split(text), placeholders(text)
    except ValueError as error:
        how = (
            "allowed: words with closed quotes, and placeholders such as {workers} ({{ and }} are"
            " braces themselves)"
        )
        raise complain(
            path, where, text, f"{str(error)[0].lower()}{str(error)[1:]}; {how}"
        ) from None
    if not words:
        raise complain(path, where, text, "allowed: a command")
    for name in sorted(names - {*PLACEHOLDERS, *settings}):
        raise complain(path, where, f"{{{name}}}", one_of([*PLACEHOLDERS, *settings], name))


def _check_patterns(given: ProgramFile, path: Path) -> None:
    """Raise ConfigError unless reading `lines` has patterns whose groups are known, and one of them
    a step.
    """
    patterns = (given.lines,) if isinstance(given.lines, str) else given.lines
    if (given.reads == "lines") != bool(patterns):
        needs = (
            "is missing: patterns of the lines"
            if given.reads == "lines"
            else "belongs to reads: lines; leave out"
        )
        raise ConfigError(f"{path}: lines: {needs} that hold a step (reads: {given.reads})")
    steps = False
    for pattern in patterns:
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise complain(
                path, "lines", pattern, f"{error}; allowed: a regular expression of Python's re"
            ) from None
        for name in groups:
            if name not in GROUPS:
                raise complain(path, "lines", f"(?P<{name}>", one_of(GROUPS, name))
        if not groups:
            raise complain(path, "lines", pattern, f"it has no named group; {one_of(GROUPS)}")
        steps |= bool({*COUNTS} & {*groups}) or (
            given.steps_per_line is not None and "loss" in groups
        )
    if patterns and not steps:
        counts = ", ".join(f"(?P<{name}>...)" for name in COUNTS)
        raise complain(
            path, "lines", list(patterns), f"allowed: at least one pattern with one of {counts}"
        )


def _check_folder(folder: str, path: Path, project: Path) -> None:
    """Raise ConfigError unless the path is a folder below the project that no run changes."""
    place = project / folder
    below = (
        not Path(folder).is_absolute() and ".." not in Path(folder).parts and Path(folder) != Path()
    )
    if below and not place.exists():
        raise complain(
            path, "folder", folder, f"{project} has no such folder: fetch the program first"
        )
    if (
        not below
        or not place.is_dir()
        or (project / RESULTS).resolve().is_relative_to(place.resolve())
    ):
        raise complain(
            path, "folder", folder, f"allowed: a folder below {project}, without {RESULTS}/ in it"
        )


def _dated(data: Iterable[str], path: Path, project: Path) -> tuple[tuple[str, str], ...]:
    """Return what the program reads, each as it is named and with its digest or date. Raises
    ConfigError.
    """
    found = []
    for name in data:
        place = project / expand(name, path, "data")
        try:
            found.append((name, fingerprint(place)))
        except OSError as error:
            raise complain(
                path, "data", name, f"{error.strerror}; allowed: files and folders that are there"
            ) from None
    return tuple(found)


def fingerprint(place: Path) -> str:
    """Return what changes if a file or folder does: `digest ...` of names and contents; of more
    than MOST_BYTES or MOST_FILES `date ...`, of names, sizes and dates; of a folder with more than
    MOST_LISTED files, of what lies right in it. Raises OSError.
    """
    files = [place]
    if place.is_dir():
        files = [*islice((file for file in place.rglob("*") if file.is_file()), MOST_LISTED + 1)]
    if len(files) > MOST_LISTED:
        files = [*place.iterdir()]
        return f"date {_digest_of(files, place, contents=False)}"
    small = len(files) <= MOST_FILES and sum(file.stat().st_size for file in files) <= MOST_BYTES
    return f"{'digest' if small else 'date'} {_digest_of(files, place, contents=small)}"


def _digest_of(files: Iterable[Path], place: Path, contents: bool) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        about = file.stat()
        said = sha256(file) if contents else f"{about.st_size} {about.st_mtime_ns}"
        digest.update(os.fsencode(f"{file.relative_to(place)}\0{said}\0"))
    return digest.hexdigest()


def _digest(files: Iterable[str], path: Path, project: Path) -> str:
    """Return the SHA-256 over names and contents of the files, in the order of their names.

    Raises ConfigError.
    """
    digest = hashlib.sha256()
    for name in files:
        place = project / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not place.exists():
            raise complain(
                path, "files", name, f"allowed: files and folders that lie below {project}"
            )
        if (project / RESULTS).resolve().is_relative_to(place.resolve()):
            raise complain(
                path,
                "files",
                name,
                f"allowed: what no run changes, so nothing with {RESULTS}/ in it",
            )
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        inside = [
            file
            for file in inside
            if file.is_file() and not PASSED_OVER & {*file.relative_to(project).parts}
        ]
        if not inside:
            raise complain(path, "files", name, "allowed: a file, or a folder with files in it")
        for file in inside:
            try:
                digest.update(os.fsencode(f"{file.relative_to(project)}\0{sha256(file)}\0"))
            except OSError as error:
                unread = f"{file}: {error.strerror}; allowed: files that can be read"
                raise complain(path, "files", name, unread) from None
    return digest.hexdigest()


def reveal(program: Program, folder: Path = CONFIG / "programs") -> tuple[Program, list[str]]:
    """Return the program with its secrets, and the secrets: they are in no record, so they are read
    from its file. Raises ConfigError if the file has another command by now.
    """
    if HIDDEN not in f"{program.command} {program.resume}":
        return program, []
    path = folder / f"{program.name}.yaml"
    given = read_yaml(path)
    command, resume, names = (
        str(given.get("command")),
        given.get("resume"),
        given.get("secret") or [],
    )
    shown = [text and hide(text, names) for text in (command, resume)]
    if shown != [program.command, program.resume]:
        raise ConfigError(f"{path}: command: is another one by now; start the workflow again")
    words = [word for text in (command, resume) if text for word in secrets(text, names)]
    return replace(program, command=command, resume=resume), words
