"""Sources of pictures: ImageNet from a site's own tree of class folders, and pictures that weigh
what ImageNet's do.

What goes into a form: JPEGs as they are, PNG and CMYK made RGB JPEG, everything else refused by
name.
"""

import io
import os
import pickle
import struct
import zlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from ddlbench.data.datasets import _files, synthetic_imagenet
from ddlbench.data.datasets.imagenet import open_source
from ddlbench.data.pictures import encode, repaired
from ddlbench.data.source import BadImage, Entry, Place, SourceError
from PIL import Image

from tests.facts import missing, refuses
from tests.unit.archives import opened, refused
from tests.unit.spoiled import bad_input


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two synsets, three pictures to train and two to validate, each of another size."""
    from PIL import Image

    root = tmp_path / "ILSVRC2012"
    names = [
        "train/n02/b.JPEG",
        "train/n01/z.JPEG",
        "train/n01/a.JPEG",
        "val/n02/y.JPEG",
        "val/n01/x.JPEG",
    ]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 10)).save(root / name, "JPEG")
    return root


def test_pictures_come_by_class_and_name_with_their_size(tree: Path) -> None:
    source = opened(tree)
    assert source.classes == ("n01", "n02")
    assert source.tree == tree
    entries = source.entries("train")
    assert [(e.filename, e.label) for e in entries] == [("a.JPEG", 0), ("z.JPEG", 0), ("b.JPEG", 1)]
    assert [source.read(e)[1:] for e in entries] == [(10, 22), (10, 21), (10, 20)]
    assert source.read(entries[0]).encoded == (tree / "train/n01/a.JPEG").read_bytes()
    assert [e.label for e in source.entries("val")] == [0, 1]


def test_a_path_from_the_working_directory_or_with_links(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.parent / "link").symlink_to(tree)
    (tree / "train/n01/l.JPEG").symlink_to(tree / "train/n02/b.JPEG")
    monkeypatch.chdir(tree.parent)
    source = opened(Path("link"))
    assert source.tree == tree.parent / "link"
    monkeypatch.chdir("/")
    assert len([source.read(e) for e in source.entries("train")]) == 4


def test_files_that_are_not_named_like_pictures_are_passed_over(tree: Path) -> None:
    for name in (
        "train/n01/.a.JPEG",
        "train/n01/a.txt",
        "train/.cache/a.JPEG",
        "train/list.txt",
        "train/n01/@eaDir/a.JPEG",
    ):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("no picture")
    (tree / "train/n01/c.jpg").write_bytes((tree / "train/n01/a.JPEG").read_bytes())
    assert [e.filename for e in opened(tree).entries("train")] == [
        "a.JPEG",
        "c.jpg",
        "z.JPEG",
        "b.JPEG",
    ]
    (tree / "train/n01/sub").mkdir()
    (tree / "train/n01/sub/a.JPEG").write_text("a picture")
    with refuses(SourceError, "sub/a.JPEG: ", "folder"):
        opened(tree).entries("train")


def test_a_file_that_is_no_picture_is_told_when_it_is_read(tree: Path) -> None:
    (tree / "train/n02/b.JPEG").write_text("no picture")
    source = opened(tree)
    *good, bad = source.entries("train")
    assert len([source.read(e) for e in good]) == 2
    with refuses(BadImage, "train/n02/b.JPEG: ", "JPEG nor PNG"):
        source.read(bad)
    (tree / "train/n02/b.JPEG").unlink()
    with refuses(BadImage, "train/n02/b.JPEG: ", "No such file"):
        source.read(bad)


def test_an_unset_folder_is_told() -> None:
    with refuses(SourceError, "imagenet: ", "data.sources.imagenet"):
        open_source(Place(None, Path()))


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with refuses(
        SourceError, "nowhere: ", "train/", "ILSVRC2012_img_train.tar", "data.sources.imagenet"
    ):
        opened(tmp_path / "nowhere")


def flattened(tree: Path) -> None:
    for path in sorted((tree / "val").rglob("*.JPEG")):
        path.rename(tree / "val" / path.name)
        path.parent.rmdir()


def emptied(tree: Path) -> None:
    (tree / "train/n01/a.JPEG").rename(tree / "train/n01/a.txt")
    (tree / "train/n01/z.JPEG").unlink()


# What is done to the tree, the split that is asked for, and what is said.
@pytest.mark.parametrize(
    ("spoil", "split", "facts"),
    [
        (flattened, "val", ("val: ", "no class folders")),
        (lambda tree: rmtree(tree / "val"), "val", ("val: ", "No such file", "data.sources")),
        (
            lambda tree: (tree / "val/n02").rename(tree / "val/n03"),
            "val",
            ("val/n03: ", "not a class", "train"),
        ),
        (emptied, "train", ("train/n01: ", "no pictures", ".jpeg, .jpg, .png")),
        (
            lambda tree: (tree / "train/n01/A.jpeg").touch(),
            "train",
            ("train/n01: ", "2 files", "a.jpeg"),
        ),
    ],
)
def test_what_is_wrong_with_a_tree_is_told(
    tree: Path, spoil: Any, split: str, facts: tuple[str, ...]
) -> None:
    spoil(tree)
    assert missing(refused(tree, split), *facts) == []


def made(given: str | None) -> Any:
    return synthetic_imagenet.open_source(Place(given, Path("nowhere")))


def test_the_default_is_what_the_constants_say() -> None:
    source = made(None)
    assert {
        s: len(source.entries(s)) for s in synthetic_imagenet.IMAGES
    } == synthetic_imagenet.IMAGES
    assert len(source.classes) == synthetic_imagenet.NUM_CLASSES
    assert not Path("nowhere").exists()


def test_count_and_classes_are_as_asked_for() -> None:
    source = made("train=70, val=30, classes=7")
    assert source.classes == tuple(sorted(source.classes))
    for split, count in (("train", 70), ("val", 30)):
        entries = source.entries(split)
        assert len({e.filename for e in entries}) == len(entries) == count
        assert set(np.bincount([e.label for e in entries])) <= {count // 7, count // 7 + 1}
    assert source.described == {
        "source": "made here",
        "train": 70,
        "val": 30,
        "classes": 7,
        "seed": 1,
    }


def test_every_process_makes_the_same_bytes() -> None:
    source = made("train=8,val=2,classes=2")
    entries = source.entries("train")
    here = [source.read(entry) for entry in entries]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert (
            list(pool.map(pickle.loads(pickle.dumps(source)).read, reversed(entries))) == here[::-1]
        )
    others = made("train=8,val=2,classes=2,seed=2"), made("train=9,val=9,classes=2")
    assert others[0].read(entries[0]) != here[0]
    assert others[1].read(entries[0]) == here[0], "more pictures leave those before as they are"
    assert source.read(source.entries("val")[0]) != here[0]


@pytest.mark.more
def test_they_weigh_and_measure_what_those_of_imagenet_do() -> None:
    source = made("train=300,val=10,classes=10")
    pictures = [source.read(entry) for entry in source.entries("train")]
    assert 100e3 < np.mean([len(p.encoded) for p in pictures]) < 125e3
    assert 470 < np.mean([p.width for p in pictures]) < 530
    assert 350 < np.mean([p.height for p in pictures]) < 400
    assert len({(p.height, p.width) for p in pictures}) > 50
    for picture in pictures[:20]:
        assert repaired(picture.encoded, "it") == picture
        with Image.open(io.BytesIO(picture.encoded)) as image:
            assert image.convert("RGB").size == (picture.width, picture.height)


def test_classes_can_be_told_apart() -> None:
    """By the nearest mean of thumbnails, chance is 0.1."""
    source = made("train=150,val=50,classes=10")

    def thumbnails(split: str) -> tuple[Any, Any]:
        entries = source.entries(split)
        small = [Image.open(io.BytesIO(source.read(e).encoded)).resize((8, 6)) for e in entries]
        return np.stack([np.asarray(s, float).ravel() for s in small]), np.array(
            [e.label for e in entries]
        )

    x, y = thumbnails("train")
    means = np.stack([x[y == label].mean(0) for label in range(10)])
    x, y = thumbnails("val")
    nearest = ((x[:, None] - means) ** 2).sum(2).argmin(1)
    assert (nearest == y).mean() > 0.9


@pytest.mark.parametrize(("given", "facts"), bad_input("synthetic"))
def test_text_that_cannot_be_understood_is_told(given: str, facts: tuple[str, ...]) -> None:
    with refuses(SourceError, "data.sources.synthetic-imagenet: ", *facts):
        made(given)


RED = (200, 30, 40)


def jpeg(
    mode: str = "RGB", size: tuple[int, int] = (37, 21), colour: Any = RED, **options: Any
) -> bytes:
    return encode(Image.new(mode, size, colour), "JPEG", **options)


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header says so, without pixels; the CRCs are right."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [header, b"IDAT", b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


@pytest.mark.parametrize(
    "encoded",
    [
        jpeg(),
        jpeg(progressive=True),
        jpeg("L", colour=90),
        jpeg(comment=b"\xff\xd9" * 99),
        jpeg(
            exif=b"Exif\0\0" + jpeg(size=(5, 5))
        ),  # a thumbnail has a header and an end of its own
        jpeg() + b"\0\0what a camera appends\xff",
        jpeg()[:2] + b"\xff\xff\xff" + jpeg()[2:],
    ],
    ids=["baseline", "progressive", "grey", "comment", "thumbnail", "trailing", "fill-bytes"],
)
def test_a_jpeg_passes_as_it_is(encoded: bytes) -> None:
    assert repaired(encoded, "a.JPEG") == (encoded, 21, 37)
    Image.open(io.BytesIO(encoded)).load()


@pytest.mark.parametrize(
    "encoded",
    [
        encode(Image.new("RGB", (37, 21), RED), "PNG"),
        encode(Image.new("RGBA", (37, 21), (*RED, 255)), "PNG"),
        encode(Image.new("RGB", (37, 21), RED).convert("P", palette=Image.Palette.ADAPTIVE), "PNG"),
        encode(Image.new("RGB", (37, 21), RED).convert("CMYK"), "JPEG", quality=100),
    ],
    ids=["png", "png-with-alpha", "png-with-palette", "cmyk"],
)
def test_png_and_cmyk_become_rgb_jpeg_of_the_same_size_and_colour(encoded: bytes) -> None:
    picture = repaired(encoded, "n02105855_2933.JPEG")
    assert (picture.height, picture.width) == (21, 37)
    with Image.open(io.BytesIO(picture.encoded)) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (37, 21))
        assert all(abs(a - b) <= 4 for a, b in zip(image.getpixel((9, 9)), RED, strict=True))


def with_frame(
    marker: int = 0xC0, bits: int = 8, size: tuple[int, int] = (21, 37), components: int = 3
) -> bytes:
    """A JPEG whose frame header says something else: it is cheap to say so."""
    encoded = bytearray(jpeg())
    at = encoded.index(b"\xff\xc0")
    encoded[at + 1] = marker
    encoded[at + 4 : at + 10] = struct.pack(">BHHB", bits, *size, components)
    return bytes(encoded)


@pytest.mark.parametrize(
    ("encoded", "facts"),
    [
        (with_frame(size=(65500, 65500)), ("65500 x 65500", "89478485")),
        (with_frame(size=(9460, 9460)), ("9460 x 9460",)),
        (with_frame(size=(0, 37)), ("decoded",)),
        (with_frame(bits=12), ("decoded", "12-bit")),
        (with_frame(components=2), ("decoded", "2-layer")),
        (with_frame(components=5), ("decoded", "5-layer")),
        (png_of(100_000, 100_000), ("100000 x 100000",)),
        (png_of(0, 5), ("decoded",)),
        (encode(Image.new("L", (5, 5)), "PNG")[:20], ("decoded",)),
    ],
)
def test_what_decoders_would_not_read_or_could_not_hold_is_refused(
    encoded: bytes, facts: tuple[str, ...]
) -> None:
    with refuses(BadImage, "a.JPEG: ", *facts):
        repaired(encoded, "a.JPEG")


@pytest.mark.parametrize("kind", ["TIFF", "BMP", "WEBP", "GIF"])
def test_a_picture_that_pillow_takes_for_an_attack_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    encoded = encode(Image.new("L", (30, 20)), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    with refuses(BadImage, "a: ", "decoded", "600 pixels"):
        repaired(encoded, "a")


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_samples_of_an_unknown_range_are_refused(kind: type) -> None:
    """Pillow makes black of floats of 0 to 1, and a shift by eight bits of numbers up to 255."""
    image = Image.fromarray(np.ones((3, 4), kind))
    with refuses(BadImage, "a.tif: ", "32 bits"):
        repaired(encode(image, "TIFF"), "a.tif")
    grey = Image.fromarray(np.full((3, 4), 200 << 8, np.uint16))
    assert repaired(encode(grey, "TIFF"), "a.tif").width == 4


def test_few_archives_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most systems allow a process 1024 files: there may be more archives."""
    monkeypatch.setattr(_files, "MOST_OPEN", 3)
    entries = []
    for number in range(9):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(bytes([number]) * 4)
        entries.append(Entry("a", 0, str(path), 1, 2))
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(2):
        for number, entry in enumerate(entries):
            assert _files.read_stretch(entry) == bytes([number]) * 2
    assert len([*Path("/proc/self/fd").iterdir()]) <= before + 3
    monkeypatch.setattr(os, "open", Mock(side_effect=OSError(24, "Too many open files")))
    with refuses(OSError, "Too many open files"):
        _files.read_stretch(entries[0])


def test_frames_that_are_said_to_be_what_they_are_pass() -> None:
    assert with_frame() == jpeg()
    assert repaired(with_frame(size=(9459, 9459)), "a.JPEG").height == 9459


@pytest.mark.parametrize("maximum", [65535, 300])
def test_grey_of_16_bits_keeps_its_brightness(maximum: int) -> None:
    grey = np.tile(np.linspace(0, maximum, 64, dtype=np.uint16), (32, 1))
    picture = repaired(encode(Image.fromarray(grey), "PNG"), "a.png")
    with Image.open(io.BytesIO(picture.encoded)) as image:
        found = np.asarray(image)[16, :, 0].astype(int)
    assert np.abs(found - (grey[16] >> 8)).max() <= 3


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "is empty"),
        (b"no picture", "neither JPEG nor PNG"),
        (b"GIF89a....", "cannot be decoded"),
        (b"RIFF....WAVE", "cannot be decoded"),
        (b"\0\0\0\x18ftypheic", "neither JPEG nor PNG"),
        (jpeg()[:-4], "truncated"),
        (jpeg(exif=b"Exif\0\0" + jpeg(size=(5, 5)))[:-4], "truncated"),
        (jpeg()[:-40], "cannot be decoded"),
        (jpeg()[:3], "cannot be decoded"),
        (jpeg()[:100], "cannot be decoded"),
        (b"\xff\xd8" + b"x" * 90, "cannot be decoded"),
        (b"\xff\xd8\xff\xda\0\x02\xff\xd9", "cannot be decoded"),
        (encode(Image.new("RGB", (99, 99)), "PNG")[:60], "cannot be decoded"),
        (jpeg("CMYK", (99, 99), (1, 2, 3, 4))[:-60], "truncated"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(encoded: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason) as error:
        repaired(encoded, "n01/a.JPEG")
    assert str(error.value).startswith("n01/a.JPEG: ")
    assert "\n" not in str(error.value)


def test_every_cut_is_found() -> None:
    whole = encode(Image.radial_gradient("L").convert("RGB"), "JPEG")
    for length in range(0, len(whole), 7):
        with pytest.raises(BadImage):
            repaired(whole[:length], "a.JPEG")
