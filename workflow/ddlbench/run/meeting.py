"""Where ranks meet: whether a process listens at the port of the rendezvous, and how many
connections it has.

torch.distributed's ranks meet at MASTER_PORT on the first rank's host, and stay connected for as
long as they train. Ranks that train each for itself never listen there. The kernel's list of
connections shows it, without a question to the program.
"""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddlbench.core.files import write_json

NOTE = "meeting.json"
LISTS = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENS, CONNECTED = "0A", "01"  # states of the kernel's list
SOON_S, LATER_S = 0.2, 5.0  # between looks, in the first minute and after it
SOON_FOR_S = 60.0


@dataclass(frozen=True)
class Met:
    """The observation of the rendezvous port: whether a process listened, and the maximum number of
    its connections. None where the port was not observed: ranks that the program starts itself may
    meet anywhere.
    """

    listened: bool | None = None
    joined: int = 0


def look(port: int) -> Met:
    """Return the kernel's information about a port of this host."""
    listened, joined = False, 0
    for name in LISTS:
        with suppress(OSError):
            for line in Path(name).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if int(local.rpartition(":")[2], 16) == port:
                    listened |= state == LISTENS
                    joined += state == CONNECTED
    return Met(listened, joined)


class Meeting:
    """A watch on a port: it looks now and then, and keeps the most that was seen in a note of
    `folder`.
    """

    def __init__(self, folder: Path, port: int, workers: int) -> None:
        self.folder, self.port, self.workers = folder, port, workers
        self.seen = Met(listened=False)
        self._began = self._next = time.monotonic()
        self._keep()

    @property
    def complete(self) -> bool:
        """Tell whether all ranks were seen, so that nobody need look again."""
        return self.seen.joined >= self.workers

    def watch(self) -> None:
        """Look at the port, if it is time to."""
        now = time.monotonic()
        if self.complete or now < self._next:
            return
        self._next = now + (SOON_S if now - self._began < SOON_FOR_S else LATER_S)
        found = look(self.port)
        most = Met(bool(self.seen.listened or found.listened), max(self.seen.joined, found.joined))
        if most != self.seen:
            self.seen = most
            self._keep()

    def _keep(self) -> None:
        with suppress(OSError):  # a full disk: nobody knows then
            write_json(
                self.folder / NOTE, {"listened": self.seen.listened, "joined": self.seen.joined}
            )


def read(folder: Path) -> Met:
    """Return what was seen of a run in its folder."""
    try:
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        return Met(note["listened"], int(note["joined"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Met()
