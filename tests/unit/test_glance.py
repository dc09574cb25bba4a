"""The short look at the data before a run: what it finds, and that a run with damaged data does not start."""

import json
import os
import shutil
from pathlib import Path

import pytest
from ddlbench.core import registry
from ddlbench.data.forms import raw, tfrecord
from ddlbench.data.manifest import Manifest
from ddlbench.data.part import PICTURE_BYTES
from ddlbench.data.prepare import write_form
from ddlbench.data.verify import glance
from ddlbench.run.__main__ import execute

from tests.sources import some
from tests.specs import run_spec
from tests.unit.damage import SHARD, zeroed


@pytest.fixture
def form(forms: dict[str, Path]) -> Path:
    return forms["tfrecord"]


def test_a_whole_form(form: Path) -> None:
    assert glance(form) == []
    (form / "manifest.json").unlink()  # by Snakemake, which is about to prepare it again
    assert glance(form) == []
    assert glance(None) == []


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
    # By chance: each loop ends with the first look that finds it, or does not.
    assert any(tfrecord.glance(form, manifest, 6 * 2000) for _ in range(2000))
    assert not all(tfrecord.glance(form, manifest, 6 * 2000) for _ in range(2000))


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
    assert "ddlbench verify" in capsys.readouterr().err
