"""One rank of a user's program: say who it is, set the variables that torchrun sets, and become the
program.

    python -m ddlbench.run.rank FOLDER             one rank, whose place its launcher says (srun), or the only process
    python -m ddlbench.run.rank --start N FOLDER   N ranks on this machine, which end together

`run/program.py` leaves what it needs to know in FOLDER.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path

from ddlbench import patches
from ddlbench.core import living, notes
from ddlbench.core.files import write_json
from ddlbench.core.program import OWN, PLACEHOLDERS, WORK, Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import local
from ddlbench.run.meeting import SOON_S, Meeting
from ddlbench.settings.config import ConfigError, expand
from ddlbench.settings.program import reveal
from ddlbench.slurm import step
from ddlbench.train import place

ASSIGNMENT = "program.json"
FOLDER = "program"  # within the run's folder: for what the program writes
ASKED = "asked"  # that SLURM asked the ranks to stop
RECORDER = "DDLBENCH_RECORDER"  # tells `ddlbench_recorder` where to write
HOOKS = (
    Path(patches.__file__).resolve().parent / "for_programs"
)  # what Python runs before a program
POLL_S = 0.1
DRAIN_S = 2.0
MOST_LINE = 1 << 16  # bytes
MOST_HELD_S = 0.01  # a line that ends later than it came says when it came
_writing = threading.Lock()


def start(partial: Path, workers: int) -> int:
    """Start all ranks on this machine and wait for them; the first that fails ends the others.
    Returns its code.
    """
    with local.reserved_port() as port:
        return _start(partial, workers, port)


def _start(partial: Path, workers: int, port: int) -> int:
    argv = [sys.executable, "-m", "ddlbench.run.rank", str(partial)]
    ranks = [
        subprocess.Popen(
            argv,
            env=os.environ | local.place(rank, workers, port),
            preexec_fn=living.die_with_parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(workers)
    ]
    copies = [
        threading.Thread(target=_label, args=named, daemon=True) for named in enumerate(ranks)
    ]
    for copy in copies:
        copy.start()
    meeting = Meeting(partial, port, workers)
    while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
        meeting.watch()
        time.sleep(POLL_S)
    for rank in ranks:
        rank.kill()
    for copy in copies:
        copy.join(DRAIN_S)  # a process that it left behind may still hold the other end
    failed = next(((rank, code) for rank, code in enumerate(codes) if code), None)
    if failed is None:
        return 0
    rank_failed, code = failed
    note = partial / f"failure-{rank_failed}.json"
    if not note.exists():
        how = (
            ("killed", f"by {signal.Signals(-code).name}")
            if code < 0
            else ("exited", f"with exit code {code}")
        )
        write_json(note, {"cause": how[0], "message": how[1], "time": time.time(), "step": None})
    return code if code > 0 else 128 - code


def _label(rank: int, process: subprocess.Popen[bytes]) -> None:
    """Copy what a rank prints, each line with its rank before it, as `srun --label` does.

    A bar's line ends when its next update begins, and may not be copied before: other ranks print
    into the same pipe. So its label also has the time when it came.
    """
    assert process.stdout is not None
    rest, rest_s, label = b"", 0.0, b"%d: " % rank
    while piece := os.read(process.stdout.fileno(), 1 << 16):
        now_s = time.time()
        held = rest and piece[:1] in b"\r\n\b" and now_s - rest_s > MOST_HELD_S
        labels = chain([_dated(rank, rest_s) if held else label], repeat(label))
        *lines, rest = re.split(rb"[\r\n\b]", rest + piece)
        rest, rest_s = rest[-MOST_LINE:], now_s
        pairs = zip(labels, lines, strict=False)
        _write(b"".join(before + line[:MOST_LINE] + b"\n" for before, line in pairs))
    _write(_dated(rank, rest_s) + rest + b"\n" if rest else b"")


def _dated(rank: int, at_s: float) -> bytes:
    """Return the label of a line that came at this time [s since 1970]."""
    return b"%d@%.3f: " % (rank, at_s)


def _write(data: bytes) -> None:
    with _writing:  # complete lines
        while data:
            data = data[os.write(1, data) :]


def become(partial: Path) -> None:
    """Turn this process into the program. Leaves a note if it cannot be started."""
    task = json.loads((partial / ASSIGNMENT).read_text(encoding="utf-8"))
    spec = RunSpec.from_json(json.dumps(task["spec"]))
    program = spec.program
    assert program is not None
    alone = program.ranks == OWN
    who = place.Rank(0, 1, 0) if alone else place.own_rank(spec.workers)
    notes.introduce(partial, who.rank, who.local_rank)
    values = {name: getattr(spec, name) for name in PLACEHOLDERS if name != "folder"}
    recorded = partial.resolve()
    values["folder"] = recorded / FOLDER
    try:
        argv = reveal(program)[0].argv(values, task["resumes"])
    except ConfigError as error:
        notes.report(partial, who.rank, error)
        sys.exit(str(error))
    if step.TASK in os.environ and who.rank == 0 and not alone:
        _listen(partial, Meeting(partial, int(os.environ["MASTER_PORT"]), spec.workers))
    try:
        argv, variables = surroundings(program, argv, os.environ)
        if program.folder is not None:
            os.chdir(partial / WORK)
        os.execvpe(argv[0], argv, {**variables, RECORDER: str(recorded), "PYTHONUNBUFFERED": "1"})
    except OSError as error:
        wrong = OSError(error.errno, f"the command cannot be started: {error.strerror}", argv[0])
        notes.report(partial, who.rank, wrong)
        sys.exit(f"{argv[0]}: {wrong.strerror}")


def _listen(partial: Path, meeting: Meeting) -> None:
    """Fork a process that leaves a note when SLURM asks to stop, looks whether ranks meet, and ends
    with the program. SLURM's warning before a limit reaches every process of its step, and not the
    supervisor. A program that obeys it ends well, long before its last step.
    """
    if os.fork():
        return
    living.die_with_parent()
    signal.signal(signal.SIGUSR1, lambda *_: (partial / ASKED).touch())
    for number in range(3):
        os.close(number)
    while not meeting.complete:
        meeting.watch()
        time.sleep(SOON_S)
    while True:
        signal.pause()


def surroundings(
    program: Program, argv: list[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the program's words and variables in its own environment; those of ddlbench's Python
    do not reach another. In ddlbench's own, torchvision can be imported (`patches/for_programs`).
    """
    if not program.environment:
        paths = [str(HOOKS), *filter(None, [variables.get("PYTHONPATH")])]
        return argv, {**variables, "PYTHONPATH": os.pathsep.join(paths)}
    others = {
        name: value for name, value in variables.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    if isinstance(program.environment, tuple):
        modules = shlex.join(["module", "load", *program.environment])
        return ["bash", "-lc", f'{modules} && exec "$@"', "bash", *argv], others
    place = Path(
        expand(program.environment, f"config/programs/{program.name}.yaml", "environment")
    ).resolve()
    path = f"{place / 'bin'}{os.pathsep}{others.get('PATH', os.defpath)}"
    return argv, {**others, "VIRTUAL_ENV": str(place), "PATH": path}


def main() -> None:
    *words, folder = sys.argv[1:]
    if words:
        sys.exit(start(Path(folder), int(words[1])))
    become(Path(folder))


if __name__ == "__main__":
    main()
