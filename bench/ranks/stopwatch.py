"""What every side of `overhead.py` and `trainers.py` is measured with: a rank's wall and CPU time
of each epoch.

Sides take turns: a rank begins an epoch when that of the side before it has come to the end of all
that belongs to its own (validation too), and has no more to do than to wait. `sides.py` made the
pipes.
"""

import json
import os
import random
import resource
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddlbench.core import living
from ddlbench.train import place

LOOK_S = 2.0  # between looks at whether the benchmark is still there


class Stopwatch:
    """Seconds of the training part of one rank's epochs; make it before the first step.

    Where a program's memory happens to lie makes it some percent faster or slower, the same in each
    start. So each start gets blocks and holes of random sizes in its heap (Mytkowicz et al. 2009,
    doi:10.1145/1508244.1508275).
    """

    def __init__(self) -> None:
        blocks = [bytearray(random.randrange(64, 1 << 20)) for _ in range(64)]
        self._filler = blocks[::2]
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        side, sides = int(os.environ["BENCH_SIDE"]), int(os.environ["BENCH_SIDES"])
        self._mine, self._next = (_pipe(number) for number in (side, (side + 1) % sides))

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Around the training part of an epoch: all that is done from asking for its first batch
        on.
        """
        if self.wall_s:
            os.write(self._next, b"!")
        self._wait()
        wall, cpu = time.perf_counter(), cpu_s()
        yield
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(cpu_s() - cpu)

    def _wait(self) -> None:
        """Wait until it is this side's turn. Once the benchmark has ended, however that was, this
        process ends too: the turn of the others may never come to an end.
        """
        its_turn = False
        while not its_turn:
            its_turn = bool(select.select([self._mine], [], [], LOOK_S)[0])
            if living.state(int(os.environ["BENCH_PID"])) is None:
                os._exit(1)
        os.read(self._mine, 1)

    def write(self, folder: str | Path, rank: int, images: int, loss: float | None = None) -> None:
        """For `sides.py`. `images`: of this rank, an epoch; `loss`: of the last step or epoch, as
        the sides agree.

        Return when all sides have trained their last epoch: a process that ends takes CPU time from
        those that still train.
        """
        os.write(self._next, b"!")
        self._wait()
        os.write(self._next, b"!")
        result = {"wall_s": self.wall_s, "cpu_s": self.cpu_s, "images": images, "loss": loss}
        (Path(folder) / f"timed-{rank}.json").write_text(json.dumps(result), encoding="utf-8")


def _pipe(side: int) -> int:
    return os.open(Path(os.environ["BENCH_TURNS"], f"{side}-{rank()}"), os.O_RDWR)


def cpu_s() -> float:
    """CPU time of this process, its living child processes and those that ended, all threads of
    them [s].
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread or a child has just ended
            for pid in children.read_text().split():
                total += time.clock_gettime(cpu_clock(int(pid)))
    return total


def cpu_clock(pid: int) -> int:
    """The clock that counts a process's CPU time to the ns, as clock_getcpuclockid(3) gives it on
    Linux; psutil and /proc count in hundredths of a second.
    """
    return ~pid << 3 | 2


def rank() -> int:
    """This process's, from its launcher's variables."""
    return place.rank_number()
