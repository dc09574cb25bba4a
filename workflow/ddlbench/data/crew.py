"""A crew of processes: `prepare` and `verify` hand them their work, one task at a time.

They are forked before anything is loaded, so that each stays small. What the process that forked
them has open is open in them too: a lock is theirs as well, until the last of them has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any

from ddlbench.core import living

GRACE_S = 5  # that a process of the crew has to end


class CrewError(RuntimeError):
    """The error that a crew could not begin, or that one of its processes was killed; one line."""


class Crew:
    """A pool of processes that share the work. Raises CrewError.

    Use it as `with Crew(4) as crew: for task, answer in crew.map(function, tasks): ...`
    """

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("fork")
        try:
            self.pool = ProcessPoolExecutor(
                count, context, initializer=_begin, initargs=(os.getpid(),)
            )
        except OSError as error:  # its locks are files in memory
            raise CrewError(
                f"/dev/shm: {error.strerror}; processes that share the work keep their locks there:"
                " remove what fills it, and start again"
            ) from None
        self.pool.submit(os.getpid)  # forks all of them
        self.processes = [*self.pool._processes.values()]

    def map(
        self, function: Callable[[Any], Any], tasks: Iterable[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """Yield (task, answer) of each task, in the order in which they are finished.

        Function, tasks and answers are pickled. Raises what `function` raised, or CrewError if a
        process was killed.
        """
        try:
            futures = {self.pool.submit(function, task): task for task in tasks}
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        except BrokenProcessPool:
            # The pool's thread waits for them too: who asks at that moment hears None. It ends the
            # others by SIGTERM.
            end = time.monotonic() + GRACE_S
            while any(p.exitcode is None for p in self.processes) and time.monotonic() < end:
                time.sleep(0.01)
            codes = sorted(
                p.exitcode for p in self.processes if p.exitcode not in (None, 0, -signal.SIGTERM)
            )
            code = codes[0] if codes else -signal.SIGTERM
            raise CrewError(
                f"one of the processes that share the work was killed (exit code {code})"
            ) from None

    def stop(self) -> None:
        """End all processes, now."""
        for process in self.processes:
            process.kill()  # SIGTERM could reach it before `_begin`, with our own handler
        for process in self.processes:
            process.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()
        thread, queue = (
            vars(self.pool)[name] for name in ("_executor_manager_thread", "_call_queue")
        )
        self.pool.shutdown(wait=False, cancel_futures=True)
        thread.join(GRACE_S)
        if thread.is_alive():
            # Python 3.11.2, Debian 12's, waits for ever while it writes to a pipe that no process
            # reads any more. With the pipe's end closed the write fails, and it ends.
            # https://github.com/python/cpython/issues/94777
            queue._reader.close()
            thread.join()


def _begin(family: int) -> None:
    """Prepare a process of the crew: ignore Ctrl-C, end by SIGTERM, and die with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends us
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # with SIGTERM, whatever it does itself when it hears that
    # Not at the end of a task, which can be minutes away: the next process may wait for our lock.
    living.die_with_parent()
    if os.getppid() != family:  # it died before that
        os._exit(1)
