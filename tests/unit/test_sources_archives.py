"""ImageNet from its official archives: small ones of the published layout, sound and faulty."""

import gzip
import hashlib
import io
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ddlbench.data.datasets import imagenet
from ddlbench.data.datasets.imagenet import TRAIN, VAL
from ddlbench.data.prepare import write_form
from ddlbench.data.source import BadImage, Place, SourceError
from PIL import Image

from tests.facts import missing, refuses
from tests.unit.archives import (
    GNU,
    PAX,
    SYNSETS,
    VALIDATION,
    archives,
    contents,
    member,
    opened,
    picture,
    refused,
    tar,
    train,
)
from tests.unit.targets import everything


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return archives(tmp_path)


@pytest.mark.parametrize("form", [GNU, PAX], ids=["gnu", "pax"])
def test_each_stretch_is_what_tarfile_extracts(folder: Path, form: int) -> None:
    path = folder / TRAIN
    path.write_bytes(train(contents(), form))
    extracted = {}
    with tarfile.open(path) as outer:
        for synset in outer:
            with tarfile.open(fileobj=outer.extractfile(synset)) as inner:
                extracted |= {info.name: inner.extractfile(info).read() for info in inner}
    source = opened(folder)
    assert source.classes == SYNSETS
    assert source.tree is None
    entries = source.entries("train")
    assert [e.label for e in entries] == sorted(e.label for e in entries)
    assert all(e.filename.startswith(SYNSETS[e.label]) for e in entries)
    raw = path.read_bytes()
    assert {e.filename: raw[e.offset : e.offset + e.size] for e in entries} == extracted
    assert extracted == {n: d for files in contents().values() for n, d in files.items()}
    assert entries == opened(folder).entries("train")


def test_png_and_cmyk_become_rgb_jpeg_and_the_rest_stays(folder: Path) -> None:
    source = opened(folder)
    files = {n: d for by_name in contents().values() for n, d in by_name.items()}
    repaired = {
        e.filename for e in source.entries("train") if source.read(e).encoded != files[e.filename]
    }
    assert repaired == {"n02105855_2933.JPEG", "n01440764_1.JPEG"}
    for entry in source.entries("train"):
        got = source.read(entry)
        with (
            Image.open(io.BytesIO(got.encoded)) as image,
            Image.open(io.BytesIO(files[entry.filename])) as was,
        ):
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert image.size == was.size == (got.width, got.height)


def test_validation_pictures_have_the_synset_of_their_line(folder: Path) -> None:
    def labels() -> list[str]:
        source = opened(folder)
        entries = source.entries("val")
        assert [e.filename for e in entries] == [
            f"ILSVRC2012_val_{n:08d}.JPEG" for n in range(1, 7)
        ]
        assert [source.read(e).encoded for e in entries] == [picture(n) for n in range(1, 7)]
        return [source.classes[e.label] for e in entries]

    assert labels() == VALIDATION
    (folder / "validation_synsets.txt").rename(
        folder / "imagenet_2012_validation_synset_labels.txt"
    )
    assert labels() == VALIDATION


def devkit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kit with numbers that are not in the order of the synsets, as the real one's are not."""
    from scipy.io import savemat

    numbers = {SYNSETS[0]: 3, SYNSETS[1]: 1, SYNSETS[2]: 2}
    fields = [
        ("ILSVRC2012_ID", float),
        ("WNID", object),
        ("words", object),
        ("num_children", float),
    ]
    rows = [(number, synset, "tench", 0) for synset, number in numbers.items()] + [
        (4, "n00001740", "entity", 3)
    ]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array(rows, dtype=fields)[:, None]})
    truth = "".join(f"{numbers[s]}\n" for s in VALIDATION).encode()
    path = folder / imagenet.DEVKIT
    with tarfile.open(path, "w:gz") as kit:
        for name, data in (
            ("meta.mat", meta.getvalue()),
            ("ILSVRC2012_validation_ground_truth.txt", truth),
        ):
            info, data = member(f"ILSVRC2012_devkit_t12/data/{name}", data)
            kit.addfile(info, io.BytesIO(data))
    monkeypatch.setitem(imagenet.MD5, imagenet.DEVKIT, hashlib.md5(path.read_bytes()).hexdigest())
    return path


def test_the_devkit_says_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = opened(folder).entries("val")
    (folder / "validation_synsets.txt").unlink()
    devkit(folder, monkeypatch)
    assert opened(folder).entries("val") == given


def test_another_devkit_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "validation_synsets.txt").unlink()
    assert missing(refused(folder, "val"), "classes", "ILSVRC2012_img_val.tar") == []
    path = devkit(folder, monkeypatch)
    path.write_bytes(path.read_bytes()[:-200])
    assert missing(refused(folder, "val"), f"{imagenet.DEVKIT}: ", "MD5") == []
    monkeypatch.setitem(imagenet.MD5, imagenet.DEVKIT, hashlib.md5(path.read_bytes()).hexdigest())
    assert f"{imagenet.DEVKIT}: cannot be read" in refused(folder, "val")


def test_a_picture_in_an_archive_that_cannot_be_used_is_named(folder: Path) -> None:
    by_synset = contents()
    by_synset["n01440764"]["n01440764_7.JPEG"] = b"no picture"
    (folder / TRAIN).write_bytes(train(by_synset))
    source = opened(folder)
    entry = next(e for e in source.entries("train") if e.filename == "n01440764_7.JPEG")
    with refuses(BadImage, "ILSVRC2012_img_train.tar: n01440764_7.JPEG: ", "JPEG nor PNG"):
        source.read(entry)
    with refuses(BadImage, "ILSVRC2012_img_train.tar: ", 10, 10**9, "found 0"):
        source.read(entry._replace(offset=10**9))


REFUSED = {
    "symlink": (
        member("l.JPEG", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "'l.JPEG' is refused",
    ),
    "hard link": (member("h.JPEG", type=tarfile.LNKTYPE, linkname="x"), "'h.JPEG' is refused"),
    "device": (member("d.JPEG", type=tarfile.BLKTYPE), "'d.JPEG' is refused"),
    "pipe": (member("p.JPEG", type=tarfile.FIFOTYPE), "'p.JPEG' is refused"),
    "sparse": (member("s.JPEG", type=tarfile.GNUTYPE_SPARSE), "'s.JPEG' is refused"),
    "twice": (member("N01440764_9.jpeg", picture(1)), "same name: n01440764_9.jpeg"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("where", ["inner", "val"])
def test_a_member_that_is_neither_file_nor_folder_is_refused(
    folder: Path, where: str, case: str
) -> None:
    bad, says = REFUSED[case]
    archive = tar(member("n01440764_9.JPEG", picture(1)), bad)
    if where == "val":
        (folder / VAL).write_bytes(archive)
        message = refused(folder, "val")
        assert message.startswith(f"{folder / VAL}: ")
    else:
        (folder / TRAIN).write_bytes(tar(member("n01440764.tar", archive)))
        message = refused(folder)
        assert message.startswith(f"{folder / TRAIN}: n01440764.tar: ")
    assert says in message


def test_an_archive_that_ends_early_is_refused_wherever_it_is_cut(folder: Path) -> None:
    path = folder / TRAIN
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        end = archive.offset if archive.getmembers() else 0  # of the last member's data
    for length in [*range(0, end, 1021), *range(0, end + 1, 512)]:
        path.write_bytes(whole[:length])
        assert f"{TRAIN}: " in refused(folder), length
    path.write_bytes(whole[: end + 512])
    assert opened(folder).entries("train")


def test_an_inner_archive_that_ends_early_is_refused(folder: Path) -> None:
    inner = tar(member("a.JPEG", picture(1)), member("b.JPEG", picture(2)))
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        end = archive.offset if archive.getmembers() else 0
    other = member("n02105855.tar", tar(member("c.JPEG", picture(3))))
    for length in range(0, end + 1, 256):
        (folder / TRAIN).write_bytes(tar(member("n01440764.tar", inner[:length]), other))
        assert f"{TRAIN}: n01440764.tar: " in refused(folder), length


def test_a_missing_validation_archive_is_told(folder: Path) -> None:
    (folder / VAL).unlink()
    assert missing(refused(folder, "val"), f"{VAL}: ", "No such file") == []


def flipped(data: bytes, at: bytes, more: int) -> bytes:
    place = data.index(at) + more
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


GOOD = member("n01440764.tar", tar(member("a.JPEG", picture(1))))
LIST = "validation_synsets.txt"
NO_SYNSET = "{!r} is not"
# The file, what becomes of its bytes, and what is said behind its name.
FAULTS: list[tuple[str, Callable[[bytes], bytes], str]] = [
    (TRAIN, lambda _: tar(GOOD, REFUSED["symlink"][0]), "'l.JPEG' is refused"),
    (TRAIN, lambda _: tar(GOOD, member("a.JPEG", picture(1))), "'a.JPEG' is not"),
    (TRAIN, lambda _: tar(GOOD, member("x/N01440764.tar", GOOD[1])), "same name: n01440764"),
    *(
        (
            TRAIN,
            lambda _, inner=inner: tar(member("n01440764.tar", inner)),
            "n01440764.tar: holds no pictures",
        )
        for inner in (
            tar(),
            tar(member("readme.txt", b"x")),
            tar(member("n01", type=tarfile.DIRTYPE)),
        )
    ),
    *(
        (
            TRAIN,
            lambda _, name=name: tar(member("n01440764.tar"), member(f"train/{name}")),
            NO_SYNSET.format(name),
        )
        for name in (".tar", "..tar", "...tar", ".hidden.tar")
    ),
    (TRAIN, lambda _: b"", "after its beginning"),
    (TRAIN, lambda _: b"text" * 999, "after its beginning"),
    (TRAIN, gzip.compress, "after its beginning"),
    (TRAIN, lambda _: tar(), "holds no archives of synsets"),
    (VAL, lambda _: tar(), "holds no pictures"),
    (
        VAL,
        lambda data: flipped(data, b"ILSVRC2012_val_00000003", 150),  # in the checksum of a header
        "member 'ILSVRC2012_val_00000004.JPEG'",
    ),
    (LIST, lambda _: b"n01\xff\n", "cannot be read: 'utf-8' codec"),
    (LIST, lambda text: text.replace(b"n01443537", b"n09999999"), "n09999999 is not a class"),
    (LIST, lambda text: text + b"n01443537\n", "7 lines for the 6 pictures in"),
]


@pytest.mark.parametrize(
    ("file", "change", "says"), FAULTS, ids=[f"{file}: {says}" for file, _, says in FAULTS]
)
def test_what_is_wrong_with_an_archive_is_told(
    folder: Path, file: str, change: Callable[[bytes], bytes], says: str
) -> None:
    (folder / file).write_bytes(change((folder / file).read_bytes()))
    message = refused(folder, "train" if file == TRAIN else "val")
    assert message.startswith(f"{folder / file}: ") and says in message


def test_an_archives_own_padding_passes(folder: Path) -> None:
    before = opened(folder).entries("train")
    with (folder / TRAIN).open("ab") as file:
        file.write(bytes(512 * 1024))
    assert opened(folder).entries("train") == before


def test_a_header_of_many_digits_takes_no_time(folder: Path) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    body = b"9" * 60_000 + b" path=a\n"
    info.type, info.size = tarfile.XHDTYPE, len(body)
    data = info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512) + tar(member("a.JPEG"))
    (folder / VAL).write_bytes(data)
    began = time.process_time()
    assert missing(refused(folder, "val"), "damaged", "header", 255) == []
    assert time.process_time() - began < 2


def test_other_archives_than_those_that_were_published_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A download with holes has good headers only. What was compared is not read again, until it is
    changed.
    """
    place = Place(str(folder), folder / "cache")
    for name in (TRAIN, VAL):
        monkeypatch.setitem(
            imagenet.MD5, name, hashlib.md5((folder / name).read_bytes()).hexdigest()
        )
    source = imagenet.open_source(place)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        str(folder / name) for name in (TRAIN, VAL)
    ]
    assert imagenet.open_source(place) == source
    assert capsys.readouterr().out == ""
    for name in (VAL, TRAIN):
        path = folder / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\0"))
        with refuses(SourceError, f"{name}: ", "MD5"):
            imagenet.open_source(place)
        path.write_bytes(whole)


@pytest.mark.more
def test_names_that_lead_out_lead_nowhere(folder: Path) -> None:
    """Nothing is unpacked, and only the last part of a name is used."""
    names = ["/etc/cron.d/1.JPEG", "a/../../../2.JPEG", "../3.JPEG"]
    (folder / TRAIN).write_bytes(
        tar(member("../n01440764.tar", tar(*(member(n, picture(1)) for n in names))))
    )
    (folder / VAL).write_bytes(tar(*(member(n, picture(n == "../3.JPEG")) for n in names)))
    (folder / "validation_synsets.txt").write_text("n01440764\n" * 3)
    source = opened(folder)
    assert [e.filename for e in source.entries("train")] == ["1.JPEG", "2.JPEG", "3.JPEG"]
    before = everything(folder.parent)
    for form in ("raw", "tfrecord", "webdataset"):
        write_form(lambda: source, "imagenet", form, folder / "data" / form)
    shutil.rmtree(folder / "data")
    assert everything(folder.parent) == before


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
    "size",
    [HUGE, NEGATIVE, b"77777777777\0", b"nonsense!!!\0"],
    ids=["huge", "below", "8G", "text"],
)
def test_a_header_of_impossible_size_is_one_line(folder: Path, kind: bytes, size: bytes) -> None:
    good = tar(member("a.JPEG", picture(1)))
    (folder / VAL).write_bytes(header(b"x", size, kind) + good)
    message = refused(folder, "val")
    assert message.startswith(f"{folder / VAL}: ") or (
        kind == b"5" and "6 lines for the 1 pictures" in message
    )


@pytest.mark.parametrize(
    "record",
    [("size", "-1"), ("size", str(10**30)), ("size", "nonsense"), ("path", ""), ("GNU.sparse.size", "9" * 30),
     ("GNU.sparse.map", "0,x"), ("GNU.sparse.major", "1"), ("path", "../../x.JPEG"), ("path", "bad\udcff.JPEG")],
)  # fmt: skip
def test_extended_headers_that_cannot_be_are_one_line(
    folder: Path, record: tuple[str, str]
) -> None:
    archive = tar(*(member(f"ILSVRC2012_val_{n:08d}.JPEG", picture(n)) for n in range(1, 6)))
    (folder / VAL).write_bytes(
        pax(record) + tar(member("ILSVRC2012_val_00000006.JPEG", picture(6)))[:-9216] + archive
    )
    try:
        assert len(opened(folder).entries("val")) == 6  # a record that says nothing
    except SourceError as error:
        assert str(error).startswith(f"{folder / VAL}: ")
        assert "\n" not in str(error)


def test_names_with_line_ends_and_escape_characters_are_printed_safely(folder: Path) -> None:
    (folder / VAL).write_bytes(tar(member("a\n\x1b[31mred.JPEG", b"no picture")))
    source = opened(folder)
    (folder / "validation_synsets.txt").write_text(f"{SYNSETS[0]}\n")
    (entry,) = source.entries("val")
    with pytest.raises(BadImage) as error:
        source.read(entry)
    assert missing(error.value, r"a\n\x1b[31mred.JPEG: ", "JPEG nor PNG") == []
    assert str(error.value).isprintable()
