"""A checkpoint of several ranks: what is the same is saved once, and each rank gets back its own, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ddlbench.rank import checkpoint
from ddlbench.record import FIRST_STEP_COLUMNS, STEP_COLUMNS

WORLD = 3
Part = dict[str, Any]


def replicated(rank: int) -> Part:
    """As DDP and Horovod have it: statistics of batch norm, random states and the loader's place are a rank's own."""
    torch.manual_seed(0)
    shared = {"weight": torch.randn(1000, 100), "half": torch.randn(9).to(torch.bfloat16), "step": torch.tensor(7)}
    model = shared | {"mean": torch.full((64,), float(rank)), "count": torch.tensor(rank)}
    momentum = [{"momentum": torch.randn(1000, 100)}, (torch.ones(3), None)]
    loaders = {"train": f"place of {rank}", "val": b"\0\1", "pad": {}}
    return {"engine": {"model": model, "optimizer": momentum}, "loaders": loaders, "losses": [0.1 * rank], 3: rank}


def sharded(rank: int) -> Part:
    """As ZeRO has it: each rank holds other numbers, the last one fewer."""
    torch.manual_seed(rank)
    return {"buffer": torch.ones(4), "masters": [torch.randn(1000 - (rank == 2)) for _ in range(2 - (rank == 2))]}


def save(folder: Path, parts: list[Part]) -> list[int]:
    """As ranks do it together; the sizes of their files."""
    said: list[torch.Tensor] = []
    checkpoint.same_as_first(parts[0], lambda numbers: said.append(numbers) or numbers)  # type: ignore[func-returns-value]
    for rank in reversed(range(len(parts))):
        told: Iterator[torch.Tensor] = iter(said)

        def of_first(numbers: torch.Tensor, told: Iterator[torch.Tensor] = told) -> torch.Tensor:
            first = next(told)
            assert first.shape == numbers.shape, "ranks would wait for each other for ever"
            assert bool((numbers == numbers.round()).all()) and float(numbers.max()) < 65_536
            return first

        checkpoint.save(folder, 5, rank, parts[rank], {"elapsed_s": 1.5}, lambda: None, of_first)
        if rank:
            assert checkpoint.latest(folder) is None
    found = checkpoint.latest(folder)
    assert found is not None
    return [(found / f"rank-{rank}.pt").stat().st_size for rank in range(len(parts))]


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key, value in one.items():
            assert_equal(value, other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_equal(mine, theirs)
    else:
        assert one == other


@pytest.mark.parametrize("make", [replicated, sharded, lambda rank: {"losses": [rank]}])
def test_each_rank_gets_back_its_own(tmp_path: Path, make: Callable[[int], Part]) -> None:
    save(tmp_path, [make(rank) for rank in range(WORLD)])
    found = checkpoint.latest(tmp_path)
    assert found is not None and checkpoint.summary(found)["step"] == 5
    for rank in range(WORLD):
        assert_equal(checkpoint.load(found, rank), make(rank))


def test_what_is_replicated_is_saved_once(tmp_path: Path) -> None:
    sizes = save(tmp_path, [replicated(rank) for rank in range(WORLD)])
    assert sizes[0] > 2 * 400_000
    assert max(sizes[1:]) < 5_000


def test_tensors_that_differ_in_one_bit_type_or_shape_are_not_the_same(tmp_path: Path) -> None:
    first = {"bit": torch.zeros(9), "type": torch.zeros(2), "shape": torch.zeros(4), "same": torch.zeros(5)}
    other = {"bit": -torch.zeros(9), "type": torch.zeros(1, dtype=torch.float64), "shape": torch.zeros(2, 2)}
    said: list[torch.Tensor] = []
    checkpoint.same_as_first(first, lambda numbers: said.append(numbers) or numbers)  # type: ignore[func-returns-value]
    told = iter(said)
    assert checkpoint.same_as_first({**other, "same": torch.zeros(5)}, lambda _: next(told)) == {("same",)}


def test_what_an_earlier_version_left_is_not_gone_on_from(tmp_path: Path) -> None:
    save(tmp_path, [replicated(0)])
    summary = tmp_path / checkpoint.FOLDER / "000000005" / checkpoint.SUMMARY
    summary.write_text('{"step": 5, "elapsed_s": 1.5, "log_bytes": 7}')
    assert checkpoint.latest(tmp_path) is None


def test_rows_of_other_columns_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, [replicated(0)])
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    about = checkpoint.summary(newest)
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "STEP_COLUMNS", {**STEP_COLUMNS, "added_s": "float32"})
        assert checkpoint.latest(tmp_path) is None
    del about["step_columns"]  # as earlier versions wrote it
    (newest / checkpoint.SUMMARY).write_text(json.dumps(about))
    monkeypatch.setattr(checkpoint, "STEP_COLUMNS", dict.fromkeys(FIRST_STEP_COLUMNS, "float32"))
    assert checkpoint.latest(tmp_path) == newest
