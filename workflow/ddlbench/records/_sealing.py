"""Records of version 0.1.0, which wrote no seal: each is checked as tables check it, and sealed as it is.

    ddlbench seal results/runs

A change that was made to a record before it is sealed is found only where its values cannot be true, its own digests or
those of `summary.jsonl` differ. Nothing is trained, and no job of inference is made again: a log keeps its time. The
steps get a new one, so that tables are made of the record the next time.
"""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddlbench.analysis.refusals import RefusedError
from ddlbench.core.files import sha256
from ddlbench.core.plural import count_of
from ddlbench.core.record import MLLOG, STEPS, seal, sealed
from ddlbench.records.ours import SUMMARY, find, record


def seal_before(folder: Path) -> bool:
    """Seal a run's record if it has no seal; False if it has one. Raises RefusedError if it cannot be true, OSError."""
    log = folder / MLLOG
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # `record` says what is wrong with its seal
        if sealed(log) is not None:
            return False
    if not record(folder, before=True).success:
        raise RefusedError(log, "has no end: its run did not end well")
    digests: dict[str, str] = {}
    with suppress(OSError, ValueError, KeyError, TypeError):  # no summary
        head = json.loads((folder / SUMMARY).read_text(encoding="utf-8").splitlines()[0])
        digests = {name: about[2] for name, about in head["files"].items() if about}
    for name, digest in digests.items():
        if sha256(folder / name) != digest:
            raise RefusedError(folder / name, f"is another one than {SUMMARY} was made of: it was changed")
    status = log.stat()
    seal(folder)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(folder / STEPS)
    return True


def main(folders: Sequence[Path]) -> None:
    """Seal all records in these folders, each a run's or a folder of runs; exits with 1 if one cannot be sealed."""
    runs = [run for folder in folders for run in ([folder] if (folder / MLLOG).exists() else find(folder))]
    done, bad = 0, []
    for run in runs:
        try:
            done += seal_before(run)
        except (RefusedError, OSError) as error:
            bad.append(str(error))
    print(f"{count_of(done, 'record')} sealed, {len(runs) - done - len(bad)} had a seal, {len(bad)} refused")
    if bad or not runs:
        print(*bad or [f"no record in {', '.join(map(str, folders))}"], sep="\n", file=sys.stderr)
        sys.exit(1)
