"""The forms on disk: what is written, and that the manifest says it."""

import hashlib
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ddlbench.core import registry
from ddlbench.core.spec import steps_per_epoch
from ddlbench.data.forms import raw, tfrecord, webdataset
from ddlbench.data.forms.raw import Files
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import prepare, write_form
from ddlbench.data.source import BadImage, Entry, SourceError
from ddlbench.data.target import TargetError
from ddlbench.data.verify import verify
from ddlbench.train.loaders._sampling import share, shuffled

from tests.disks import Watched
from tests.facts import refuses
from tests.sources import Memory, Sample, contents, picture, some


def made(source: Memory, form: str, folder: Path, **settings: object) -> Manifest:
    """The form of a source in `folder/<form>`."""
    return write_form(lambda: source, "some", form, folder / form, **settings)


def records(shard: Path) -> list[dict[str, object]]:
    """The Examples of a shard, found by its index."""
    data, found, end = shard.read_bytes(), [], 0
    for line in Path(f"{shard}.idx").read_text().splitlines():
        offset, size = map(int, line.split())
        assert offset == end
        (length,) = struct.unpack("<Q", data[offset : offset + 8])
        assert size == length + 16
        found.append(tfrecord.parse(data[offset + 12 : offset + 12 + length]))
        end = offset + size
    assert end == len(data)
    return found


def test_crc_is_castagnoli_and_masked() -> None:
    # RFC 3720, B.4: CRC-32C of 32 zero bytes is 0x8a9136aa; TFRecord rotates right by 15 and adds a
    # constant.
    crc = 0x8A9136AA
    assert tfrecord.masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def test_prepared_mnist5k(tmp_path: Path) -> None:
    for form in ("raw", "tfrecord"):
        manifest = prepare("mnist5k", form, tmp_path / form)
        assert manifest == Manifest.read(tmp_path / form)
        assert manifest.splits["train"].images_per_class == dict.fromkeys("0123456789", 400)
        assert manifest.splits["val"].images_per_class == dict.fromkeys("0123456789", 100)


def test_raw_holds_the_files_and_the_manifest_their_digests(tmp_path: Path) -> None:
    source = some(7, 3)
    manifest = made(source, "raw", tmp_path)
    for split, samples in source.samples.items():
        there = contents(tmp_path / "raw" / split)
        assert there == {f"class{s.label}/{s.filename}": s.encoded for s in samples}
        assert manifest.splits[split].bytes == sum(map(len, there.values()))
    # What `sha256sum *` prints in the class folder.
    folder = tmp_path / "raw/train/class1"
    lines = [
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n"
        for p in sorted(folder.iterdir())
    ]
    assert (
        manifest.splits["train"].sha256["train/class1/"]
        == hashlib.sha256("".join(lines).encode()).hexdigest()
    )


def test_records_have_tf_slims_features(tmp_path: Path) -> None:
    samples = [
        Sample("a.JPEG", 0, picture(1, 3, 5, "JPEG"), 3, 5),
        Sample("b.png", 1, picture(2, 300, 200), 300, 200),
    ]
    made(Memory({"train": samples, "val": samples}, ("n01", "n02")), "tfrecord", tmp_path)
    found = [r for shard in tfrecord.shards(tmp_path / "tfrecord", "train") for r in records(shard)]
    assert sorted(found, key=lambda r: r["image/filename"]) == [
        {
            "image/class/label": sample.label + 1,
            "image/class/synset": synset,
            "image/colorspace": b"RGB",
            "image/encoded": sample.encoded,
            "image/filename": sample.filename.encode(),
            "image/format": kind,
            "image/height": sample.height,
            "image/width": sample.width,
        }
        for sample, synset, kind in zip(samples, (b"n01", b"n02"), (b"JPEG", b"PNG"), strict=True)
    ]


def test_every_picture_is_in_one_shard_shuffled_by_the_seed(tmp_path: Path) -> None:
    source = some(50, 10)
    orders = []
    for seed in (1, 2):
        manifest = made(source, "tfrecord", tmp_path / str(seed), seed=seed)
        shards = tfrecord.shards(tmp_path / str(seed) / "tfrecord", "train")
        assert [s.name for s in shards] == [f"train-0000{i}-of-00004" for i in range(4)]
        for shard in shards:
            digest = hashlib.sha256(shard.read_bytes()).hexdigest()
            assert manifest.splits["train"].sha256[shard.name] == digest
        orders.append([r["image/encoded"] for shard in shards for r in records(shard)])
        assert sorted(orders[-1]) == sorted(s.encoded for s in source.samples["train"])
        # A shard holds all classes: they came in turn, and would still in an order that was not
        # shuffled.
        labels = [r["image/class/label"] for r in records(shards[0])]
        assert set(labels) == {1, 2, 3}
        assert labels != [1, 2, 3] * 4 + [1]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("form", [tfrecord, webdataset])
def test_shards_are_on_the_disk_when_they_are_written(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the form gets its name: a manifest says that all is whole."""
    source, disk = some(20, 4), Watched(monkeypatch)
    for part in form.parts("train", source.entries("train"), source.classes, 1):
        form.write(part, source, tmp_path, "stop")
    assert len([*tmp_path.iterdir()]) == 8
    assert disk.has(tmp_path)


def test_imagenet_has_tf_slims_shards_and_small_sets_have_fewer() -> None:
    def count(split: str, images: int) -> int:
        return len(tfrecord.parts(split, [Entry("", 0, "", 0, 0)] * images, ("a",), 1))

    assert (count("train", 1281167), count("val", 50000)) == (1024, 128)
    assert (count("train", 50000), count("val", 10000)) == (40, 26)
    assert (count("train", 100), count("val", 100)) == (4, 2)
    assert (count("train", 3), count("val", 1)) == (3, 1)


@pytest.mark.parametrize("form", registry.members("forms"))
def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path, form: str) -> None:
    for processes in (1, 2, 5):
        made(some(60, 20), form, tmp_path / str(processes), processes=processes)
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "5")


@pytest.mark.parametrize("form", registry.members("forms"))
def test_a_bad_picture_stops(tmp_path: Path, form: str) -> None:
    source = some(60, 20, bad=frozenset({"class1/00001.png"}))
    with refuses(BadImage, "train/class1/00001.png: ", "bad"):
        made(source, form, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f".{form}.lock"]


@pytest.mark.parametrize("form", registry.members("forms"))
def test_bad_pictures_are_skipped_and_listed(tmp_path: Path, form: str) -> None:
    bad = frozenset({"class1/00001.png", "class0/00003.png"})
    manifest = made(some(60, 20, bad=bad), form, tmp_path, on_error="skip")
    for split, count in (("train", 60), ("val", 20)):
        told = manifest.splits[split]
        assert told.skipped == {name: f"{split}/{name}: is bad" for name in sorted(bad)}
        assert told.images == sum(told.images_per_class.values()) == count - 2
    if form == "raw":
        assert len(contents(tmp_path / "raw/train")) == 58
    elif form == "tfrecord":
        assert sum(len(records(s)) for s in tfrecord.shards(tmp_path / "tfrecord", "train")) == 58
    if samples := registry.member("forms", form).samples(tmp_path / form, "train"):
        assert len(samples) == len(samples.labels) == 58
    with refuses(TargetError, "2 pictures", "skipped"):  # not taken under the other policy
        made(some(60, 20, bad=bad), form, tmp_path)
    assert Manifest.read(tmp_path / form) == manifest


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    source = some(6, 3)
    source.samples["train"][3] = source.samples["train"][0]
    with refuses(SourceError, "train/class0/00000.png", "twice"):
        made(source, "raw", tmp_path)


def test_a_split_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no pictures for val"):
        made(some(6, 0), "tfrecord", tmp_path)


def tree(folder: Path) -> Memory:
    """A source that is a tree of class folders."""
    source = some(12, 6)
    for split, samples in source.samples.items():
        for sample in samples:
            path = folder / split / source.classes[sample.label] / sample.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sample.encoded)
    return Tree(source.samples, source.classes, tree=folder)


class Tree(Memory):
    """Its entries say where the files lie, and no sizes."""

    def entries(self, split: str) -> list[Entry]:
        return [
            Entry(
                s.filename,
                s.label,
                f"{self.tree}/{split}/{self.classes[s.label]}/{s.filename}",
                i,
                -1,
            )
            for i, s in enumerate(self.samples[split])
        ]

    def read(self, entry: Entry) -> object:
        split = "train" if "/train/" in entry.path else "val"
        return super().read(entry._replace(path=split))


def test_a_tree_is_used_where_it_lies(tmp_path: Path) -> None:
    source = tree(tmp_path / "site")
    before = contents(tmp_path / "site")
    manifest = made(source, "raw", tmp_path)
    copied = made(Memory(source.samples, source.classes), "raw", tmp_path / "copied")
    assert manifest.root == str(tmp_path / "site")
    assert {s: (m.bytes, m.sha256, m.images_per_class) for s, m in manifest.splits.items()} == {
        s: (m.bytes, m.sha256, m.images_per_class) for s, m in copied.splits.items()
    }
    lists = sorted(
        raw.list_path(tmp_path / "raw", manifest, split).name for split in ("train", "val")
    )
    assert sorted(contents(tmp_path / "raw")) == [".manifest.json", *lists, "manifest.json"]
    assert contents(tmp_path / "site") == before


def test_a_tree_with_a_picture_that_its_source_does_not_name_is_refused(tmp_path: Path) -> None:
    source = tree(tmp_path / "site")
    (tmp_path / "site/train/class0/late.png").write_bytes(b"")
    with refuses(SourceError, "class0/late.png: ", "not a picture"):
        made(source, "raw", tmp_path)


def test_loaders_read_the_tree_that_the_manifest_names(tmp_path: Path) -> None:
    """Labels are the manifest's, also where a class has no folder; what was skipped or is no
    picture is not read.
    """
    source = tree(tmp_path / "site")
    source.samples["val"] = [s for s in source.samples["val"] if s.label != 0]
    source.bad = frozenset({"class1/00001.png"})
    shutil.rmtree(tmp_path / "site/val/class0")
    (tmp_path / "site/val/class1/.hidden.png").touch()
    (tmp_path / "site/val/class1/notes.txt").touch()
    manifest = made(source, "raw", tmp_path, on_error="skip")
    assert manifest.splits["val"].images_per_class == {"class0": 0, "class1": 1, "class2": 2}
    files = Files(tmp_path / "raw", "val")
    assert files.list is not None and files.list.parent == tmp_path / "raw"
    assert [(files.name(n), label) for n, label in enumerate(files.labels.tolist())] == [
        (f"{tmp_path}/site/val/{name}", label)
        for name, label in (
            ("class1/00004.png", 1),
            ("class2/00002.png", 2),
            ("class2/00005.png", 2),
        )
    ]
    assert verify([tmp_path / "raw"]) == []


def test_shares_hold_every_sample_once() -> None:
    for images, batch, world in ((4000, 128, 2), (4001, 64, 2), (257, 96, 3), (5, 8, 4)):
        order = shuffled(images, seed=1, epoch=3).tolist()
        parts = [
            [part.tolist() for part in share(np.array(order), batch, rank, world)]
            for rank in range(world)
        ]
        assert {len(part) for part in parts} == {steps_per_epoch(images, batch)}
        assert sorted(i for part in parts for step in part for i in step) == list(range(images))
        for step in range(steps_per_epoch(images, batch)):
            # The ranks' parts, one after the other, are the batch of one process.
            whole = [i for part in parts for i in part[step]]
            assert whole == order[step * batch : (step + 1) * batch]
            assert max(len(p[step]) for p in parts) <= batch // world
