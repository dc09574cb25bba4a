"""How batches come to a GPU, with streams and events that only note what is asked of them."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.train.loaders import _stream


class Pretended:
    """CUDA with two streams, `main` and `side`. What happens is in `told`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.current = SimpleNamespace(name="main", wait_stream=lambda of: self.told.append(f"main waits for {of}"))
        self.done: set[int] = set()
        self.events = 0
        monkeypatch.setattr("torch.cuda.current_stream", lambda: self.current)
        monkeypatch.setattr("torch.cuda.stream", self.stream)
        monkeypatch.setattr("torch.cuda.Event", self.event)

    @contextmanager
    def stream(self, name: str) -> Any:
        before, self.current = self.current, SimpleNamespace(name=name)
        yield
        self.current = before

    def tensor(self, name: str) -> Any:
        def to(device: str, non_blocking: bool) -> Any:
            self.told.append(f"{name} to {device} on {self.current.name}, blocking {not non_blocking}")
            return SimpleNamespace(record_stream=lambda s: self.told.append(f"{name} is used on {s.name}"))

        return SimpleNamespace(to=to)

    def event(self) -> Any:
        self.events += 1
        number = self.events
        return SimpleNamespace(
            record=lambda: self.told.append(f"record {number}"),
            query=lambda: number in self.done,
            synchronize=lambda: self.told.append(f"wait {number}"),
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    return Pretended(monkeypatch)


def test_batches_are_copied_beside_the_computation(cuda: Pretended) -> None:
    _stream.copied([cuda.tensor("pixels"), cuda.tensor("labels")], "cuda", "side")
    assert cuda.told == [
        "pixels to cuda on side, blocking False",
        "labels to cuda on side, blocking False",
        "main waits for side",
        "pixels is used on main",
        "labels is used on main",
    ]


class Batch:
    """One that says when it is let go."""

    def __init__(self, number: int, gone: list[int]) -> None:
        self.number, self.gone = number, gone

    def __del__(self) -> None:
        self.gone.append(self.number)


def test_memory_of_others_is_kept_until_the_gpu_has_used_it(cuda: Pretended) -> None:
    held, gone = _stream.KeptBatches(), []  # type: ignore[var-annotated]
    for number in (1, 2, 3):
        held.keep(Batch(number, gone))
    assert gone == []  # the GPU is at work on the first
    cuda.done = {1, 2}
    held.keep(Batch(4, gone))
    assert gone == [1, 2]
    assert not any("wait" in told for told in cuda.told)


def test_a_host_far_ahead_waits_for_its_gpu(cuda: Pretended) -> None:
    held, gone = _stream.KeptBatches(), []  # type: ignore[var-annotated]
    for number in range(1, _stream.MOST_KEPT + 2):
        held.keep(Batch(number, gone))
    assert cuda.told[-1] == "wait 1"
    assert gone == [1]
