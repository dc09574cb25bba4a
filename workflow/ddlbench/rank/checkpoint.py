"""Checkpoints of a run: every rank writes its part aside, and a rename makes them one.

`<run folder>/checkpoint/<step>/{rank-<n>.pt, checkpoint.json}`; the newest is kept. `ddlbench.run` decides whether a
run goes on from one; `train.py` says what is in it, and `setup.py` reads it. Parts are tensors and plain values:
loading one runs no code. Rank 0's part is whole. Of the other ranks' parts, tensors that are the same as rank 0's are
left out, whatever the framework: of replicated training that is all but random states and batch norm's statistics.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.record import FIRST_STEP_COLUMNS, STEP_COLUMNS

if TYPE_CHECKING:
    import torch

FOLDER = "checkpoint"
SUMMARY = "checkpoint.json"
FORMAT = 2  # what this version can go on from
AS_RANK_0 = "\0as rank 0"  # stands for a tensor that is in rank 0's part
Place = tuple[Any, ...]  # of a tensor in a part: keys and numbers


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint in a run's folder; None if there is none that this version can read.

    Rows of steps lie beside it, in bytes: those of other columns cannot be gone on with.
    """
    whole = sorted((folder / FOLDER).glob(f"[0-9]*/{SUMMARY}"))
    if not whole:
        return None
    about = summary(whole[-1].parent)
    columns = about.get("step_columns", [*FIRST_STEP_COLUMNS])
    return whole[-1].parent if (about.get("format"), columns) == (FORMAT, [*STEP_COLUMNS]) else None


def summary(checkpoint: Path) -> dict[str, Any]:
    """What the checkpoint says of itself: where in training it was made."""
    data: dict[str, Any] = json.loads((checkpoint / SUMMARY).read_text(encoding="utf-8"))
    return data


def save(
    folder: Path,
    step: int,
    rank: int,
    part: dict[str, Any],
    about: dict[str, Any],
    meet: Callable[[], Any],
    of_first: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write this rank's part of the checkpoint at `step`. All ranks call it at once; `meet` waits for all of them.

    `of_first` gives all ranks what rank 0 gives it: whole numbers below 65 536, as many on each rank. Raises OSError,
    for instance if the disk is full. The checkpoint before then stays whole.
    """
    import torch

    same = same_as_first(part, of_first)
    if rank:
        part = _changed(part, lambda place, tensor: AS_RANK_0 if place in same else tensor)
    final = folder / FOLDER / f"{step:09d}"
    aside = final.with_name(f".{final.name}")
    aside.mkdir(parents=True, exist_ok=True)
    with (aside / f"rank-{rank}.pt").open("wb") as file:
        torch.save(part, file)
        file.flush()
        os.fsync(file.fileno())
    meet()
    if rank == 0:
        about = {"format": FORMAT, "step_columns": [*STEP_COLUMNS], "step": step, **about}
        (aside / SUMMARY).write_text(json.dumps(about), encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        for other in (folder / FOLDER).iterdir():
            if other != final:
                shutil.rmtree(other)
    meet()


def load(checkpoint: Path, rank: int) -> dict[str, Any]:
    """This rank's part, whole, on the CPU."""
    import torch

    def read(number: int) -> dict[str, Any]:
        path = checkpoint / f"rank-{number}.pt"
        part: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return part

    part = read(rank)
    if rank:
        first = dict(_tensors(read(0)))
        part = _changed(part, lambda place, value: first[place] if isinstance(value, str) else value)
    return part


def same_as_first(part: dict[str, Any], of_first: Callable[[torch.Tensor], torch.Tensor]) -> set[Place]:
    """Where this rank's tensors are those of rank 0, by their SHA-256. All ranks call it at once."""
    import numpy as np
    import torch

    places, digests = [], []
    for place, tensor in _tensors(part):
        places.append(place)
        digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        digests.append(digest.digest()[:16])

    def shared(mine: bytes) -> bytes:
        numbers = torch.from_numpy(np.frombuffer(mine, np.uint16).astype(np.float32))
        return of_first(numbers).numpy().astype(np.uint16).tobytes()

    # Shards need not lie at the same places on all ranks: how many rank 0 has, and where, comes first.
    told = len(places).to_bytes(8, "little") + hashlib.sha256(repr(places).encode()).digest()
    first = shared(told)
    alike = first == told
    size = 16 * int.from_bytes(first[:8], "little")
    if not size:
        return set()
    theirs = shared(b"".join(digests) if alike else bytes(size))
    if not alike:
        return set()
    return {place for n, place in enumerate(places) if digests[n] == theirs[16 * n : 16 * n + 16]}


def _tensors(tree: Any, place: Place = ()) -> Iterator[tuple[Place, torch.Tensor]]:
    """All tensors of a part, and where they are."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield place, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _tensors(value, (*place, key))
    elif isinstance(tree, list | tuple):
        for number, value in enumerate(tree):
            yield from _tensors(value, (*place, number))


def _changed(tree: Any, change: Callable[[Place, Any], Any], place: Place = ()) -> Any:
    """A part with `change(place, value)` for its tensors, and for what stands for them."""
    import torch

    if isinstance(tree, torch.Tensor) or (isinstance(tree, str) and tree == AS_RANK_0):
        return change(place, tree)
    if isinstance(tree, dict):
        return {key: _changed(value, change, (*place, key)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_changed(value, change, (*place, number)) for number, value in enumerate(tree))
    return tree


def random_state() -> dict[str, torch.Tensor]:
    """The state of torch's generators on this rank."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Put back what `random_state` gave."""
    import torch

    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
