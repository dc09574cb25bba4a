"""A checkpoint of several ranks: what is the same is saved once, and each rank gets back its own,
to the last bit.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from ddlbench.core.step_rows import STEP_COLUMNS
from ddlbench.run import training as supervisor
from ddlbench.train import checkpoint
from ddlbench.train.assignment import Assignment

from tests.builders.plans import run_spec
from tests.disks import Watched
from tests.facts import missing
from tests.kills import killed_at

WORLD = 3
Part = dict[str, Any]


def replicated(rank: int) -> Part:
    """As DDP and Horovod have it: statistics of batch norm, random states and the loader's place
    are a rank's own.
    """
    torch.manual_seed(0)
    shared = {
        "weight": torch.randn(1000, 100),
        "half": torch.randn(9).to(torch.bfloat16),
        "step": torch.tensor(7),
    }
    model = shared | {"mean": torch.full((64,), float(rank)), "count": torch.tensor(rank)}
    momentum = [{"momentum": torch.randn(1000, 100)}, (torch.ones(3), None)]
    loaders = {"train": f"place of {rank}", "val": b"\0\1", "pad": {}}
    return {
        "engine": {"model": model, "optimizer": momentum},
        "loaders": loaders,
        "losses": [0.1 * rank],
        3: rank,
    }


def sharded(rank: int) -> Part:
    """As ZeRO has it: each rank holds other numbers, the last one fewer."""
    torch.manual_seed(rank)
    return {
        "buffer": torch.ones(4),
        "masters": [torch.randn(1000 - (rank == 2)) for _ in range(2 - (rank == 2))],
    }


def sent_by(part: Part) -> list[torch.Tensor]:
    """What rank 0 gives the others when it has this part."""
    sent: list[torch.Tensor] = []
    checkpoint.same_as_first(part, lambda mine: torch.stack(sent.append(mine) or [mine]))  # type: ignore[func-returns-value]
    return sent


def save(folder: Path, parts: list[Part]) -> list[int]:
    """As ranks do it together; the sizes of their files."""
    sent = sent_by(parts[0])
    for rank in reversed(range(len(parts))):
        told: Iterator[torch.Tensor] = iter(sent)

        def gather(mine: torch.Tensor, told: Iterator[torch.Tensor] = told) -> torch.Tensor:
            first = next(told)
            assert (first.shape, first.dtype) == (mine.shape, mine.dtype), (
                "ranks would wait for each other for ever"
            )
            return torch.stack([first, mine])

        checkpoint.save(folder, 5, rank, parts[rank], {"elapsed_s": 1.5}, lambda: None, gather)
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
    first = {
        "bit": torch.zeros(9),
        "type": torch.zeros(2),
        "shape": torch.zeros(4),
        "same": torch.zeros(5),
    }
    other = {
        "bit": -torch.zeros(9),
        "type": torch.zeros(1, dtype=torch.float64),
        "shape": torch.zeros(2, 2),
    }
    told = iter(sent_by(first))
    assert checkpoint.same_as_first(
        {**other, "same": torch.zeros(5)}, lambda _: next(told)[None]
    ) == {("same",)}


def test_what_an_earlier_version_left_is_not_gone_on_from(tmp_path: Path) -> None:
    save(tmp_path, [replicated(0)])
    summary = tmp_path / checkpoint.FOLDER / "000000005" / checkpoint.SUMMARY
    summary.write_text('{"step": 5, "elapsed_s": 1.5, "log_bytes": 7}')
    assert checkpoint.latest(tmp_path) is None


def test_rows_of_other_columns_are_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, [replicated(0)])
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    monkeypatch.setattr(checkpoint, "STEP_COLUMNS", {**STEP_COLUMNS, "added_s": "float32"})
    assert checkpoint.latest(tmp_path) is None


KEPT = ("format", "step_columns", "step", "elapsed_s", "written", "parts")
SMALL = {"weight": torch.arange(50.0), "losses": [0.5]}


def save_at(folder: Path, step: int) -> None:
    """One rank's checkpoint."""
    about = {"elapsed_s": 0.5 * step, "written": {"run.mllog": step}}
    checkpoint.save(
        folder, step, 0, SMALL | {"step": step}, about, lambda: None, lambda numbers: numbers
    )


def two(folder: Path) -> tuple[Path, Path]:
    """An older checkpoint, which a kill left, and a newer one."""
    save_at(folder, 5)
    older = folder / checkpoint.FOLDER / "000000005"
    shutil.copytree(older, folder / "kept")
    save_at(folder, 9)
    shutil.move(folder / "kept", older)
    return older, older.with_name("000000009")


@pytest.mark.parametrize("how", ["empty", "zeroed", "cut", "flipped", "of another type"])
def test_what_cannot_be_read_is_set_aside_and_the_older_one_is_used(
    tmp_path: Path, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    older, newer = two(tmp_path)
    whole, random = (newer / checkpoint.SUMMARY).read_bytes(), Random(how)
    for _ in range(60 if how in ("cut", "flipped") else 1):
        place, changed = random.randrange(len(whole)), bytearray(whole)
        changed[place] ^= 1 << random.randrange(8)
        texts = {
            "empty": b"",
            "zeroed": bytes(len(whole)),
            "cut": whole[:place],
            "flipped": bytes(changed),
        }
        (newer / checkpoint.SUMMARY).write_bytes(texts.get(how, b"[5]"))
        assert checkpoint.latest(tmp_path) in (older, newer)
        checkpoint.set_damaged_aside(tmp_path)
        found = checkpoint.latest(tmp_path)
        if found == newer:  # the name of its digest was hit
            about = json.loads(whole)
            assert {name: checkpoint.summary(newer).get(name) for name in KEPT} == {
                name: about[name] for name in KEPT
            }
            continue
        assert found == older and checkpoint.load(older, 0)["step"] == 5
        assert missing(capfd.readouterr().err, newer, "damaged") == []
        newer.with_name(f"damaged-{newer.name}").rename(newer)
    shutil.rmtree(older)
    (newer / checkpoint.SUMMARY).write_bytes(b"")
    checkpoint.set_damaged_aside(tmp_path)
    assert checkpoint.latest(tmp_path) is None


def test_flipped_bits_and_cuts_in_a_ranks_part(tmp_path: Path) -> None:
    older, newer = two(tmp_path)
    part, random, aside = newer / "rank-0.pt", Random(1), newer.with_name("damaged-000000009")
    whole, unharmed = part.read_bytes(), 0
    for _ in range(60):
        place, changed = random.randrange(len(whole)), bytearray(whole)
        changed[place] ^= 1 << random.randrange(8)
        part.write_bytes(changed)
        try:
            loaded = checkpoint.load(newer, 0)
        except checkpoint.UnreadableError:
            assert checkpoint.latest(tmp_path) == older
            aside.rename(newer)
        else:  # a byte that only fills, or a date
            assert_equal(loaded, SMALL | {"step": 9})
            unharmed += 1
        part.write_bytes(whole[:place])
        checkpoint.set_damaged_aside(tmp_path)
        assert checkpoint.latest(tmp_path) == older
        aside.rename(newer)
    assert unharmed < 30


def test_whenever_it_is_killed_one_of_both_is_whole(tmp_path: Path) -> None:
    steps, call = [], 0
    while True:
        folder, call = tmp_path / str(call), call + 1
        save_at(folder, 5)
        if not killed_at(call, lambda folder=folder: save_at(folder, 9)):  # type: ignore[misc]
            break
        checkpoint.set_damaged_aside(folder)
        found = checkpoint.latest(folder)
        assert found is not None, call
        steps.append(checkpoint.summary(found)["step"])
        assert checkpoint.load(found, 0)["step"] == steps[-1]
        save_at(folder, 9)  # and it can be written again
        assert [path.name for path in (folder / checkpoint.FOLDER).iterdir()] == ["000000009"]
    assert steps == sorted(steps) and set(steps) == {5, 9}


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Watched(monkeypatch)
    save_at(tmp_path, 5)
    assert disk.named == {"000000005": True}


def test_no_rank_seals_a_checkpoint_before_all_have_written_their_parts(tmp_path: Path) -> None:
    """Ranks write at the same time, rank 1 takes longer: rank 0 waits for it twice, before it seals
    and afterwards.
    """
    parts = [sharded(rank) for rank in range(2)]
    sent, waits = sent_by(parts[0]), []

    def gather_of(rank: int) -> Callable[[torch.Tensor], torch.Tensor]:
        told = iter(sent)
        return lambda mine: torch.stack([mine if rank == 0 else next(told), mine])

    def meet() -> None:
        waits.append(checkpoint.latest(tmp_path) is not None)
        if len(waits) == 1:
            checkpoint.save(tmp_path, 5, 1, parts[1], {}, lambda: None, gather_of(1))

    checkpoint.save(tmp_path, 5, 0, parts[0], {}, meet, gather_of(0))
    assert waits == [False, True]
    found = checkpoint.latest(tmp_path)
    assert found is not None and {*checkpoint.summary(found)["parts"]} == {"rank-0.pt", "rank-1.pt"}


def test_a_run_whose_checkpoint_cannot_be_read_begins_anew(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec, partial = run_spec(), tmp_path / ".partial"
    for _ in range(2):  # once more after that try failed
        partial.mkdir(exist_ok=True)
        Assignment(partial, spec, None, {}, None, None).write()
        save_at(partial, 5)
        (partial / checkpoint.FOLDER / "000000005" / checkpoint.SUMMARY).write_bytes(b"")
        assert (
            supervisor.execute(spec, tmp_path, None, [sys.executable, "-c", "raise SystemExit(3)"])
            == 3
        )
        said = capfd.readouterr()
        assert missing(said.err, "damaged") == [] and "goes on from" not in said.out
        assert (tmp_path / "failed/failure.json").exists()
