"""The seal of a record: the last line of its log, by which one sees whether anything was changed
since.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ddlbench.core.files import aside, read_bytes, sha256
from ddlbench.core.mllog import SEAL, events
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import EXTRAS, MLLOG, STEPS

UNSEALED = "0" * 64  # stands in the seal while its SHA-256 is computed


def seal(folder: Path) -> None:
    """Add the last line to a record's log: the SHA-256 of each file beside it, and that of the log.

    The log's SHA-256 covers this line too: it is computed with UNSEALED in its own place, and then
    put there. All is written to a temporary file, forced to the disk, that replaces the log. Raises
    OSError.
    """
    files = [path for pattern in (STEPS, *EXTRAS) for path in sorted(folder.glob(pattern))]
    with aside(folder / MLLOG, through=True) as temporary:
        temporary.write_bytes((folder / MLLOG).read_bytes())
        log = RankLog(folder, 0, name=temporary.name)
        log.event(
            "ddlbench_seal",
            {"files": {path.name: sha256(path) for path in files}, "sha256": UNSEALED},
        )
        data = temporary.read_bytes()
        before, _, after = data.rpartition(UNSEALED.encode())
        temporary.write_bytes(before + hashlib.sha256(data).hexdigest().encode() + after)


def sealed(log: Path) -> dict[str, str] | None:
    """Return the SHA-256 of the files beside a log, by name, from the log's seal; None if its last
    line is not a seal.

    Raises ValueError if the log is not the one that was sealed.
    """
    data = read_bytes(log)
    last = next(events([data[data.rfind(b"\n", 0, -1) + 1 :].decode(errors="replace")]), None)
    if last is None or last.key != SEAL or data[-1:] != b"\n":
        return None
    files, digest = last.value["files"], last.value["sha256"].encode()
    before, _, after = data.rpartition(digest)
    if hashlib.sha256(before + UNSEALED.encode() + after).hexdigest().encode() != digest:
        raise ValueError("was changed after its run ended: its seal, a checksum, does not match")
    return dict(files)
