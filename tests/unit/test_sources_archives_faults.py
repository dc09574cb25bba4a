"""Faults in ImageNet's archives that look like an end, or that tarfile makes something else of than one line."""

import tarfile
import time
from pathlib import Path

import pytest
from ddlbench.data.datasets.imagenet import TRAIN, VAL
from ddlbench.data.source import BadImage, SourceError

from tests.unit.archives import (
    SYNSETS,
    archives,
    contents,
    member,
    opened,
    picture,
    refused,
    tar,
    train,
    val,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return archives(tmp_path)


def holes(data: bytes, at: int, length: int = 512) -> bytes:
    """Zeros from `at` on: what a sparse or preallocated download leaves."""
    return data[:at] + bytes(length) + data[at + length :]


def test_a_hole_where_a_header_should_be_is_no_end(folder: Path) -> None:
    whole = (folder / TRAIN).read_bytes()
    at = whole.index(b"n01443537.tar\0")
    (folder / TRAIN).write_bytes(holes(whole, at))
    assert f"{TRAIN}: is damaged after member" in refused(folder)
    assert "bytes follow: a download with holes?" in refused(folder)
    whole = (folder / VAL).read_bytes()
    (folder / TRAIN).write_bytes(train(contents()))
    (folder / VAL).write_bytes(holes(whole, whole.index(b"ILSVRC2012_val_00000002")))
    assert f"{VAL}: is damaged after member 'ILSVRC2012_val_00000003.JPEG'" in refused(folder, "val")


def test_a_hole_in_an_inner_archive_is_no_end(folder: Path) -> None:
    whole = (folder / TRAIN).read_bytes()
    at = whole.index(b"n01443537_8.JPEG\0")
    (folder / TRAIN).write_bytes(holes(whole, at))
    assert f"{TRAIN}: n01443537.tar: is damaged after member" in refused(folder)


def test_a_download_that_was_preallocated_is_refused(folder: Path) -> None:
    """Zeros to the end, as many as the rest of the archive would have been."""
    whole = (folder / TRAIN).read_bytes()
    with (folder / TRAIN).open("r+b") as file:
        file.truncate(whole.index(b"n01443537.tar\0"))
        file.truncate(50_000_000)
    assert "bytes follow: a download with holes?" in refused(folder)


def test_an_archives_own_padding_passes(folder: Path) -> None:
    before = opened(folder).entries("train")
    with (folder / TRAIN).open("ab") as file:
        file.write(bytes(512 * 1024))
    assert opened(folder).entries("train") == before


def test_archives_without_members_are_told(folder: Path) -> None:
    whole = (folder / TRAIN).read_bytes()
    (folder / TRAIN).write_bytes(tar())
    assert refused(folder) == f"{folder / TRAIN}: holds no archives of synsets"
    (folder / TRAIN).write_bytes(whole)
    (folder / VAL).write_bytes(tar())
    assert refused(folder, "val") == f"{folder / VAL}: holds no pictures"


@pytest.mark.parametrize("name", [".tar", "..tar", "...tar", ".hidden.tar"])
def test_an_inner_archive_without_a_name_is_no_class(folder: Path, name: str) -> None:
    (folder / TRAIN).write_bytes(tar(member("n01440764.tar"), member(f"train/{name}")))
    assert refused(folder) == f"{folder / TRAIN}: member {name!r} is not the archive of a synset, <synset>.tar"


def test_a_header_of_many_digits_takes_no_time(folder: Path) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    body = b"9" * 60_000 + b" path=a\n"
    info.type, info.size = tarfile.XHDTYPE, len(body)
    data = info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512) + tar(member("a.JPEG"))
    (folder / VAL).write_bytes(data)
    began = time.process_time()
    assert "is damaged after its beginning: a header with a number of more than 255 digits" in refused(folder, "val")
    assert time.process_time() - began < 2


def header(name: bytes, size: bytes, kind: bytes) -> bytes:
    """A header with its checksum; `size` is the field as it lies there."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:107], block[124 : 124 + len(size)], block[156:157], block[257:265] = (
        b"0000644",
        size,
        kind,
        b"ustar\x0000",
    )
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def pax(*records: tuple[str, str], size: bytes | None = None) -> bytes:
    """An extended header with these records."""
    text = b""
    for key, value in records:
        body = f" {key}={value}\n".encode("utf-8", "surrogateescape")
        length = len(body) + len(str(len(body) + 3))
        text += str(length).encode() + body
    told = f"{len(text):011o}\0".encode() if size is None else size
    return header(b"pax", told, b"x") + text.ljust(-(-len(text) // 512) * 512, b"\0")


HUGE = b"\x80" + (10**20).to_bytes(11, "big")

NEGATIVE = b"\xff" + (-600).to_bytes(11, "big", signed=True)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K", b"0", b"5", b"S"])
@pytest.mark.parametrize(
    "size", [HUGE, NEGATIVE, b"77777777777\0", b"nonsense!!!\0"], ids=["huge", "below", "8G", "text"]
)
def test_a_header_of_impossible_size_is_one_line(folder: Path, kind: bytes, size: bytes) -> None:
    good = tar(member("a.JPEG", picture(1)))
    (folder / VAL).write_bytes(header(b"x", size, kind) + good)
    assert refused(folder, "val").startswith(f"{folder / VAL}: ")


@pytest.mark.parametrize(
    "record",
    [("size", "-1"), ("size", str(10**30)), ("size", "nonsense"), ("path", ""), ("GNU.sparse.size", "9" * 30),
     ("GNU.sparse.map", "0,x"), ("GNU.sparse.major", "1"), ("path", "../../x.JPEG"), ("path", "bad\udcff.JPEG")],
)  # fmt: skip
def test_extended_headers_that_cannot_be_are_one_line(folder: Path, record: tuple[str, str]) -> None:
    archive = tar(*(member(f"ILSVRC2012_val_{n:08d}.JPEG", picture(n)) for n in range(1, 6)))
    (folder / VAL).write_bytes(pax(record) + tar(member("ILSVRC2012_val_00000006.JPEG", picture(6)))[:-9216] + archive)
    try:
        assert len(opened(folder).entries("val")) == 6  # a record that says nothing
    except SourceError as error:
        assert str(error).startswith(f"{folder / VAL}: ")
        assert "\n" not in str(error)


def test_names_that_are_not_utf_8_are_told(folder: Path) -> None:
    (folder / VAL).write_bytes(tar(member("bad\udcff.JPEG", picture(1))))
    assert r"member 'bad\udcff.JPEG' is refused: its name is not UTF-8" in refused(folder, "val")
    (folder / VAL).write_bytes(val())
    (folder / "validation_synsets.txt").write_bytes(b"n01\xff\n")
    assert "validation_synsets.txt: cannot be read: 'utf-8' codec" in refused(folder, "val")


def test_names_with_line_ends_and_escape_characters_are_printed_safely(folder: Path) -> None:
    (folder / VAL).write_bytes(tar(member("a\n\x1b[31mred.JPEG", b"no picture")))
    source = opened(folder)
    (folder / "validation_synsets.txt").write_text(f"{SYNSETS[0]}\n")
    (entry,) = source.entries("val")
    with pytest.raises(BadImage) as error:
        source.read(entry)
    assert r"a\n\x1b[31mred.JPEG: is neither JPEG nor PNG" in str(error.value)
    assert str(error.value).isprintable()
