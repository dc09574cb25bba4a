"""Record the steps of your own training for ddlbench. One file of Python's standard library: copy
it, or install it.

    from ddlbench_recorder import Recorder

    rec = Recorder()
    for batch in rec.batches(loader):
        ...
        rec.step(loss, samples=len(batch))
        if rec.stops():
            break  # after a checkpoint, which key `resume` of the program's file can go on from
    rec.evaluated(top1=0.76)

Without ddlbench, which sets DDLBENCH_RECORDER, all of this does nothing. No call but `stops` waits
for a GPU: where a loss is on one, its value and the step's times are read when the GPU has come so
far.
"""

import atexit
import json
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from pathlib import Path

__version__ = "0.1.0"
__all__ = ["Recorder"]

FOLDER = "DDLBENCH_RECORDER"
# A row: the step, when it began and ended [s since 1970], wait for data [s; NaN unknown], samples,
# loss, learning rate.
ROW = struct.Struct("<q6d")
NAN = float("nan")
HEARTBEAT_S = 5.0
GAP_S = 1e-3
WRITE_EVERY = 64  # steps; a thread writes what is left every HEARTBEAT_S
RING = 1024  # losses that may be on their way from a GPU


def _place(*names, default=0):
    """The first of these variables of launchers that is set, as a number."""
    return next(
        (int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default
    )


def _bytes(given):
    """Of tensors the bytes of their storages, each once; of a sharded tensor this rank's."""
    if isinstance(given, int):
        return given
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in given]
    return sum(
        {
            one.data_ptr(): one.nbytes() for one in (tensor.untyped_storage() for tensor in local)
        }.values()
    )


def _peaks():
    """Most memory of this process [bytes], by the names of ddlbench's columns."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peaks = {"peak_resident_bytes": int(lines["VmHWM"].split()[0]) * 1024}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        peaks["peak_device_memory_bytes"] = torch.cuda.max_memory_allocated()
        peaks["peak_device_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return peaks


def _together():
    """How many ranks train together by torch.distributed or Horovod in this process; None if
    neither says it.
    """
    group = getattr(sys.modules.get("torch"), "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return group.get_world_size()
    for name in ("horovod.torch", "horovod.tensorflow", "horovod.keras"):
        horovod = sys.modules.get(name)
        if horovod is not None and horovod.is_initialized():
            return horovod.size()
    return None


class Recorder:
    """The record of one rank's steps. `asked_to_stop` is True once ddlbench wants a checkpoint and
    the end; ranks see that at different steps, so ask `stops`, which they agree on.
    """

    def __init__(self):
        self.asked_to_stop = False
        self._folder = os.environ.get(FOLDER)
        if not self._folder:
            return
        self.rank = _place("RANK", "OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "SLURM_PROCID")
        world = _place(
            "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE", "SLURM_NTASKS", default=1
        )
        self._first = (
            _place(
                "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "SLURM_LOCALID"
            )
            == 0
        )
        self._rows = self._path("recorder-{}.steps").open("ab", buffering=0)
        self._step = self._rows.tell() // ROW.size  # it goes on where an interrupted run ended
        self._rows.truncate(self._step * ROW.size)
        self._taken = deque()  # steps whose GPU has not come so far
        self._done = []  # rows that are not written yet
        self._lock = threading.Lock()
        self._offset = time.time() - time.perf_counter()
        self._asked = self._there = None  # when the batch was asked for, and when it was there
        self._before = time.perf_counter()
        self._torch = self._ring = self._last = None
        self._device_s = 0.0  # when `_last` was, by our clock
        self._pid = os.getpid()
        self._met = False  # whether it was said how many ranks train together
        self._lost = False  # whether a loss was no finite number
        self._say(
            began_s=time.time(),
            world=world,
            host=socket.gethostname(),
            pid=self._pid,
            row=self._step,
        )
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGUSR1, self._stop)
        self._ended = threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()
        atexit.register(self._close)

    def batches(self, loader):
        """The loader's batches; what it takes to get each is its step's wait for data."""
        if not self._folder:
            yield from loader
            return
        self._ask()
        for batch in loader:
            self._there = time.perf_counter()
            if self._torch is not None:
                self._there_on_device = self._mark()
            yield batch
            self._ask()

    def _ask(self):
        """A batch is asked for. Where that is long after the last step, such as after a validation,
        a GPU marks it.
        """
        self._asked = time.perf_counter()
        if self._torch is not None and self._asked - self._before > GAP_S:
            self._asked_on_device = self._mark()

    def step(self, loss=None, samples=None, lr=None, step=None):
        """A step has ended. `loss` is a number or a tensor, `samples` are this rank's; `step`
        counts from 0 where a resumed run does not go on from the last step that it recorded.
        """
        if not self._folder:
            return
        now = time.perf_counter()
        if not self._met:
            self._met = True
            together = _together()
            if together is not None:
                self._say(together=together)
        if step is not None:
            self._step = step
        asked, there = self._asked, self._there
        begins = asked if asked is not None else self._before
        wait = there - asked if there is not None and asked is not None else NAN
        row = [
            self._step,
            begins,
            now,
            wait,
            NAN if samples is None else samples,
            NAN,
            NAN if lr is None else lr,
        ]
        self._step += 1
        self._before, self._asked, self._there = now, None, None
        if getattr(loss, "is_cuda", False):
            self._on_device(row, loss)
        else:
            if loss is not None:
                self._loss(row, loss.item() if hasattr(loss, "item") else float(loss))
            self._done.append(row)
        if self._step % WRITE_EVERY == 0:
            self._write()

    def stops(self, every=10):
        """Whether to stop: True on all ranks after the same step, once one was asked to. Call it
        after each step.

        Each `every` steps ranks agree by an all_reduce of torch.distributed, where the program has
        initialised it; ranks that meet by other means must agree on `asked_to_stop` themselves.
        """
        if not self._folder or self._step % every:
            return False
        torch = sys.modules.get("torch")
        if (
            torch is None
            or not torch.distributed.is_available()
            or not torch.distributed.is_initialized()
        ):
            return self.asked_to_stop
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        asked = torch.tensor(float(self.asked_to_stop), device=device)
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
        return bool(asked.item())

    def holds(self, parameters, gradients, optimizer):
        """What this rank holds of each, as tensors or as a number of bytes: call it once, after the
        second backward pass, when gradients and the optimizer's state are there.
        """
        if self._folder:
            given = {
                "parameters_bytes": parameters,
                "gradients_bytes": gradients,
                "optimizer_bytes": optimizer,
            }
            self._say(memory={name: _bytes(one) for name, one in given.items()})

    def evaluated(self, top1=None, loss=None):
        """A validation has ended: its top-1 accuracy as a fraction, its loss."""
        if self._folder:
            told = {"top1": top1, "loss": loss}
            told = {
                name: value.item() if hasattr(value, "item") else value
                for name, value in told.items()
            }
            self._say(evaluated=told, time_s=time.time(), step=self._step)

    def _on_device(self, row, loss):
        """A step whose loss is on a GPU: marks on its stream; nothing here waits for them."""
        if self._torch is None:
            self._torch = sys.modules["torch"]
            self._ring = self._torch.empty(RING, pin_memory=True)
            self._there_on_device = self._asked_on_device = None
            self._last, self._device_s, self._first_row = self._mark(), row[2], row
        place = self._step % RING
        if len(self._taken) >= RING:
            self._settle(
                wait=True
            )  # a GPU that is so far behind is waited for by its own queue anyway
        self._ring[place].copy_(loss.detach(), non_blocking=True)
        self._taken.append((row, self._asked_on_device, self._there_on_device, self._mark(), place))
        self._asked_on_device = self._there_on_device = None
        if len(self._taken) % 16 == 0:
            self._settle()

    def _loss(self, row, loss):
        """Keep a step's loss; the first that is no finite number is said, as no loss at all looks
        like one.
        """
        row[5] = loss
        if not self._lost and not math.isfinite(loss):
            self._lost = True
            self._say(not_finite={"step": row[0], "loss": str(loss)})

    def _mark(self):
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _settle(self, wait=False):
        """Read the times and losses of steps that their GPU has ended."""
        while self._taken and (wait or self._taken[0][3].query()):
            row, asked, there, end, place = self._taken.popleft()
            if wait:
                end.synchronize()
            row[2] = self._device_s + self._last.elapsed_time(end) / 1e3
            if row is not self._first_row:  # which began before the GPU was known
                row[1] = self._device_s + (
                    self._last.elapsed_time(asked) / 1e3 if asked is not None else 0.0
                )
            if there is not None:
                row[3] = (self._last if asked is None else asked).elapsed_time(there) / 1e3
            self._loss(row, self._ring[place].item())
            self._last, self._device_s = end, row[2]
            self._done.append(row)

    def _write(self):
        with self._lock:
            done, self._done = self._done, []
            if done and os.getpid() == self._pid:
                at = self._offset
                packed = [ROW.pack(row[0], row[1] + at, row[2] + at, *row[3:]) for row in done]
                self._rows.write(b"".join(packed))

    def _say(self, **about):
        with self._path("recorder-{}.jsonl").open("a") as file:
            file.write(json.dumps(about) + "\n")

    def _path(self, name):
        return Path(self._folder, name.format(self.rank))

    def _stop(self, number, frame):
        self.asked_to_stop = True
        if callable(self._former):
            self._former(number, frame)

    def _keep(self):
        """Show every few seconds that this process lives, and write what is there."""
        count = 0
        while True:
            count += 1
            try:
                if self._first:
                    with self._path("beat-{}").open("r+b" if count > 1 else "wb") as file:
                        file.write(b"%12d\n" % count)
                self._write()
            except OSError:
                pass  # it may come back; the last write says it if not
            if self._ended.wait(HEARTBEAT_S):
                return

    def _close(self):
        if os.getpid() != self._pid or self._ended.is_set():
            return
        self._ended.set()
        if self._taken:
            self._settle(wait=True)
        self._write()
        self._say(memory=_peaks())
        if not hasattr(sys, "last_type"):  # no exception ends this process
            self._path("ended-{}.json").touch()
