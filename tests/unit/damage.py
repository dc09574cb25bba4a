"""Prepared forms, and everything that may be wrong with one: what is done to it, and what is said
of it.
"""

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ddlbench.data.forms.tfrecord import masked_crc
from ddlbench.data.forms.webdataset import BLOCK

SHARDS = {"tfrecord": "train-00001-of-00004", "webdataset": "train-00001-of-00004.tar"}
OTHERS = {form: shard.replace("1-of", "2-of") for form, shard in SHARDS.items()}
SHARD, OTHER = SHARDS["tfrecord"], OTHERS["tfrecord"]
TAR, OTHER_TAR = SHARDS["webdataset"], OTHERS["webdataset"]
Spoil = Callable[[Path], object]
Change = Callable[[bytes], bytes]


class Damage(NamedTuple):
    """What is done to a form, and what `verify` and `glance` say of it, one line each: "" is
    anything, None is not looked at.

    `most` is how many lines `verify` may say.
    """

    form: str
    spoil: Spoil
    verify: str | None
    glance: str | None = None
    most: int | None = None


def offsets(shard: Path) -> list[tuple[int, int]]:
    """(offset, size) of each record of a TFRecord file."""
    lines = Path(f"{shard}.idx").read_text().splitlines()
    return [(int(offset), int(size)) for offset, size in map(str.split, lines)]


def spoil(name: str, change: Change) -> Spoil:
    """A file of the form changes so."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def at(offset: int, data: bytes) -> Change:
    return lambda whole: whole[:offset] + data + whole[offset + len(data) :]


def flip(path: Path, place: int) -> None:
    """Change a byte."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


def flipped(record: int, place: Callable[[int], int]) -> Spoil:
    """A byte of a record of a TFRecord file, by the record's size."""

    def change(folder: Path) -> None:
        offset, size = offsets(folder / SHARD)[record]
        flip(folder / SHARD, offset + place(size))

    return change


def cut(record: int, more: int, index_too: bool = False) -> Spoil:
    """A TFRecord file ends so many bytes behind where a record begins, and its index before
    that.
    """

    def change(folder: Path) -> None:
        shard, index = folder / SHARD, folder / INDEX
        shard.write_bytes(shard.read_bytes()[: offsets(shard)[record][0] + more])
        if index_too:
            index.write_text("".join(index.read_text().splitlines(keepends=True)[:record]))

    return change


def relabelled(label: int | None = None) -> Spoil:
    """One record has another label and the right CRCs, as another tool would have written it."""

    def change(folder: Path) -> None:
        offset, size = offsets(folder / SHARD)[3]
        data = (folder / SHARD).read_bytes()
        example = bytearray(data[offset + 12 : offset + size - 4])
        key = b"image/class/label"
        place = (
            example.index(key) + len(key) + 6
        )  # the byte of a small number, behind the heads of its lists
        assert example[place] in (1, 2, 3)
        example[place] = example[place] % 3 + 1 if label is None else label
        crc = masked_crc(bytes(example)).to_bytes(4, "little")
        (folder / SHARD).write_bytes(
            data[: offset + 12] + bytes(example) + crc + data[offset + size :]
        )

    return change


def zeroed(folder: Path) -> None:
    offset, size = offsets(folder / SHARD)[3]
    spoil(SHARD, at(offset + size // 2, bytes(size - 20 - size // 2)))(folder)


def moved_record(folder: Path) -> None:
    """The index says that a record begins a byte later."""
    index = folder / INDEX
    lines = index.read_text().splitlines()
    offset, size = lines[4].split()
    lines[4] = f"{int(offset) + 1} {size}"
    index.write_text("\n".join(lines))


def copied(shard: str, other: str, *suffixes: str) -> Spoil:
    return lambda folder: [
        shutil.copy(folder / f"{other}{end}", folder / f"{shard}{end}") for end in suffixes
    ]


def exchanged(folder: Path) -> None:
    """Two shards changed places, with their indices: every CRC is right, only the manifest
    knows.
    """
    for end in ("", ".idx"):
        aside = (folder / f"{SHARD}{end}").rename(folder / "aside")
        (folder / f"{OTHER}{end}").rename(folder / f"{SHARD}{end}")
        aside.rename(folder / f"{OTHER}{end}")


def endless_length(folder: Path) -> None:
    """A record claims 8 exabytes, with a CRC that is right."""
    length = (1 << 63).to_bytes(8, "little")
    spoil(SHARD, at(0, length + masked_crc(length).to_bytes(4, "little")))(folder)


def strange_index(number: str) -> Spoil:
    """And the index is asked how long the record is."""

    def change(folder: Path) -> None:
        spoil(INDEX, lambda text: text.replace(b" ", f" {number}".encode(), 1))(folder)
        flip(folder / SHARD, 2)

    return change


def gone(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def text(name: str, content: bytes) -> Spoil:
    return spoil(name, lambda _: content)


CHANGED = "was changed"
DIGEST = f"{SHARD}: SHA-256"


tfrecord, raw = partial(Damage, "tfrecord"), partial(Damage, "raw")
INDEX = f"{SHARD}.idx"
PICTURE_FILE = "val/class1/00004.png"
NOT_THE_MANIFESTS = "val/class1/: its files"
CRC = {"length": "its length's CRC", "data": "its data's CRC"}
PLACES: dict[str, tuple[Callable[[int], int], str]] = {
    "length": (lambda _: 2, CRC["length"]),
    "length's CRC": (lambda _: 9, CRC["length"]),
    "first of the data": (lambda _: 12, CRC["data"]),
    "data": (lambda size: size // 2, CRC["data"]),
    "data's CRC": (lambda size: size - 1, CRC["data"]),
}
TFRECORD: dict[str, Damage] = {
    # The record, the shard's digest and the class that has one less: no other record, and no other
    # shard.
    **{
        f"a byte of {name}, record {record}": tfrecord(
            flipped(record, place),
            f"{SHARD}: record {record}: {said}\n{DIGEST}\n: train: class class",
            f"{SHARD}: {CHANGED}",
            most=3,
        )
        for record in (0, 3, 14)
        for name, (place, said) in PLACES.items()
    },
    **{
        f"cut {n}": tfrecord(cut(7, n), f"{SHARD}: record 7: ends early", f"{SHARD}: {CHANGED}")
        for n in (1, 20, 100)
    },
    **{
        f"index {number[:4]}": tfrecord(strange_index(number), SHARD, f"{INDEX}: {CHANGED}")
        for number in ("9" * 5000, str(10**30), str(10**12), "-5")
    },
    "cut between records": tfrecord(
        cut(7, 0), f"{SHARD}: ends after record 6", f"{SHARD}: {CHANGED}"
    ),
    "cut at its end": tfrecord(spoil(SHARD, lambda data: data[:-10]), "", f"{SHARD}: {CHANGED}"),
    "one less": tfrecord(cut(14, 0, index_too=True), "", f"{SHARD}: {CHANGED}"),
    "empty": tfrecord(text(SHARD, b""), "", f"{SHARD}: {CHANGED}"),
    "endless": tfrecord(endless_length, f"{SHARD}: record 0: ends early", f"{SHARD}: {CHANGED}"),
    "an index that says otherwise": tfrecord(
        moved_record, f"{SHARD}: record 4: lies at ", f"{INDEX}: {CHANGED}"
    ),
    "exchanged": tfrecord(exchanged, f"{DIGEST}\n{OTHER}: SHA-256", most=2),
    "nobody's shard": tfrecord(
        lambda folder: (folder / "train-00000-of-00003").touch(),
        "train-00000-of-00003: is not in",
        most=1,
    ),
    "label 98": tfrecord(relabelled(98), "", f"{SHARD}: {CHANGED}"),
    "label 0": tfrecord(relabelled(0), "", f"{SHARD}: {CHANGED}"),
    "another class": tfrecord(relabelled(), "", f"{SHARD}: {CHANGED}"),
    "zeroed": tfrecord(zeroed, "", f"{SHARD}: {CHANGED}"),
    "an index of the first": tfrecord(
        spoil(INDEX, lambda data: 15 * data.splitlines(keepends=True)[0]),
        "",
        f"{INDEX}: {CHANGED}",
    ),
    "a huge number": tfrecord(text(INDEX, b"0 1" + 30 * b"0"), "", f"{INDEX}: {CHANGED}"),
    "an endless number": tfrecord(text(INDEX, b"0 " + 5000 * b"9"), "", f"{INDEX}: {CHANGED}"),
    "an index of bytes": tfrecord(text(INDEX, b"\xff\n"), "", f"{INDEX}: {CHANGED}"),
    "an odd number": tfrecord(text(INDEX, b"0\n"), "", f"{INDEX}: {CHANGED}"),
    "no index": tfrecord(
        gone(INDEX), f"{INDEX}: cannot be read", f"{INDEX}: cannot be read: No such file"
    ),
    "no shard": tfrecord(
        gone(SHARD), f"{SHARD}: cannot be read", f"{SHARD}: cannot be read: No such file"
    ),
    "a folder": tfrecord(
        lambda f: [(f / SHARD).unlink(), (f / SHARD).mkdir()], f"{SHARD}: ", f"{SHARD}: "
    ),
    "copied with its index": tfrecord(copied(SHARD, OTHER, "", ".idx"), "", f"{SHARD}: {CHANGED}"),
}
RAW: dict[str, Damage] = {
    "a byte": raw(lambda folder: flip(folder / PICTURE_FILE, 50), NOT_THE_MANIFESTS),
    "a file less": raw(gone(PICTURE_FILE), NOT_THE_MANIFESTS, f"val/class1/: {CHANGED}"),
    "a file more": raw(
        lambda folder: shutil.copy(folder / PICTURE_FILE, folder / "val/class1/99999.png"),
        NOT_THE_MANIFESTS,
        f"val/class1/: {CHANGED}",
    ),
    "a folder less": raw(
        lambda folder: shutil.rmtree(folder / "val/class1"),
        "val/class1",
        "val/class1/: cannot be read: No such file",
    ),
    "a folder more": raw(
        lambda folder: (folder / "val/class9").mkdir(), "val/class9/: is not in", most=1
    ),
}


def tar(change: Change, said: str = TAR, end: str = "") -> Damage:
    """Of the shard, or of its index."""
    return Damage("webdataset", spoil(f"{TAR}{end}", change), said, f"{TAR}{end}: {CHANGED}")


def index(change: Change, said: str = f"{TAR}.idx: ") -> Damage:
    return tar(change, said, ".idx")


# Header, label, header: the first picture begins at 3 blocks, and each sample has 7 (a picture here
# has 2).
PICTURE = 3 * BLOCK
WEBDATASET: dict[str, Damage] = {
    "a picture's byte": tar(at(PICTURE + 70, b"\0\1\2"), "record 0: its picture's CRC"),
    "zeros": tar(at(PICTURE, bytes(BLOCK)), "record 0: its picture's CRC"),
    "a header's byte": tar(at(2 * BLOCK + 126, b"9"), "record 0: has a damaged"),
    "another label": tar(at(BLOCK, b"7"), "record 0: label 7"),
    "no label": tar(at(BLOCK, b"x"), "record 0: is not a picture"),
    "a label with a blank": tar(at(BLOCK, b" "), "record 0: is not a picture"),
    "cut": tar(lambda data: data[: 8 * BLOCK]),
    "cut at its end": tar(lambda data: data[:-10]),
    "empty": tar(lambda _: b""),
    "longer": tar(lambda data: data + bytes(BLOCK)),
    "no shard": Damage("webdataset", gone(TAR), f"{TAR}: cannot be read", f"{TAR}: cannot be read"),
    "copied": Damage("webdataset", copied(TAR, OTHER_TAR, "", ".idx"), TAR, TAR),
    "no index": Damage(
        "webdataset", gone(f"{TAR}.idx"), f"{TAR}.idx: cannot be read", f"{TAR}.idx: cannot be read"
    ),
    "another version": index(lambda data: b"v1.1" + data[4:]),
    "an empty index": index(lambda _: b""),
    "an index that lacks a line": index(lambda data: data[: data.rindex(b"cls")]),
    "an index of bytes": index(lambda _: b"\xff\xfe"),
    "a huge number": index(lambda data: data.replace(b" 512 ", b" " + b"9" * 30 + b" "), TAR),
    "an endless number": index(lambda data: data.replace(b" 512 ", b" " + b"9" * 5000 + b" "), TAR),
    "a size below 0": index(lambda data: data.replace(b" 512 1 ", b" 512 -1 ")),
    "the label of the index": index(
        lambda data: re.sub(rb"\d(/\d+\.\w+)", rb"7\1", data), f"{TAR}: record 0: label "
    ),
    "a number of the index": index(
        lambda data: re.sub(rb"/\d+\.", b"/0000099.", data), "those of the .idx"
    ),
    "where the index says a picture lies": index(
        lambda data: data.replace(b" 1536 ", b" 1537 "),
        f"{TAR}: record 0: the .idx has a wrong offset",
    ),
}
DAMAGE = {
    f"{damage.form}: {name}": damage
    for table in (RAW, TFRECORD, WEBDATASET)
    for name, damage in table.items()
}
