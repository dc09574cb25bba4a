"""What ended a rank, in words that tables can count: the one that failed, or those that only lost it."""

from __future__ import annotations

import pytest
from ddlbench import notes


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
