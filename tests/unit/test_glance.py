"""The short look at the data before a run: what it finds, and that a run with damaged data does not start."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ddlbench.core import registry
from ddlbench.data.forms import _example, raw, tfrecord
from ddlbench.data.manifest import Manifest
from ddlbench.data.part import PICTURE_BYTES
from ddlbench.data.prepare import write_form
from ddlbench.data.verify import glance
from ddlbench.run.__main__ import execute

from tests.sources import some
from tests.specs import run_spec
from tests.unit.test_verify import offsets

SHARD, OTHER = "train-00001-of-00004", "train-00002-of-00004"


@pytest.fixture
def form(tmp_path: Path) -> Path:
    write_form(lambda: some(60, 20), "mnist5k", "tfrecord", tmp_path / "tfrecord")
    return tmp_path / "tfrecord"


def relabelled(folder: Path, label: int | None = None) -> None:
    """One record with another label, and with the right CRCs, as another tool would have written it."""
    shard = folder / SHARD
    offset, size = offsets(shard)[3]
    data = shard.read_bytes()
    example = data[offset + 12 : offset + size - 4]
    key = b"image/class/label"
    at = example.index(key) + len(key) + 6  # the byte of a small number, behind the heads of its lists
    assert example[at] in (1, 2, 3)
    changed = bytearray(example)
    changed[at] = example[at] % 3 + 1 if label is None else label
    crc = _example.masked_crc(bytes(changed)).to_bytes(4, "little")
    shard.write_bytes(data[: offset + 12] + bytes(changed) + crc + data[offset + size :])


def zeroed(folder: Path) -> None:
    offset, size = offsets(folder / SHARD)[3]
    data = bytearray((folder / SHARD).read_bytes())
    data[offset + size // 2 : offset + size - 20] = bytes(size - 20 - size // 2)
    (folder / SHARD).write_bytes(data)


def index_of_the_first(folder: Path) -> None:
    index = folder / f"{SHARD}.idx"
    lines = index.read_text().splitlines()
    index.write_text(f"{lines[0]}\n" * len(lines))


def copied(folder: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        shutil.copy(folder / f"{OTHER}{suffix}", folder / f"{SHARD}{suffix}")


def cut(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-10])


def one_less(folder: Path) -> None:
    """The shard and its index agree, and each record is sound."""
    offset, _ = offsets(folder / SHARD)[-1]
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:offset])
    index = folder / f"{SHARD}.idx"
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "label 98": (lambda f: relabelled(f, 98), f"{SHARD}: record 3: label 98 is not class"),
    "label 0": (lambda f: relabelled(f, 0), f"{SHARD}: record 3: label 0 is not class"),
    "another class": (relabelled, f"{SHARD}: record 3: label "),
    "zeroed": (zeroed, f"{SHARD}: record 3: its data's CRC is wrong"),
    "index": (index_of_the_first, f"{SHARD}.idx: its records do not follow each other"),
    "index with a huge number": (
        lambda f: (f / f"{SHARD}.idx").write_text(f"0 {10**30}\n"),
        f"{SHARD}: has ",
    ),
    "index with an endless number": (
        lambda f: (f / f"{SHARD}.idx").write_text(f"0 {'9' * 5000}\n"),
        f"{SHARD}.idx: cannot be read",
    ),
    "index of text": (lambda f: (f / f"{SHARD}.idx").write_bytes(b"\xff\n"), f"{SHARD}.idx: cannot be read"),
    "index with an odd number": (lambda f: (f / f"{SHARD}.idx").write_text("0\n"), f"{SHARD}.idx: cannot be read"),
    "no index": (lambda f: (f / f"{SHARD}.idx").unlink(), f"{SHARD}.idx: cannot be read: No such file"),
    "no shard": (lambda f: (f / SHARD).unlink(), f"{SHARD}: cannot be read: No such file"),
    "a folder": (lambda f: [(f / SHARD).unlink(), (f / SHARD).mkdir()], f"{SHARD}: "),
    "copied with its index": (lambda f: copied(f, "", ".idx"), f"{OTHER}: begins with the same record as {SHARD}"),
    "cut": (cut, f"{SHARD}: has "),
    "one less": (one_less, "train: its shards have 59 records, the manifest says 60"),
    "empty": (lambda f: (f / SHARD).write_bytes(b""), f"{SHARD}: has 0 bytes"),
}


def test_a_whole_form(form: Path) -> None:
    assert glance(form) == []
    (form / "manifest.json").unlink()  # by Snakemake, which is about to prepare it again
    assert glance(form) == []
    assert glance(None) == []


@pytest.mark.parametrize("harm", HARMS)
def test_damage_is_named(form: Path, harm: str) -> None:
    spoil, said = HARMS[harm]
    spoil(form)
    problems = glance(form)
    assert any(said in problem for problem in problems), problems
    assert all(str(form) in problem and "\n" not in problem for problem in problems)
    assert len(problems) <= 2


def test_a_large_form_is_looked_at_in_part(form: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, indices and first records of all shards; other records by chance."""
    read: list[int] = []
    whole = tfrecord.unframed
    monkeypatch.setattr(tfrecord, "unframed", lambda framed: [read.append(len(framed)), whole(framed)][1])
    manifest = Manifest.read(form)
    assert tfrecord.glance(form, manifest, 0) == []
    assert len(read) == 6
    read.clear()
    assert tfrecord.glance(form, manifest, 6 * 1000) == []
    assert 6 < len(read) < 80
    zeroed(form)
    found = [tfrecord.glance(form, manifest, 6 * 2000) for _ in range(60)]
    assert any(found) and not all(found)


def test_raw(tmp_path: Path) -> None:
    write_form(lambda: some(60, 20), "mnist5k", "raw", tmp_path / "raw")
    assert glance(tmp_path / "raw") == []
    picture = tmp_path / "raw/train/class1/00001.png"
    picture.write_bytes(picture.read_bytes()[:-1])
    assert glance(tmp_path / "raw") == [
        f"{tmp_path}/raw: train/class1/: its files are not those of the manifest (SHA-256 of names and contents)"
    ]
    shutil.rmtree(tmp_path / "raw/val/class2")
    assert f"{tmp_path}/raw: val/class2/: is missing" in glance(tmp_path / "raw")


@pytest.mark.parametrize("name", ["raw", "tfrecord", "webdataset"])
def test_many_small_pictures_do_not_hold_up_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """600 000 of 650 bytes took 9 s (raw) and 17 s (tfrecord): to open each takes longer than to read it."""
    manifest = write_form(lambda: some(300, 100), "mnist5k", name, tmp_path / name)
    read: list[object] = []
    form, pread = registry.member("forms", name), os.pread
    monkeypatch.setattr(raw, "read_bytes", lambda path: [read.append(path), path.read_bytes()][1])
    monkeypatch.setattr(os, "pread", lambda *place: [read.append(place), pread(*place)][1])
    size = sum(split.bytes for split in manifest.splits.values())
    assert form.glance(tmp_path / name, manifest, size) == []
    assert len(read) < 400 * 0.6
    read.clear()
    assert form.glance(tmp_path / name, manifest, size + 800 * PICTURE_BYTES) == []
    assert len(read) == 400


def test_no_form(tmp_path: Path) -> None:
    (line,) = glance(tmp_path / "nowhere")
    assert line.startswith(f"{tmp_path}/nowhere: cannot be used: ")
    (tmp_path / "manifest.json").write_text("[]")
    (line,) = glance(tmp_path)
    assert "is no manifest that this version of ddlbench can read" in line


def test_a_run_with_damaged_data_does_not_start(form: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zeroed(form)
    folder = tmp_path / "runs/a"
    assert execute(run_spec(), folder, form, ["touch", str(tmp_path / "started")]) == 1
    assert not (tmp_path / "started").exists()
    failure = json.loads((folder / "failed/failure.json").read_text())
    assert failure["cause"] == "data damaged"
    assert f"{SHARD}: record 3: its data's CRC is wrong" in failure["message"]
    assert "snakemake verify" in capsys.readouterr().err
