"""What ended a rank, in words that tables can count: the one that failed, or those that only lost it."""

import re
from pathlib import Path

import pytest
from ddlbench.core import notes
from ddlbench.run.watch import WatchResult, diagnose


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (notes.LossError("the loss of step 3 is nan", 3), "loss is not finite"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (OSError(28, "No space left on device"), "disk full"),
        (RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1234"), "lost another rank"),
        # torchrun ends all processes of the other ranks, and a rank in its backward pass hears of its loader's first.
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated. "), "lost another rank"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "exception"),
        (SystemExit("ended by its launcher (SIGTERM)"), "lost another rank"),
        (ValueError("no such thing"), "exception"),
    ],
)
def test_cause(error: BaseException, cause: str) -> None:
    assert notes.cause(error) == cause


def test_what_comes_of_a_full_disk_is_its_cause() -> None:
    """PyTorch's writer says something else when the file under it cannot be written."""
    with pytest.raises(RuntimeError) as caught:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598") from error
    assert notes.cause(caught.value) == "disk full"


GLOO = RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 120000ms for recv operation")
HOROVOD = RuntimeError("Horovod has been shut down. This was caused by an exception on one of the ranks")
# One line of PyTorch's of each rank that waited, which it then aborts.
NCCL = "[rank{0}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: W"
ABORTED = "\nsrun: error: node1: tasks 0,2: Aborted\n"


@pytest.mark.parametrize(
    ("failed", "said", "absent"),
    [
        ({0: GLOO, 2: GLOO}, "", "rank 1 did"),
        ({2: GLOO}, "", "ranks 0, 1 did"),
        ({0: GLOO, 1: GLOO, 2: GLOO}, "", "all ranks waited for each other"),
        ({0: TimeoutError("timed out waiting 120 s for other ranks"), 2: HOROVOD}, "", "rank 1 did"),
        ({}, NCCL.format(0) + "\n" + NCCL.format(2), "rank 1 did"),
        ({}, NCCL.format(0) + "\n" + NCCL.format(2) + ABORTED, "rank 1 did"),
        # Reasons of their own come first.
        ({0: HOROVOD, 2: HOROVOD}, "", None),
        ({0: GLOO, 1: ValueError("no such thing"), 2: GLOO}, "", None),
        ({0: GLOO, 2: GLOO}, "srun: error: Node failure on node2\n", None),
    ],
)
def test_who_did_not_come_to_a_collective(
    tmp_path: Path, failed: dict[int, Exception], said: str, absent: str | None
) -> None:
    for rank, error in failed.items():
        notes.report(tmp_path, rank, error)
    told = diagnose(tmp_path, 3, WatchResult(code=1, printed=said, gone=[0, 2] if not failed else []))
    hung = " for as long as ranks wait (start_patience_s in the machine's file)"
    assert (hung in told["message"]) == (absent is not None)
    if absent:
        assert told["message"].startswith(absent) and told["cause"] == "stopped answering"
        assert told["rank"] == next(iter(map(int, re.findall(r"\d", absent))), None)
