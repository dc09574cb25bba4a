"""The key `inference` of a study: whose models are asked, in which ways. `plan/infer.py` makes jobs of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.settings.config import complain, one_of


@dataclass(frozen=True)
class Inference:
    """The block whose models are asked, with which weights (`trained`), by which members of `inference/`.

    Members that split a model do so over each of `workers`; the others take one. `batches` are ascending.
    """

    runs: str
    trained: bool
    members: tuple[str, ...]
    workers: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int


def inference(path: Path, data: dict[str, Any], blocks: Iterable[str]) -> Inference | None:
    """What the checked study file says, None if nothing; `blocks` are its own. Raises ConfigError."""
    given = data.get("inference")
    if given is None:
        return None
    blocks = list(blocks)
    if given["runs"] not in blocks:
        allowed = one_of(blocks, given["runs"]) if blocks else "allowed: no inference in a study without runs"
        raise complain(path, "inference.runs", given["runs"], allowed)
    known = registry.members("inference")
    for member in given["members"]:
        if member not in known:
            raise complain(path, "inference.members", member, one_of(known, member))
    return Inference(
        runs=given["runs"],
        trained=given["weights"] == "trained",
        members=tuple(given["members"]),
        workers=tuple(given["workers"]),
        batches=tuple(sorted(given["batches"])),
        repeats=given["repeats"],
    )
