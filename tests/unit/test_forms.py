"""The two forms on disk: what is written, and that the manifest says it."""

import hashlib
import io
import struct
from pathlib import Path

import numpy as np
from ddlbench import prepare
from ddlbench.forms import tfrecord
from ddlbench.loaders._share import share, shuffled, steps
from ddlbench.manifest import Manifest, Sample
from PIL import Image


def test_crc_is_castagnoli_and_masked() -> None:
    # RFC 3720, B.4: CRC-32C of 32 zero bytes is 0x8a9136aa; TFRecord rotates right by 15 and adds a constant.
    crc = 0x8A9136AA
    assert tfrecord.masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def test_prepared_mnist5k(tmp_path: Path) -> None:
    raw = prepare.prepare("mnist5k", "raw", tmp_path / "raw")
    records = prepare.prepare("mnist5k", "tfrecord", tmp_path / "tfrecord")
    for manifest in (raw, records):
        assert manifest == Manifest.read(tmp_path / manifest.form)
        assert manifest.splits["train"].images_per_class == dict.fromkeys("0123456789", 400)
        assert manifest.splits["val"].images_per_class == dict.fromkeys("0123456789", 100)
    files = sorted((tmp_path / "raw/val").glob("*/*.png"))
    assert len(files) == 1000
    assert sum(f.stat().st_size for f in files) == raw.splits["val"].bytes
    with Image.open(files[0]) as image:
        assert (image.size, image.mode, image.format) == ((32, 32), "RGB", "PNG")
        assert np.asarray(image).max() > 200
    for name, digest in records.splits["train"].sha256.items():
        assert hashlib.sha256((tmp_path / "tfrecord" / name).read_bytes()).hexdigest() == digest
    assert not list(tmp_path.glob(".*"))


def test_records_and_index(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 3)).save(buffer, "PNG")
    samples = [Sample(f"{i}.png", i % 2, buffer.getvalue(), 3, 5) for i in range(7)]
    split = tfrecord.write(iter(samples), "train", tmp_path, ("a", "b"), seed=1)
    assert split.images == 7
    seen = 0
    for shard in tfrecord.shards(tmp_path, "train"):
        data = shard.read_bytes()
        end = 0
        for line in Path(f"{shard}.idx").read_text().splitlines():
            offset, size = map(int, line.split())
            assert offset == end
            (length,) = struct.unpack("<Q", data[offset : offset + 8])
            assert size == length + 16
            body = data[offset + 12 : offset + 12 + length]
            assert buffer.getvalue() in body
            end, seen = offset + size, seen + 1
        assert end == len(data)
    assert seen == 7


def test_preparing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = prepare.prepare("mnist5k", "tfrecord", tmp_path / "a")
    second = prepare.prepare("mnist5k", "tfrecord", tmp_path / "b")
    assert first.splits == second.splits


def test_shares_hold_every_sample_once() -> None:
    for images, batch, world in ((4000, 128, 2), (4001, 64, 2), (257, 96, 3), (5, 8, 4)):
        order = shuffled(images, seed=1, epoch=3)
        parts = [share(order, batch, rank, world) for rank in range(world)]
        assert {len(part) for part in parts} == {steps(images, batch)}
        assert sorted(i for part in parts for step in part for i in step) == list(range(images))
        for step in range(steps(images, batch)):
            # The ranks' parts, one after the other, are the batch of one process.
            whole = [i for part in parts for i in part[step]]
            assert whole == order[step * batch : (step + 1) * batch]
            assert max(len(p[step]) for p in parts) <= batch // world


def test_epochs_differ_and_repeat() -> None:
    assert shuffled(100, 1, 0) != shuffled(100, 1, 1)
    assert shuffled(100, 1, 1) == shuffled(100, 1, 1)
    assert shuffled(100, 1, 1) != shuffled(100, 2, 1)
