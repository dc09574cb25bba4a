"""What lies in a prepared form: `manifest.json` beside the data, written last, so that what has one
is whole.

`prepare.py` makes it; loaders and runs read counts and class names from it. Rule data_table prints
some of them: `python -m ddlbench.data.manifest <manifest>...`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.core.files import aside, printable, read_bytes
from ddlbench.settings.config import one_of

NAME = "manifest.json"
# A second name of the manifest. Snakemake deletes a rule's outputs before it runs the rule, also
# when another workflow has just made them. The second name then still shows that the form is
# complete, and that ddlbench made it.
KEPT = f".{NAME}"
SPLITS = ("train", "val")


@dataclass(frozen=True)
class Split:
    """One split of a form: images per class, total bytes, one SHA-256 per part (a shard, a class
    folder).

    `listed` is the digest of the source's list of pictures. `skipped` has the reason why a picture
    of that list is not in the form, by class/file name.
    """

    images: int
    images_per_class: dict[str, int]
    bytes: int
    sha256: dict[str, str]
    listed: str
    skipped: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """The contents of one form of one data set: always the same for the same source, seed and
    versions.
    """

    dataset: str
    form: str
    format: int  # the form's FORMAT
    root: str | None  # the tree that is used in place; None if the pictures lie beside the manifest
    classes: tuple[str, ...]
    label_offset: int  # what the form adds to a label that counts from 0
    seed: int
    source: dict[
        str, Any
    ]  # the source's own description: paths or addresses, digests that were checked
    versions: dict[str, str]
    splits: dict[str, Split]

    @property
    def job(self) -> dict[str, Any]:
        """Return what decides the contents.

        A form or a part of one that was made for another job is not used.
        """
        job = {
            key: getattr(self, key)
            for key in ("dataset", "form", "format", "root", "seed", "source")
        }
        return job | {
            "classes": list(self.classes),
            "listed": {s: split.listed for s, split in self.splits.items()},
        }

    def digest(self) -> str:
        """Return a short digest that distinguishes it from other manifests."""
        return sha256(json.dumps(asdict(self)).encode())[:12]

    def data(self, folder: Path) -> Path:
        """Return the folder of the pictures, given the folder of the manifest."""
        return Path(self.root) if self.root else folder

    def write(self, folder: Path) -> None:
        """Write the manifest under both names, the hidden one last."""
        # A killed process may leave the hidden file. The owner is in its name.
        with aside(folder / NAME, folder / f"{KEPT}.new") as hidden:
            hidden.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        copy(folder / NAME, folder / KEPT)

    @classmethod
    def read(cls, folder: Path, name: str | None = None) -> Manifest:
        """Read the manifest of a prepared form, by this name or by either.

        Raises FileNotFoundError if the folder has none, OSError, ValueError if it cannot be
        understood; one line.
        """
        path = folder / (name or NAME)
        if name is None and not path.exists() and (folder / KEPT).exists():
            path = folder / KEPT
        try:
            data: dict[str, Any] = json.loads(read_bytes(path))
            data["classes"] = tuple(data["classes"])
            data["splits"] = {name: Split(**split) for name, split in data["splits"].items()}
            manifest = cls(**data)
            manifest._check()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path}: is not a manifest that this version of ddlbench can read: {error}"
            ) from None
        return manifest

    def faults(self) -> list[str]:
        """Return what cannot be true of a form of this version, one line each: numbers, names that
        do not fit.
        """
        form = registry.member("forms", self.form)
        here = {"format": form.FORMAT, "label_offset": form.LABEL_OFFSET}
        wrong = [
            f"{key} is {getattr(self, key)}, expected {value}"
            for key, value in here.items()
            if getattr(self, key) != value
        ]
        if len(set(self.classes)) < len(self.classes):
            wrong.append("a class is named twice")
        for name, split in self.splits.items():
            counts = split.images_per_class
            if list(counts) != list(self.classes):
                wrong.append(f"{name}: the classes of images_per_class are not those of classes")
            elif min(split.bytes, *counts.values(), 0) < 0 or split.images != sum(counts.values()):
                wrong.append(
                    f"{name}: {split.images} images, but images_per_class has"
                    f" {sum(counts.values())} in all"
                )
            for part, digest in split.sha256.items():
                if not part.startswith((f"{name}-", f"{name}/")) or ".." in Path(part).parts:
                    wrong.append(f"{name}: {part!r} is not a part of a form")
                elif not re.fullmatch("[0-9a-f]{64}", digest):
                    wrong.append(f"{name}: {part}: {digest[:80]!r} is not a SHA-256")
            strange = [key for key in split.skipped if key.partition("/")[0] not in counts]
            wrong += [
                f"{name}: {key!r} was skipped, but its class is unknown" for key in strange[:1]
            ]
        return [f"{NAME}: {fault}; prepare the form again" for fault in wrong]

    def _check(self) -> None:
        """Raise ValueError or TypeError if it names an unknown form or other splits, or a value has
        the wrong type.
        """
        forms = registry.members("forms")
        if self.form not in forms:
            raise ValueError(f"form {self.form!r}; {one_of(forms, self.form)}")
        if set(self.splits) != set(SPLITS):
            raise ValueError(f"splits {sorted(self.splits)}; allowed: {', '.join(SPLITS)}")
        texts = [self.dataset, *self.classes, *([] if self.root is None else [self.root])]
        numbers = [self.format, self.label_offset, self.seed]
        for split in self.splits.values():
            texts += [
                *split.sha256,
                *split.sha256.values(),
                *split.skipped,
                *split.skipped.values(),
                split.listed,
            ]
            numbers += [split.images, split.bytes, *split.images_per_class.values()]
        for values, type_ in ((texts, str), (numbers, int), ([self.source, self.versions], dict)):
            if wrong := [
                value for value in values if not isinstance(value, type_) or isinstance(value, bool)
            ]:
                raise TypeError(f"{wrong[0]!r} is not of type {type_.__name__}")


def finished_ns(folder: Path) -> int | None:
    """Return when the form was finished [ns since 1970]; None if it is not finished yet.

    It is the time of the hidden manifest. A person may set that time (touch) without making runs
    stale.
    """
    for name in (KEPT, NAME):
        with suppress(FileNotFoundError):
            return (folder / name).stat().st_mtime_ns
    return None


def copy(path: Path, to: Path) -> None:
    """Copy a file so that the copy appears complete or not at all.

    The copy has the original's time, so results made from the original do not become stale.
    """
    with aside(to, to.with_name(f"{KEPT}.copy-{socket.gethostname()}-{os.getpid()}")) as hidden:
        shutil.copy2(path, hidden)


def sha256(data: bytes) -> str:
    """Return the SHA-256 as hex digits."""
    return hashlib.sha256(data).hexdigest()


def print_table(manifests: Sequence[Path]) -> None:
    """Print one CSV row per form and split. Raises what `Manifest.read` raises."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(
        ("dataset", "form", "split", "images", "classes", "bytes", "skipped", "manifest_sha256")
    )
    for path in manifests:
        manifest = Manifest.read(path.parent)
        for name, split in manifest.splits.items():
            what = (manifest.dataset, manifest.form, name)
            counts = (split.images, len(manifest.classes), split.bytes, len(split.skipped))
            table.writerow((*what, *counts, sha256(path.read_bytes())))


if __name__ == "__main__":
    try:
        print_table([Path(argument) for argument in sys.argv[1:]])
    except (OSError, ValueError) as problem:
        sys.exit(printable(problem))
