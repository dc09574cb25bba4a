"""A program's file to begin with: what its --help and its source say, and `SET` where only a person
knows.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ddlbench.commands.new import checked, filled, free
from ddlbench.core import living
from ddlbench.core.files import printable
from ddlbench.core.program import Program
from ddlbench.run import work
from ddlbench.run.rank import surroundings
from ddlbench.settings.config import ConfigError
from ddlbench.settings.own_models import sources_of
from ddlbench.settings.program import SET, load_program

HELP_S = 60.0
MOST_WRITTEN = (
    1 << 26
)  # bytes in any one file: a program that does not know --help may begin to train
MOST_READ = 1 << 20
# What options are often called that are for a value of the run; the first that the program has is
# taken.
USUAL = {
    "batch_per_worker": (
        "micro_batch_size per_device_train_batch_size batch_size_per_gpu batch_per_worker "
        "train_batch_size batch_size batch bs bsz"
    ),
    "seed": "seed random_seed manual_seed",
    "folder": (
        "output_dir out_dir output out save_dir work_dir workdir logdir log_dir checkpoint_dir"
        " default_root_dir"
    ),
}
AXES = [
    "precision",
    "dtype",
    "amp_dtype",
    "framework",
    "strategy",
]  # whose choices may be a study's question
RESUME = ["resume", "resume_from", "resume_from_checkpoint"]
TOGETHER = r"WORLD_SIZE|distributed|Trainer\b|accelerate|deepspeed|horovod|fabric"
READS = (  # what stands in a source -> how its steps can be read
    (r"\bddlbench_recorder\b", "recorder"),
    (r"\bmlperf_logging\b", "mllog"),
    (r"\btransformers\b[\s\S]*\bTrainer\b", "trainer"),
)


@dataclass(frozen=True)
class Help:
    """The content of --help: options in its order, with their choices; what must be given; why it
    said nothing, if so, and what could be done then.
    """

    options: dict[str, list[str]]
    required: list[str]
    problem: str | None = None
    hint: str | None = None

    def named(self, names: list[str]) -> str | None:
        """Return the first of these names that is an option, as it is written; what stands before a
        dot does not matter.
        """
        plain = {
            o.lstrip("-").replace("-", "_").split(".")[-1].lower(): o for o in [*self.options][::-1]
        }
        return next((plain[name] for name in names if name in plain), None)


def write(given: str, name: str | None, environment: str | None, config: Path) -> tuple[Path, Help]:
    """Write config/programs/<name>.yaml. Return it, and what --help said.

    Raises ConfigError, of one line.
    """
    script = Path(os.path.relpath(given))
    if not script.is_file():
        raise ConfigError(
            f"{given}: is not a file; allowed: the file that trains, such as train.py"
        )
    if ".." in script.parts:
        raise ConfigError(f"{given}: lies outside {Path.cwd()}; move it there, or link its folder")
    if script.suffix != ".py" and not os.access(script, os.X_OK):
        raise ConfigError(f"{given}: is not a Python file and cannot be executed (chmod +x)")
    name = name or name_of(given)
    path = free(config / "programs" / f"{name}.yaml", name)
    home = home_of(script)
    inside = script.relative_to(home)
    start = ["python", str(inside)] if script.suffix == ".py" else [f"./{inside}"]
    page = ask(start, environment, home)
    made = text(script, home, start, page, environment)
    return checked(path, made, lambda: load_program(name, path.parent, draft=True)), page


def name_of(script: str) -> str:
    """Return a program's name in config/programs: its file's name, without its suffix, in letters
    that are allowed.
    """
    return (
        re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"\.(py|sh|yaml)$", "", Path(script).name)).strip(
            "-."
        )
        or "program"
    )


def home_of(script: Path) -> Path:
    """Return the folder that a program runs in, as people run it: the clone that it lies in, else
    its own folder; the project's folder of a script that lies there.
    """
    folders = [folder for folder in script.parents if folder != Path()]
    clones = [folder for folder in folders if (folder / ".git").exists()]
    return [*clones, *folders, Path()][0]


def ask(start: list[str], environment: str | None, home: Path) -> Help:
    """What the program says to --help, in a folder of its own, with links to what lies in the
    folder that it runs in where that is not the project's; it and all that it started are ended
    after HELP_S.
    """
    start = [str((home / word).absolute()) if (home / word).is_file() else word for word in start]
    bare = Program(name="", command="", environment=environment)
    argv, variables = surroundings(bare, [*start, "--help"], os.environ | {"PATH": search_path()})
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as printed,
        living.ending_descendants(),
    ):
        if home != Path():
            work.lay_out(home, Path(folder))
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN)
            ),
        )
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(HELP_S)
        printed.seek(0)
        text = printed.read(MOST_READ).decode(errors="replace")
    read = understood(text.replace(Path(start[-1]).name, "program"))
    if read.options and code is not None:  # absl's ends with code 1
        return read
    last = next(
        (printable(line)[:200] for line in reversed(text.splitlines()) if line.strip()), "nothing"
    )
    how = (
        f"had not ended after {HELP_S:.0f} s"
        if code is None
        else f"ended with code {code} and named no options"
    )
    problem = f"{how}; it printed last: {last}"
    return replace(read, problem=problem, hint=_hint(text, code, environment, home))


def _hint(text: str, code: int | None, environment: str | None, home: Path) -> str | None:
    """Return what could be done for a --help that names no options; None where its own error is
    all that is known.
    """
    module = lacked(text.splitlines())
    if code and module:
        return without(module, environment, home)
    if code is None:
        return "It may have begun to train: write the options that it takes into key command"
    return None if code else "Write the options that it takes, if any, into key command"


def lacked(texts: Iterable[str]) -> str | None:
    """Return the module that was not found, where this is the last error that was printed."""
    errors = (re.match(r"\s*(\w+(?:Error|Exception))\b(.*)", text) for text in texts)
    last = next(iter([error for error in errors if error][::-1]), None)
    if last is None or last[1] not in ("ModuleNotFoundError", "ImportError"):
        return None
    found = re.search(r"No module named '?([\w.]+)", last[2])
    return found[1] if found else None


def without(module: str, environment: str | tuple[str, ...] | None, home: Path) -> str:
    """Return what could be done for a program whose module is not found."""
    top = module.split(".")[0]
    for place in (*home.glob(f"*/{top}.py"), *home.glob(f"*/{top}/__init__.py")):
        folder = (place.parent if place.stem == top else place.parents[1]).relative_to(home)
        return f"{place} is module {top}: begin key command with env PYTHONPATH={folder}"
    named = [environment] if isinstance(environment, str) else [*(environment or ())]
    where = f"environment {', '.join(named)}" if named else "this Python"
    return (
        f"{where} has no module {top}; name another one that has it: key environment (option"
        " --environment), a folder with bin/python in it"
    )


def search_path() -> str:
    """Return PATH with this Python's folder in front, as in an environment that is activated."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def understood(text: str) -> Help:
    """Parse options and what must be given from a help text as argparse, click and absl write
    it.
    """
    options: dict[str, list[str]] = {}
    required = []
    for line in text.splitlines():
        if not (entry := line.strip()).startswith("-"):
            continue
        head = re.split(r"\s{2,}|: (?!<)", entry)[0]
        choices = re.search(r"[{<\[]([^\s{}<>\[\]]+[,|][^\s{}<>\[\]]+)[}>\]]", head)
        for option in re.findall(r"(?<![\w-])--[A-Za-z][\w.-]*", head):
            options.setdefault(option, re.split(r"[,|]", choices[1]) if choices else [])
            if "[required]" in entry:  # click's
                required.append(option)
    usage = re.search(r"^\s*usage: *\S+(.*(?:\n +.*)*)", text, re.I | re.M)
    syntax = (
        re.sub(r"\(([^()|]*)\|[^()]*\)", r"\1", usage[1]) if usage else ""
    )  # one of several: the first
    while syntax != (syntax := re.sub(r"\[[^\[\]]*\]", " ", syntax)):
        pass
    words = re.sub(r"\{[^}]*\}", "CHOICE", syntax).split()
    options_then_values = zip(words, ["", *words], strict=False)
    required += [
        word
        for word, before in options_then_values
        if word.startswith("-") or not before.startswith("-")
    ]
    return Help(
        options, [*dict.fromkeys(word for word in required if word not in ("...", "flags"))]
    )


def text(script: Path, home: Path, start: list[str], page: Help, environment: str | None) -> str:
    """Return the text of the file, by `program.yaml.jinja`."""
    command = [shlex.quote(word).replace("{", "{{").replace("}", "}}") for word in start]
    options = {value: page.named(names.split()) for value, names in USUAL.items()}
    needs = [need for need in page.required if need not in options.values()]
    command += [f"{need} {SET}" if need.startswith("-") else SET for need in needs]
    command += [f"{option} {{{value}}}" for value, option in options.items() if option]
    try:
        files = [
            str(script.parent / path) for path, _ in sources_of(script.parent, script.stem)
        ] or [str(script)]
    except ConfigError:
        files = [str(script)]
    source = script.read_text(encoding="utf-8", errors="replace")
    axes = {
        name: option for name in AXES if (option := page.named([name])) and page.options[option]
    }
    return filled(
        "program",
        script=script,
        problem=page.problem,
        batch=options["batch_per_worker"],
        seed=options["seed"],
        alone=not re.search(TOGETHER, source),
        command=_yaml(command=" ".join(command)),
        files=_yaml(files=files),
        ranks="own" if re.search(r"\b(mp|multiprocessing)\.spawn\(", source) else "each",
        reads=next((way for pattern, way in READS if re.search(pattern, source)), "lines"),
        environment=environment and _yaml(environment=environment),
        folder=None if home == Path() else _yaml(folder=str(home)),
        axes=[f"{name}: [{', '.join(page.options[option])}]" for name, option in axes.items()],
        words=[f"{option} {{{name}}}" for name, option in axes.items()],
        resume=page.named(RESUME),
    )


def _yaml(**entry: object) -> str:
    flow = None if any(isinstance(value, list) for value in entry.values()) else False
    return yaml.safe_dump(entry, default_flow_style=flow, allow_unicode=True, width=110).rstrip()
