"""webdataset: tar files of pictures and labels, which WebDataset, DALI, `tar` and people can read,
each with an index.

A sample is three files of one key, which is the label and the picture's number by class and name
(as the raw form counts them):

    0007/0001234.cls    the label, from 0, in as many digits as the largest label has
    0007/0001234.jpg    the picture; or .png
    0007/0001234.json   its class, file name, height, width, and the CRC-32C of the picture

The index of a shard is DALI's (wds2idx, version 1.2): one line per sample with extension, offset,
size and name of each file. Loaders that read in any order map one list of all samples of a split,
which `index` leaves beside the manifest. What all forms of shards do alike: `_shards.py`. Naming:
https://github.com/webdataset/webdataset (a key ends at the first dot of a file's name).
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddlbench.core.files import opened
from ddlbench.data.form_parts import Checked
from ddlbench.data.forms import _kept
from ddlbench.data.forms._shards import ShardForm, index_of, index_text
from ddlbench.data.manifest import Manifest
from ddlbench.data.source import Entry, Picture

if TYPE_CHECKING:
    import numpy as np

PARTS = "shards"
FORMAT = 1  # raise it when the same pictures are to be written in another way
IN_PLACE = False
LABEL_OFFSET = 0
BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)  # of every tar file
VERSION = "v1.2"  # of DALI's index
PICTURES = ("jpg", "png")
FIELDS = 4  # of a file in the index: extension, offset, size, name
KEPT_AS = "samples"
LEAST_BYTES = 6 * BLOCK  # of a sample


class Sample(NamedTuple):
    """A sample as a shard's index describes it: where its bytes are, its number and label (its
    key), where its picture is.
    """

    offset: int
    size: int
    number: int
    label: int
    picture: int
    picture_bytes: int


class File(NamedTuple):
    """One file of a sample: its name, where its data begins (in the sample, or in the shard), and
    the data.
    """

    name: str
    offset: int
    data: bytes

    @property
    def extension(self) -> str:
        return self.name.rpartition("/")[2].partition(".")[2]


class Samples:
    """The pictures of a split, to be read in any order, as the raw form counts them."""

    def __init__(self, folder: Path, split: str) -> None:
        manifest = Manifest.read(folder)
        self.shards = [str(folder / name) for name in manifest.splits[split].sha256]
        kept = _kept.mapped(_kept.path(folder, manifest, split, KEPT_AS))
        self.places = (
            _table(folder, manifest, split)
            if kept is None
            else kept.view("<i8").reshape(-1, FIELDS)
        )
        self.labels = self.places[:, 3]
        if len(self) != (images := manifest.splits[split].images):
            raise ValueError(
                f"{folder}: {len(self)} samples in {split}, the manifest says {images}"
            )

    def __len__(self) -> int:
        return len(self.places)

    def read(self, index: int) -> bytes:
        """Read a picture's file. Raises OSError."""
        shard, offset, size, _ = self.places[index].tolist()
        # Opened each time: a thousand shards are more files than many systems let a process keep
        # open.
        descriptor = os.open(self.shards[shard], os.O_RDONLY)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def name(self, index: int) -> str:
        """Return where a picture lies, for messages."""
        shard, offset, _, label = self.places[index].tolist()
        return f"{self.shards[shard]} (picture at byte {offset}, label {label})"


samples = Samples


def _table(
    folder: Path, manifest: Manifest, split: str
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return an array with a row per sample, by number: position of the shard in the manifest,
    offset and size of the picture [bytes], label.

    Raises OSError, ValueError.
    """
    import numpy as np

    rows: list[int] = []
    numbers: list[int] = []
    for shard, name in enumerate(manifest.splits[split].sha256):
        for sample in _samples(folder / name):
            rows += (shard, sample.picture, sample.picture_bytes, sample.label)
            numbers.append(sample.number)
    table = np.array(rows, "<i8").reshape(-1, FIELDS)
    return table[np.argsort(numbers, kind="stable")]


_LISTS = _kept.KeptList(
    KEPT_AS, lambda folder, manifest, split: _table(folder, manifest, split).tobytes()
)
index, check_index = _LISTS.index, _LISTS.check_index


def check(
    folder: Path, name: str, digest: str, classes: tuple[str, ...], every: int, skipped: set[str]
) -> Checked:
    """Read every sample of a shard: headers, CRC, the index, the digest, the label; decode one in
    `every` pictures.
    """
    checked = Checked(size_bytes=(folder / name).stat().st_size)
    hashed = hashlib.sha256()
    places: list[Sample] = []
    lines = []
    try:
        places = _samples(folder / name)
    except (FileNotFoundError, ValueError) as error:
        checked.problems.append(f"{name}.idx: cannot be read ({error.__class__.__name__})")
    with opened(folder / name) as file:
        remaining, end = os.fstat(file.fileno()).st_size, 0
        for number, place in enumerate(places):
            size = place.size
            if place.offset != end or size < LEAST_BYTES:
                checked.problems.append(
                    f"{name}: record {number}: begins at {end}; the .idx says otherwise"
                )
                break
            if size > remaining:  # no more is read than is there: a damaged size can be any number
                checked.problems.append(
                    f"{name}: record {number}: ends early: {size - remaining} bytes are missing"
                )
                break
            data = file.read(size)
            hashed.update(data)
            remaining, end = remaining - size, end + size
            try:
                synset, encoded, pixels = _parse_sample(data, classes, place)
                lines.append(_line(_files(data), place.offset))
            except ValueError as error:
                checked.problems.append(f"{name}: record {number}: {error}")
                continue
            checked.count(f"{name}: record {number}", synset, number % every == 0, encoded, *pixels)
        else:
            if places and remaining != len(END):
                checked.problems.append(
                    f"{name}: has {remaining} bytes after the {len(places)} records of its .idx"
                )
            # DALI reads offsets that loaders of ours do not.
            if len(lines) == len(places) > 0 and index_text(folder / name) != _head(
                len(lines)
            ) + "".join(lines):
                checked.problems.append(f"{name}.idx: does not match what the shard holds")
        while rest := file.read(1 << 20):
            hashed.update(rest)
    if hashed.hexdigest() != digest:
        checked.problems.append(f"{name}: SHA-256 is not the manifest's")
    return checked


def _record(
    entry: Entry, picture: Picture, classes: tuple[str, ...], number: int, offset: int
) -> tuple[bytes, str]:
    """Return a sample as it lies on disk, and its line in the index."""
    import crc32c

    label = _digits(entry.label, classes)
    facts = {
        "class": classes[entry.label],
        "filename": entry.filename,
        "height": picture.height,
        "width": picture.width,
        "crc32c": crc32c.crc32c(picture.encoded),
    }
    pieces: list[bytes] = []
    files = []
    at = 0
    for extension, data in (
        ("cls", label.encode()),
        ("png" if picture.encoded.startswith(b"\x89PNG") else "jpg", picture.encoded),
        ("json", json.dumps(facts).encode()),
    ):
        file = File(f"{_key(label, number)}.{extension}", at + BLOCK, data)
        files.append(file)
        pieces += (_header(file.name, len(data)), data, bytes(-len(data) % BLOCK))
        at = file.offset + _padded(len(data))
    return b"".join(pieces), _line(
        files, offset
    )  # joined once: copying a picture takes as long as its CRC


def _key(label: str, number: int) -> str:
    return f"{label}/{number:07d}"


def _line(files: list[File], offset: int) -> str:
    """Return the line in the index of a sample that lies at `offset`."""
    return (
        " ".join(f"{f.extension} {offset + f.offset} {len(f.data)} {f.name}" for f in files) + "\n"
    )


def _head(count: int) -> str:
    return f"{VERSION} {count}\n"


def _digits(label: int, classes: tuple[str, ...]) -> str:
    """Return a label padded to the digits of the largest one: DALI reads them as one array."""
    return f"{label:0{len(str(len(classes) - 1))}d}"


# Headers differ in name and size only, so the rest is made once. Python's tarfile makes all of it
# each time: that takes three times as long, and would be a tenth of the writing.
@lru_cache(maxsize=1)
def _blank() -> tuple[bytes, int]:
    """Return a header without name and size, and the sum of its bytes."""
    info = tarfile.TarInfo("")
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = bytes(12)
    header[148:156] = b" " * 8
    return bytes(header), sum(header)


def _header(name: str, size: int) -> bytes:
    """Return a file's header in tar's format (POSIX ustar).

    It has no owner and no time: equal files give equal bytes.
    """
    blank, total = _blank()
    ascii_name, length = name.encode("ascii"), b"%011o\0" % size
    if len(ascii_name) > 100 or len(length) > 12:
        raise ValueError(f"{name}: {size} bytes do not fit into a tar file")
    check = b"%06o\0 " % (total + sum(ascii_name) + sum(length))
    return ascii_name + blank[len(ascii_name) : 124] + length + blank[136:148] + check + blank[156:]


def _padded(size: int) -> int:
    return size + -size % BLOCK


def _parse_sample(
    data: bytes, classes: tuple[str, ...], place: Sample
) -> tuple[str, bytes, tuple[int, int]]:
    """Parse (class, image file, height and width) from the bytes of a sample.

    Raises ValueError with a readable message.
    """
    import crc32c

    members = _files(data)
    keys = {file.name.removesuffix(f".{file.extension}") for file in members}
    files = {file.extension: file.data for file in members}
    kinds = [kind for kind in PICTURES if kind in files]
    if set(files) != {"cls", "json", *kinds} or len(kinds) != 1:
        raise ValueError(
            f"has the files {', '.join(sorted(files))}; it should have cls, json, and jpg or png"
        )
    encoded = files[kinds[0]]
    try:
        label, facts = int(files["cls"]), json.loads(files["json"])
        synset, size, crc = facts["class"], (facts["height"], facts["width"]), facts["crc32c"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"is not a picture's sample ({error!r})") from None
    if not 0 <= label < len(classes) or classes[label] != synset:
        raise ValueError(f"label {label} is not class {synset}")
    digits = _digits(label, classes)
    if (
        files["cls"] != digits.encode()
        or keys != {_key(digits, place.number)}
        or label != place.label
    ):
        raise ValueError(
            f"label {label} and key {', '.join(sorted(keys))} are not those of the .idx"
        )
    if data[place.picture - place.offset :][: place.picture_bytes] != encoded:
        raise ValueError("the .idx has a wrong offset or size of its picture")
    if crc32c.crc32c(encoded) != crc:
        raise ValueError("its picture's CRC is wrong")
    return synset, encoded, size


def _files(data: bytes) -> list[File]:
    """Parse the files of a sample, in order. Raises ValueError with a readable message."""
    files, at = [], 0
    while at < len(data):
        try:
            info = tarfile.TarInfo.frombuf(data[at : at + BLOCK], "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise ValueError(f"has a damaged header ({error})") from None
        at += BLOCK
        if not info.isreg() or not 0 <= info.size <= len(data) - at:
            raise ValueError(f"has a damaged header ({info.size} bytes)")
        files.append(File(info.name, at, data[at : at + info.size]))
        at += _padded(info.size)
    return files


def _samples(shard: Path) -> list[Sample]:
    """Read the samples in a shard's index. Raises OSError, ValueError."""
    text = index_text(shard)
    listed = []
    try:
        lines = iter(text.splitlines())
        version, count = next(lines, "").split()
        if version != VERSION:
            raise ValueError(f"version {version}, not {VERSION}")
        for line in lines:
            fields = line.split(" ")
            extensions = fields[::FIELDS]
            offsets = list(map(int, fields[1::FIELDS]))
            sizes = list(map(int, fields[2::FIELDS]))
            (at,) = (n for n, extension in enumerate(extensions) if extension in PICTURES)
            label, _, name = fields[FIELDS * at + 3].partition("/")
            number = int(name.partition(".")[0])
            if min(sizes) < 0 or min(offsets) < BLOCK:
                raise ValueError("impossible numbers")
            begin, end = offsets[0] - BLOCK, offsets[-1] + _padded(sizes[-1])
            listed.append(Sample(begin, end - begin, number, int(label), offsets[at], sizes[at]))
        if len(listed) != int(count):
            raise ValueError(f"{len(listed)} samples, its first line says {count}")
    except (ValueError, IndexError) as error:
        raise ValueError(f"{index_of(shard)}: is not an index of a shard: {error}") from None
    return listed


_SHARDS = ShardForm(
    suffix=".tar",
    beside_bytes=5 * BLOCK
    + BLOCK // 2
    + 130,  # three headers, label and json, half a block; index and list
    lists=2,  # one per split
    end=END,
    record=_record,
    head=_head,
    numbered=True,
)
parts, needs, write = _SHARDS.parts, _SHARDS.needs, _SHARDS.write
shards, part_names, glance = _SHARDS.shards, _SHARDS.part_names, _SHARDS.glance
