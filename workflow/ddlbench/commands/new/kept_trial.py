"""The output of a trial, kept in `results/trials/<program>`: where only how it is read was changed,
it is read again, and the program does not run.

A trial that failed is not kept: what was mended may be anything.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ddlbench.core import layout
from ddlbench.core.files import hidden_name, write_json, write_text
from ddlbench.core.living import remove_left
from ddlbench.core.spec import RunSpec
from ddlbench.run.program import LINES
from ddlbench.run.readings import Line

NOTE = "trial.json"
MOST_BYTES = 64 << 20  # of a file that is kept: checkpoints are not read


@dataclass(frozen=True)
class Trial:
    """A trial: its folder, when it began [s since 1970], how it ended, and what it printed. `last`
    are the last lines, whatever they say; `again` tells that it was kept.
    """

    folder: Path
    began_s: float
    took_s: float
    how: str
    ended_well: bool
    lines: Sequence[Line]
    last: Sequence[str]
    again: bool = False


def digest(spec: RunSpec, command: Sequence[str], seconds: float) -> str:
    """Return what changes if a trial would be another one: the program's files and command, its
    batch and workers, the machine's variables, the time limit; not how it is read.
    """
    assert spec.program is not None
    plain = replace(spec.program, sample="samples", stop_after=None, resume=None)
    text = json.dumps([replace(spec, program=plain).to_json(), [*command], seconds])
    return hashlib.sha256(text.encode()).hexdigest()


def of(name: str, of_what: str, run: Callable[[Path], Trial]) -> Trial:
    """Return the trial of this program and digest: the one that was kept, or what `run` does in an
    empty folder.
    """
    place = Path(layout.trial(name)).resolve()
    kept = _read(place, of_what)
    if kept is not None:
        return kept
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_left(place.parent)
    with TemporaryDirectory(dir=place.parent, prefix=hidden_name("trial-")) as aside:
        new = Path(aside) / name
        new.mkdir()
        made = run(new)
        _without_large(new)
        if place.exists():
            place.rename(Path(aside) / "before")
        new.rename(place)
    if made.ended_well:
        write_text(place / LINES, "".join(f"{json.dumps(line)}\n" for line in made.lines))
        about = {"of": of_what, "began_s": made.began_s, "took_s": made.took_s, "how": made.how}
        write_json(place / NOTE, about | {"last": [*made.last]})
    return replace(made, folder=place)


def remark(trial: Trial) -> str:
    """Return what to say of a trial that was kept."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(trial.began_s))
    here = Path(layout.trial(trial.folder.name))
    return f"read again from the trial of {began}; to run the program anew: rm -r {here}"


def _read(place: Path, of_what: str) -> Trial | None:
    """Return the trial that was kept; None without one, or if it is of something else."""
    try:
        about = json.loads((place / NOTE).read_text(encoding="utf-8"))
        if about["of"] != of_what:
            return None
        text = (place / LINES).read_text(encoding="utf-8")
        lines = [Line(*json.loads(line)) for line in text.splitlines()]
        times = float(about["began_s"]), float(about["took_s"])
        return Trial(place, *times, str(about["how"]), True, lines, [*about["last"]], True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _without_large(folder: Path) -> None:
    for path in [*folder.rglob("*")]:
        if path.is_file() and not path.is_symlink() and path.stat().st_size > MOST_BYTES:
            path.unlink()
