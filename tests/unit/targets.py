"""Forms and trees for tests of where a form is put."""

import subprocess
from pathlib import Path

from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import write_form

from tests.sources import picture, some

FORMS = ("raw", "tfrecord")


def made(folder: Path, seed: int = 1, form: str = "tfrecord") -> Manifest:
    return write_form(lambda: some(60, 20), "some", form, folder, seed)


def imagenet(folder: Path, classes: tuple[str, ...] = ("n01", "n02")) -> Path:
    """A tree of ImageNet's shape, a user's own."""
    for number, name in enumerate(
        f"{split}/{c}/{c}_{split}" for split in ("train", "val") for c in classes
    ):
        path = folder / f"{name}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number, kind="JPEG"))
    return folder


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line says no."""
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    for word in words:
        assert word in line


def everything(folder: Path) -> dict[str, object]:
    """All files, folders and links under a folder; locks, caches and what was just begun aside left
    out.
    """
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not any(part.endswith((".lock", ".partial", "fetched")) for part in Path(name).parts):
            found[name] = (
                str(path.readlink())
                if path.is_symlink()
                else path.read_bytes()
                if path.is_file()
                else None
            )
    return found
