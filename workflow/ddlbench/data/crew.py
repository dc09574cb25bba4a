"""A crew of processes: `prepare` and `verify` hand them their work, one task at a time.

They are forked before anything is loaded, so that each stays small. What the process that forked them has open is open
in them too: a lock is theirs as well, until the last of them has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from ddlbench.core import living

GRACE_S = 5  # that a process of the crew has to end


class CrewError(RuntimeError):
    """A process of the crew was killed; one line."""


class Crew:
    """`with Crew(4) as crew: for task, answer in crew.map(function, tasks): ...`"""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self.ends: list[Connection] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            self.ends.append(ours)
            process = context.Process(target=_work, args=(theirs, list(self.ends), os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """(task, answer) of each task, in the order in which they are done.

        Function, tasks and answers are pickled. Raises what `function` raised, or CrewError if a process was killed.
        """
        pickled = pickle.dumps(function)
        for end in self.ends:
            self._send(end, pickled)
        waiting, idle = iter(tasks), list(self.ends)
        busy: dict[Connection, Any] = {}
        while True:
            while idle and (task := next(waiting, None)) is not None:
                end = idle.pop()
                self._send(end, pickle.dumps(task))
                busy[end] = task
            if not busy:
                return
            ready = wait(list(busy))
            for end in [end for end in busy if end in ready]:
                try:
                    answer = end.recv()
                except (EOFError, ConnectionResetError):  # the latter if it had not read its task yet
                    raise self._killed(end) from None
                if isinstance(answer, Exception):
                    raise answer
                task = busy.pop(end)
                idle.append(end)
                yield task, answer

    def _send(self, end: Connection, pickled: bytes) -> None:
        try:
            end.send_bytes(pickled)  # what Connection.send does after pickling
        except BrokenPipeError:
            raise self._killed(end) from None

    def _killed(self, end: Connection) -> CrewError:
        process = self.processes[self.ends.index(end)]
        process.join()
        return CrewError(f"one of the processes that share the work was killed (exit code {process.exitcode})")

    def stop(self) -> None:
        """End all processes, now."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(GRACE_S)
            if process.is_alive():  # it was told before it could listen
                process.kill()
                process.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        for end in self.ends:
            end.close()


def _work(parent: Connection, others: list[Connection], family: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # with SIGTERM, whatever it does itself when it hears that
    for end in others:  # or nobody would see that the parent has died
        end.close()
    # Not at the end of a task, which can be minutes away: the next process may wait for our lock.
    living.die_with_parent()
    if os.getppid() != family:  # it died before that
        return
    try:
        function = pickle.loads(parent.recv_bytes())
        while True:
            task = parent.recv()
            try:
                answer = function(task)
            except Exception as error:
                error.add_note(traceback.format_exc())
                answer = error
            parent.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone or has no more to do
