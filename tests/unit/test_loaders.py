"""Orders, shares and what worker processes share: the parts of loaders that need no pictures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from ddlbench.loaders import _share, native

from tests.contract.engine_probe import Case, spec_of


def run(workers: int, batch: int, epochs: int = 3):
    """A run of the loader."""
    from dataclasses import replace

    return replace(spec_of(Case("ddp", "ddp", "sgd")), workers=workers, global_batch=batch, epochs=epochs)


def test_an_order_is_the_one_that_it_was():
    """Numbers that the first version gave: another order would be another training."""
    assert _share.shuffled(12, 1, 0).tolist() == [8, 11, 4, 7, 5, 0, 1, 9, 2, 10, 6, 3]
    assert _share.shuffled(12, 7, 3).tolist() == [4, 2, 5, 8, 7, 3, 11, 10, 0, 1, 9, 6]
    parts = [part.tolist() for part in _share.share(_share.shuffled(12, 1, 0), 5, 1, 2)]
    assert parts == [[4, 7, 5], [9, 2, 10], [3]]
    parts = [part.tolist() for part in _share.share(_share.shuffled(12, 7, 3), 5, 0, 2, 1)]
    assert parts == [[3, 11], [9]]


def taken(batches: native.Batches, epoch: int, first_step: int = 0) -> list[list[int]]:
    """All batches of an epoch."""
    batches.epoch, batches.first_step = epoch, first_step
    found = [keys[0] for keys in batches]
    assert {of for of, _ in found} == {epoch}
    return [list(map(int, indices)) for _, indices in found]


@pytest.mark.parametrize("shuffle", [True, False])
def test_orders_drawn_ahead_are_those_drawn_at_once(shuffle):
    in_turn, alone = (native.Batches(100, shuffle, run(2, 16), 1) for _ in range(2))
    whole = []
    for epoch in range(3):
        whole.append(taken(in_turn, epoch))
        in_turn.draw_ahead()
    assert whole[2] == taken(alone, 2)  # another epoch than the one that lies ready
    assert whole[1][3:] == taken(alone, 1, 3)
    assert taken(in_turn, 0) == whole[0]
    assert (whole[0] == whole[1]) is not shuffle


def test_the_next_epochs_order_lies_ready_when_it_begins(monkeypatch):
    """And none is drawn that no epoch of the run needs."""
    drawn = []
    monkeypatch.setattr(native, "shuffled", lambda *a: drawn.append(a[-1]) or _share.shuffled(*a))
    batches = native.Batches(100, True, run(2, 16, epochs=2), 0)
    for epoch in range(2):
        taken(batches, epoch)
        batches.draw_ahead()
        assert batches.ahead is None or batches.ahead[1].result(10) is not None
        assert drawn == [0, 1]


def private_bytes() -> int:
    """Memory of this process that it shares with no other."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.M)) * 1024


def test_worker_processes_share_names_and_labels():
    """A forked process that asks for every name takes no memory of its own for them."""
    count = 200_000
    files = [(f"/data/imagenet/raw/train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG", i % 1000) for i in range(count)]
    pictures = native.Pictures(files, True, run(2, 16))
    assert [pictures.path(i) for i in (0, 1, count - 1)] == [files[i][0] for i in (0, 1, count - 1)]
    assert np.array_equal(pictures.labels, [label for _, label in files])
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        before = private_bytes()
        for i in range(count):
            pictures.path(i)
        os.write(writable, str(private_bytes() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(readable, 100)) < 4 * 2**20  # 40 MiB where names are strings in a list


def test_names_need_not_be_utf_8(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    assert native.Pictures([("a.png", 1), (f"{tmp_path}/{name}", 0)], True, run(1, 1)).path(1) == f"{tmp_path}/{name}"
