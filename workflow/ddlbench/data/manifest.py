"""What lies in a prepared form: `manifest.json` beside the data, written last, so that what has one is whole.

`prepare.py` makes it; loaders and runs read counts and class names from it. Rule data_table prints some of them:
`python -m ddlbench.data.manifest <manifest>...`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NAME = "manifest.json"
SPLITS = ("train", "val")


@dataclass(frozen=True)
class Split:
    """One split of a form: images a class, bytes and SHA-256 a part (a shard, or one digest for a class folder).

    `listed` is the digest of the source's list of pictures; `skipped` has the reason for each one of them that is not
    in the form, by class/file name.
    """

    images: int
    images_per_class: dict[str, int]
    bytes: int
    sha256: dict[str, str]
    listed: str
    skipped: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """The contents of one form of one data set: the same for the same source, seed and versions, wherever and
    whenever it was made."""

    dataset: str
    form: str
    format: int  # the form's FORMAT
    root: str | None  # the tree that is used in place; None if the pictures lie beside the manifest
    classes: tuple[str, ...]
    label_offset: int  # what the form adds to a label that counts from 0
    seed: int
    source: dict[str, Any]  # what the source says of itself: paths or addresses, digests that were checked
    versions: dict[str, str]
    splits: dict[str, Split]

    @property
    def job(self) -> dict[str, Any]:
        """What decides the contents: a form or part of one that was made for another job is not used."""
        job = {key: getattr(self, key) for key in ("dataset", "form", "format", "root", "seed", "source")}
        return job | {"classes": list(self.classes), "listed": {s: split.listed for s, split in self.splits.items()}}

    def data(self, folder: Path) -> Path:
        """Where the pictures lie, given where the manifest lies."""
        return Path(self.root) if self.root else folder

    def write(self, folder: Path) -> None:
        """Write aside, then rename: a manifest is never half there."""
        aside = folder / f".{NAME}.{os.getpid()}"
        aside.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        aside.replace(folder / NAME)

    @classmethod
    def read(cls, folder: Path, name: str = NAME) -> Manifest:
        """The manifest of a prepared form. Raises FileNotFoundError if it was not prepared."""
        data: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        data["classes"] = tuple(data["classes"])
        data["splits"] = {name: Split(**split) for name, split in data["splits"].items()}
        return cls(**data)


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def print_table(manifests: Sequence[Path]) -> None:
    """A CSV row a form and split."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("dataset", "form", "split", "images", "classes", "bytes", "skipped", "manifest_sha256"))
    for path in manifests:
        manifest = Manifest.read(path.parent)
        for name, split in manifest.splits.items():
            what = (manifest.dataset, manifest.form, name)
            counts = (split.images, len(manifest.classes), split.bytes, len(split.skipped))
            table.writerow((*what, *counts, sha256(path.read_bytes())))


if __name__ == "__main__":
    print_table([Path(argument) for argument in sys.argv[1:]])
