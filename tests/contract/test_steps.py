"""Within a rank: rows of steps, the parts of a batch, the fingerprint of a model's weights."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from ddlbench.core import step_table
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import MLLOG, ROWS, STEPS
from ddlbench.core.step_rows import STEP_COLUMNS, StepRow, packed, step_type
from ddlbench.core.step_table import join_steps
from ddlbench.train import checkpoint, setup
from ddlbench.train.clock import Clock
from ddlbench.train.loop import Training
from ddlbench.train.parts import Parts
from ddlbench.train.setup import weights_sha256
from ddlbench.train.steps import Step, gathered, rows
from torch import nn

from tests.builders.plans import run_spec
from tests.facts import refuses


class Hand(Clock):
    """Moments are the seconds themselves."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self._zero = 0.0


def taken(
    number: int, moments: list[float], losses: list[float], waits: list[tuple[float, float]] | None
) -> Step:
    step = Step(0, number, 8, 0.5, moments[0])
    for part, loss in enumerate(losses):
        step.forward(moments[1 + 2 * part], torch.tensor(loss))
        step.backward(moments[2 + 2 * part])
    step.end(moments[-1], waits)
    return step


def test_rows_of_two_steps() -> None:
    """The first in two parts, which waits for gradients in its last backward pass and in its
    end.
    """
    first = taken(4, [12.0, 13.0, 15.0, 16.0, 19.0, 20.0], [0.25, 0.5], [(18.0, 19.5)])
    second = taken(5, [21.0, 22.0, 24.0, 24.5], [1.5], None)
    assert rows([first, second], 10.0, Hand(), 3) == [
        StepRow(0, 4, 3, 8, 0.5, 0.75, 2.0, 2.0, 4.0, 1.5, 0.5, 20.0),
        StepRow(0, 5, 3, 8, 0.5, 1.5, 1.0, 1.0, 2.0, None, 0.5, 24.5),
    ]
    assert [row.took_s for row in rows([first, second], 10.0, Hand(), 3)] == [10.0, 4.5]
    assert rows([], 10.0, Hand(), 3) == []


def test_a_rows_fields_are_the_columns(tmp_path: Path) -> None:
    table = [
        StepRow(0, n, 0, 8, 0.5, 1.0, 0.1, 0.2, 0.3, None if n else 0.25, 0.4, 1.0)
        for n in range(3)
    ]
    log = RankLog(tmp_path, 0)
    log.write_steps(packed(table[:2]))
    log.write_steps(packed(table[2:]))
    join_steps(tmp_path, 1)
    steps = pd.read_parquet(tmp_path / STEPS)
    assert {name: str(kind) for name, kind in steps.dtypes.items()} == STEP_COLUMNS
    assert tuple(STEP_COLUMNS) == StepRow._fields
    assert steps["step"].tolist() == [0, 1, 2]
    assert steps["communication_s"].isna().tolist() == [False, True, True]


def table_of(rank: int, steps: range) -> list[StepRow]:
    """Rows with values that use all their digits."""
    third = 1 / (3 + rank)
    return [
        StepRow(n // 4, n, rank, 65_536 + n, third * n, *[third + n] * 4, None, third, 1e4 * third)
        for n in steps
    ]


@pytest.mark.parametrize("workers", [1, 3, 7, 1000])
def test_rank_0_has_the_rows_of_all_ranks_to_the_last_bit(workers: int) -> None:
    given = [table_of(rank, range(5)) for rank in range(workers)]
    sent: list[torch.Tensor] = []
    for table in given:  # what each of them gives to the others
        gathered(table, lambda mine: sent.append(mine) or mine)  # type: ignore[func-returns-value]
    every = gathered(given[0], lambda _: torch.stack(sent))
    for rank, table in enumerate(given):
        assert every[rank * 5 : rank * 5 + 5].tobytes() == packed(table).tobytes()


def test_a_run_that_goes_on_has_each_row_once(tmp_path: Path) -> None:
    """Killed at any byte after a checkpoint: what came after it is made again, nothing is lost and
    nothing twice.
    """
    log = RankLog(tmp_path, 0)
    log.event("first")
    log.write_steps(packed(table_of(0, range(3))))
    kept = log.bytes_written()
    assert kept == {name: (tmp_path / name).stat().st_size for name in (MLLOG, ROWS)}
    log.event("second")
    log.write_steps(packed(table_of(0, range(3, 6))))
    whole = (tmp_path / ROWS).read_bytes()
    for cut in (kept[ROWS], kept[ROWS] + 7, len(whole) - 1, len(whole)):
        (tmp_path / ROWS).write_bytes(whole[:cut])
        again = RankLog(tmp_path, 0, kept)
        again.write_steps(packed(table_of(0, range(3, 6))))
        assert (tmp_path / ROWS).read_bytes() == whole
        assert (tmp_path / MLLOG).read_text().count('"second"') == 0
        join_steps(tmp_path, 1)
        assert pd.read_parquet(tmp_path / STEPS)["step"].tolist() == list(range(6))
    (tmp_path / ROWS).write_bytes(whole[: kept[ROWS] - 1])
    with refuses(OSError, "shorter", "checkpoint"):
        RankLog(tmp_path, 0, kept)
    assert RankLog(tmp_path, 1, kept).bytes_written() == {}


@pytest.mark.more
@pytest.mark.parametrize("workers", [1, 3, pytest.param(200, marks=pytest.mark.slow)])
def test_rows_are_joined_by_pieces(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of ranks and however many steps ranks wrote at once, few rows are held at
    a time.
    """
    monkeypatch.setattr(step_table, "CHUNK_ROWS", 1_000)
    log, steps, each = RankLog(tmp_path, 0), 600_000 // workers, (5, 700, 1)
    whole = np.zeros(600_000, step_type())
    whole["step"], whole["rank"] = np.arange(600_000) // workers, np.arange(600_000) % workers
    whole["end_s"] = np.random.default_rng(1).random(600_000)
    at, chunk = 0, 0
    while at < steps:
        some = whole[at * workers : (at + 300 * each[chunk % 3]) * workers]
        log.write_steps(some[np.lexsort((some["step"], some["rank"]))])
        at, chunk = at + 300 * each[chunk % 3], chunk + 1
    tracemalloc.start()
    join_steps(tmp_path, workers)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3_000_000  # of 31 million bytes
    table = pd.read_parquet(tmp_path / STEPS)
    for name in ("step", "rank", "end_s"):
        assert (table[name].to_numpy() == whole[name]).all()


def test_rows_that_are_not_all_there(tmp_path: Path) -> None:
    log = RankLog(tmp_path, 0)
    with pytest.raises(OSError, match=ROWS):
        join_steps(tmp_path, 2)
    log.write_steps(packed(table_of(0, range(3))))
    with pytest.raises(FileNotFoundError, match="no steps of rank 1"):
        join_steps(tmp_path, 2)
    with (tmp_path / ROWS).open("ab") as file:
        file.write(b"x")
    with pytest.raises(OSError, match="ends within a row"):
        join_steps(tmp_path, 1)


@pytest.mark.parametrize(
    ("images", "expected"), [(5, [1, 2, 2]), (2, [1, 1, 1]), (1, [1, 1, 1]), (0, [1, 1, 1])]
)
def test_every_rank_computes_as_many_parts(images: int, expected: list[int]) -> None:
    run = run_spec()
    parts = Parts(
        replace(run, recipe=replace(run.recipe, accumulation=3, image_size=4)), torch.device("cpu")
    )
    x, y = torch.randn(images, 3, 4, 4), torch.arange(images)
    cut = list(parts.cut(x, y, keep=True))
    assert [len(labels) for _, labels, _, _ in cut] == expected
    assert [last for *_, last in cut] == [False, False, True]
    weighed = [labels for _, labels, weight, _ in cut if weight]
    assert torch.cat([torch.empty(0, dtype=torch.int64), *weighed]).tolist() == y.tolist()
    # What weighs nothing is the part before it, of this step or of the one that was kept.
    assert torch.equal(
        parts.spare[1], weighed[-1] if weighed else torch.zeros(1, dtype=torch.int64)
    )


def test_a_rank_takes_the_gpu_of_its_place_on_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def take(number: int) -> None:
        taken.append(number)
        raise InterruptedError

    monkeypatch.setattr(setup.place, "own_rank", lambda workers: setup.place.Rank(6, workers, 2))
    monkeypatch.setattr(setup.place, "take_device", take)
    assignment: Any = SimpleNamespace(
        spec=run_spec(device="cuda", workers=8, workers_per_node=4), folder=tmp_path
    )
    with pytest.raises(InterruptedError):
        setup.arrive(assignment)
    assert taken == [2]


def test_a_checkpoint_has_what_all_processes_before_it_used_and_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third process of a run: it keeps the losses of the epoch's steps before it, and the
    counters of both.
    """
    start = setup.StartingPoint(step=5, losses=[0.5, 0.25], used=[{"first": 1}, {"second": 2}])
    of: Any = SimpleNamespace(
        start=start, steps=8, spec=run_spec(), device=torch.device("cpu"), rank=0, loaders={}
    )
    of.assignment = SimpleNamespace(interrupt_steps=None, folder=tmp_path)
    of.engine = SimpleNamespace(state=dict)
    of.meter = SimpleNamespace(read=lambda: {"third": 3})
    of.log = SimpleNamespace(event=lambda *_: None, bytes_written=dict)
    of.clock, of.guard = SimpleNamespace(now_s=lambda: 1.0), SimpleNamespace(stop=False)
    of.meet = of.gather = None
    parts: list[Any] = []
    monkeypatch.setattr(checkpoint, "save", lambda folder, step, rank, part, *_: parts.append(part))
    Training(of).save(6)
    (part,) = parts
    assert part["losses"] == [0.5, 0.25]
    assert part["used"] == [{"first": 1}, {"second": 2}, {"third": 3}]


def test_weights_that_differ_have_another_fingerprint() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = weights_sha256(model)
    assert weights_sha256(model.to(memory_format=torch.channels_last)) == before  # type: ignore[call-overload]
    with torch.no_grad():
        model[1].num_batches_tracked.add_(1)
        counted = weights_sha256(model)
        model[1].num_batches_tracked.sub_(1)
        model[0].bias.add_(1e-6)
    assert len({before, counted, weights_sha256(model)}) == 3
    assert weights_sha256(nn.Sequential(nn.Conv2d(3, 4, 3).to(torch.bfloat16)))


class Event:
    """As CUDA's: of it one knows only the milliseconds to another, as a float32."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def elapsed_time(self, other: "Event") -> float:
        return float(np.float32((other.at_s - self.at_s) * 1e3))

    def synchronize(self) -> None:
        pass


@pytest.mark.parametrize("epoch_s", [60.0, 6400.0])
def test_moments_of_a_gpu_lose_no_digits_in_a_long_epoch(
    monkeypatch: pytest.MonkeyPatch, epoch_s: float
) -> None:
    """A part of 20 microseconds is as long at the epoch's begin as at its end, and parts add up to
    the epoch.
    """
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    clock, part_s = Clock("cpu"), 20e-6
    clock.on_gpu, clock._zero = True, Event(0.0)
    clock.mark = lambda: Event(epoch_s + 1)  # type: ignore[method-assign]
    at = np.repeat(np.arange(0.0, epoch_s, 0.75), 2)
    at[1::2] += part_s
    seconds = np.array(clock.seconds([Event(moment) for moment in at]))
    assert np.abs(np.diff(seconds)[::2] - part_s).max() < 1e-6
    assert np.abs(seconds - at).max() < 1e-5
    assert clock.seconds([Event(epoch_s + 2)]) == pytest.approx([epoch_s + 2], abs=1e-5)
