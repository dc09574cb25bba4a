"""Checkpoints of a run: every rank writes its part aside, and a rename makes them one.

`<run folder>/checkpoint/<step>/{rank-<n>.pt, checkpoint.json}`; the newest is kept. `ddlbench.run`
decides whether a run goes on from one; `loop.py` says what is in it, and `setup.py` reads it.
Parts are tensors and plain values: loading one runs no code. Rank 0's part is whole. Of the other
ranks' parts, tensors that are the same as rank 0's are left out, whatever the framework: of
replicated training that is all but random states and batch norm's statistics.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core.files import force, sync
from ddlbench.core.notes import cause
from ddlbench.core.step_rows import STEP_COLUMNS

if TYPE_CHECKING:
    import torch

FOLDER = "checkpoint"
SUMMARY = "checkpoint.json"
FORMAT = 2  # what this version can go on from
AS_RANK_0 = "\0as rank 0"  # stands for a tensor that is in rank 0's part
Place = tuple[Any, ...]  # of a tensor in a part: keys and numbers


class UnreadableError(RuntimeError):
    """The error that a part of a checkpoint is damaged; one line."""


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint in a run's folder that this version can read; None without one.

    Raises OSError.

    Rows of steps lie beside it, in bytes: those of other columns cannot be gone on with.
    """
    for found in _all(folder):
        with suppress(ValueError):
            about = summary(found)
            if (about.get("format"), about.get("step_columns")) == (FORMAT, [*STEP_COLUMNS]):
                return found
    return None


def set_damaged_aside(folder: Path) -> None:
    """Rename damaged checkpoints, so that no rank finds them, and print why.

    Called before ranks start. Raises OSError.
    """
    for found in _all(folder):
        try:
            for name, size in summary(found).get("parts", {}).items():
                part = found / name
                if not part.exists() or part.stat().st_size != size:
                    raise ValueError(f"{name} has another length than when it was written")
        except ValueError as error:
            print(
                f"the checkpoint {found} is damaged and is ignored: {error}",
                file=sys.stderr,
                flush=True,
            )
            found.rename(found.with_name(f"damaged-{found.name}"))


def _all(folder: Path) -> list[Path]:
    """List all checkpoints in a run's folder, the newest first."""
    return sorted(
        (path.parent for path in (folder / FOLDER).glob(f"[0-9]*/{SUMMARY}")), reverse=True
    )


def summary(checkpoint: Path) -> dict[str, Any]:
    """Read the summary of a checkpoint: where in training it was made.

    Raises ValueError if that is damaged, OSError.
    """
    try:
        data: dict[str, Any] = json.loads((checkpoint / SUMMARY).read_text(encoding="utf-8"))
        digest = data.pop("sha256")
        whole = digest == _digest(data) and data["step"] == int(checkpoint.name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{SUMMARY} cannot be read ({type(error).__name__})") from error
    if not whole:
        raise ValueError(f"{SUMMARY} does not match its checksum")
    return data


def _digest(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def save(
    folder: Path,
    step: int,
    rank: int,
    part: dict[str, Any],
    about: dict[str, Any],
    meet: Callable[[], Any],
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write this rank's part of the checkpoint at `step`. All ranks call it at once; `meet` waits
    for all of them.

    `gather` gives the tensors of all ranks, [ranks, *shape]. Raises OSError, for instance if the
    disk is full. The checkpoint before then stays whole.
    """
    import torch

    same = same_as_first(part, gather)
    if rank:
        part = _changed(part, lambda place, tensor: AS_RANK_0 if place in same else tensor)
    final = folder / FOLDER / f"{step:09d}"
    aside = final.with_name(f".{final.name}")
    aside.mkdir(parents=True, exist_ok=True)
    with (aside / f"rank-{rank}.pt").open("wb") as file:
        torch.save(part, file)
        file.flush()
        force(file.fileno())
    meet()
    if rank == 0:
        about = {"format": FORMAT, "step_columns": [*STEP_COLUMNS], "step": step, **about}
        about["parts"] = {
            path.name: path.stat().st_size for path in sorted(aside.glob("rank-*.pt"))
        }
        with (aside / SUMMARY).open("w", encoding="utf-8") as text:
            json.dump(about | {"sha256": _digest(about)}, text)
            text.flush()
            force(text.fileno())
        sync(aside)
        shutil.rmtree(final, ignore_errors=True)  # one that could not be read
        aside.rename(final)
        sync(final.parent)
        for other in (folder / FOLDER).iterdir():  # only now, when the new one is on the disk
            if other != final:
                shutil.rmtree(other)
    meet()


def load(checkpoint: Path, rank: int) -> dict[str, Any]:
    """Load this rank's part, completely, on the CPU.

    Raises UnreadableError if a part that it needs is damaged.

    Then the checkpoint is moved away, so that the next attempt continues from an older one or
    begins anew.
    """
    import torch

    def read(number: int) -> dict[str, Any]:
        path = checkpoint / f"rank-{number}.pt"
        try:
            with zipfile.ZipFile(path) as file:  # torch.load does not look at checksums
                if bad := file.testzip():
                    raise zipfile.BadZipFile(f"{bad} has another checksum")
            part: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file has many
            if isinstance(error, OSError) or cause(error) == "out of memory":  # that may pass
                raise
            with suppress(OSError):  # another rank may have done it
                checkpoint.rename(checkpoint.with_name(f"damaged-{checkpoint.name}"))
            raise UnreadableError(
                f"{path} is damaged ({error}); it is ignored if the run is started again"
            ) from error
        return part

    part = read(rank)
    if rank:
        first = dict(tensors(read(0)))
        part = _changed(
            part, lambda place, value: first[place] if isinstance(value, str) else value
        )
    return part


def same_as_first(
    part: dict[str, Any], gather: Callable[[torch.Tensor], torch.Tensor]
) -> set[Place]:
    """Return the places where this rank's tensors equal those of rank 0, by their SHA-256.

    All ranks call it at once.
    """
    import torch

    places, digests = [], []
    for place, tensor in tensors(part):
        places.append(place)
        digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        digests.append(digest.digest()[:16])

    def of_first(own: bytes) -> bytes:
        return gather(torch.frombuffer(bytearray(own), dtype=torch.uint8))[0].numpy().tobytes()

    # Shards need not lie at the same places on all ranks: how many rank 0 has, and where, comes
    # first.
    header = len(places).to_bytes(8, "little") + hashlib.sha256(repr(places).encode()).digest()
    first = of_first(header)
    alike = first == header
    size = 16 * int.from_bytes(first[:8], "little")
    if not size:
        return set()
    theirs = of_first(b"".join(digests) if alike else bytes(size))
    if not alike:
        return set()
    return {place for n, place in enumerate(places) if digests[n] == theirs[16 * n : 16 * n + 16]}


def tensors(tree: Any, place: Place = ()) -> Iterator[tuple[Place, torch.Tensor]]:
    """Yield all tensors of a part, each with its place."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield place, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors(value, (*place, key))
    elif isinstance(tree, list | tuple):
        for number, value in enumerate(tree):
            yield from tensors(value, (*place, number))


def _changed(tree: Any, change: Callable[[Place, Any], Any], place: Place = ()) -> Any:
    """Return a part with `change(place, value)` in place of its tensors, and of the marks that
    stand for them.
    """
    import torch

    if isinstance(tree, torch.Tensor) or (isinstance(tree, str) and tree == AS_RANK_0):
        return change(place, tree)
    if isinstance(tree, dict):
        return {key: _changed(value, change, (*place, key)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(
            _changed(value, change, (*place, number)) for number, value in enumerate(tree)
        )
    return tree


def random_state() -> dict[str, torch.Tensor]:
    """Return the state of torch's generators on this rank."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Put back what `random_state` gave."""
    import torch

    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
