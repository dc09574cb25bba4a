"""CIFAR-10 and CIFAR-100 in their binary version (no pickle): what both share.

A row is one label byte, or two (coarse, fine), then 1024 bytes each of red, green and blue of 32x32
pixels: https://www.cs.toronto.edu/~kriz/cifar.html, where the archives' digests are published too.
"""

import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from ddlbench.data.datasets import Fixed
from ddlbench.data.datasets._files import absolute, checked, fetched, keep, one_line, read_words
from ddlbench.data.datasets._rows import Rows, Stretch
from ddlbench.data.source import Place, SourceError

ADDRESS = "https://www.cs.toronto.edu/~kriz"
PIXELS = 3 * 32 * 32


@dataclass(frozen=True, kw_only=True)
class Archive(Fixed):
    """One of the two published archives.

    `folder` is its top folder; `names` is its file with one class per line. The fine label is the
    last of the `label_bytes` before the pixels.
    """

    images: dict[str, int] = field(default_factory={"train": 50000, "val": 10000}.copy)
    dataset: str
    archive: str
    md5: str
    folder: str
    names: str
    files: dict[str, tuple[str, ...]]
    label_bytes: int

    def open_source(self, place: Place) -> Rows:
        """Return the pictures in the order of the files. Raises SourceError."""
        folder, described = _folder(self, place)
        classes = tuple(read_words(folder / self.names))
        if len(classes) != self.classes or list(classes) != sorted(classes):
            raise SourceError(
                f"{folder / self.names}: {len(classes)} names, expected {self.classes}, sorted"
            )
        step = self.label_bytes + PIXELS
        stretches: dict[str, tuple[Stretch, ...]] = {}
        for split, files in self.files.items():
            rows: list[Stretch] = []
            for file in files:
                data = (folder / file).read_bytes()
                if len(data) % step:
                    raise SourceError(
                        f"{folder / file}: {len(data)} bytes are not a multiple of the row size,"
                        f" {step}"
                    )
                labels = data[self.label_bytes - 1 :: step]
                number = sum(len(r.labels) for r in rows)
                rows.append(Stretch(str(folder / file), self.label_bytes, step, labels, number))
            stretches[split] = tuple(rows)
        return Rows(classes, described, (3, 32, 32), stretches).check_counts(self.images)


def _folder(published: Archive, place: Place) -> tuple[Path, dict[str, str]]:
    """Return the folder of the unpacked files, and a description of their origin for the
    manifest.
    """
    setting = f"data.sources.{published.dataset}"
    wanted = (published.names, *(file for files in published.files.values() for file in files))
    digest = f"md5:{published.md5}"
    if place.given is None:
        url = f"{ADDRESS}/{published.archive}"
        archive = fetched(url, published.md5, place.cache, setting)
        return _unpacked(archive, published, wanted, place.cache), {"source": url, "digest": digest}
    source = absolute(place.given)
    if source.is_file():
        unpacked = _unpacked(checked(source, published.md5), published, wanted, place.cache)
        return unpacked, {"source": str(source), "digest": digest}
    folder = source / published.folder if (source / published.folder).is_dir() else source
    for file in wanted:
        if not (folder / file).is_file():
            allowed = f"{setting} is {published.archive} or the folder unpacked from it"
            raise SourceError(f"{source}: holds no {file}; {allowed}")
    return folder, {
        "source": str(folder),
        "digest": "not checked: none is published for the unpacked files",
    }


def _unpacked(archive: Path, published: Archive, names: tuple[str, ...], cache: Path) -> Path:
    """Unpack the wanted files of the archive into the cache, and return their folder.

    Files that are there from an earlier time are compared with the archive, because only the
    archive's digest was checked.
    """
    folder = cache / published.folder
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for file in names:
                stream = tar.extractfile(tar.getmember(f"{published.folder}/{file}"))
                if stream is None:
                    raise SourceError(f"{archive}: {published.folder}/{file} is not a file")
                with stream:
                    keep(folder / file, stream.read())
    except (tarfile.TarError, EOFError, KeyError, zlib.error, OSError) as error:
        raise SourceError(f"{archive}: cannot be unpacked: {one_line(error)}") from None
    return folder
