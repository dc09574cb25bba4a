"""ImageNet from a site's own tree of class folders: a small tree of the same shape."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddlbench import registry
from ddlbench.config import ConfigError
from ddlbench.datasets import imagenet
from ddlbench.prepare import prepare


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two synsets, three pictures to train and two to validate, each of another size."""
    from PIL import Image

    root = tmp_path / "ILSVRC2012"
    names = ["train/n02/b.JPEG", "train/n01/z.JPEG", "train/n01/a.JPEG", "val/n02/y.JPEG", "val/n01/x.JPEG"]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 10)).save(root / name, "JPEG")
    monkeypatch.setenv(imagenet.FOLDER, str(root))
    return root


def test_facts_need_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(imagenet.FOLDER, raising=False)
    dataset = registry.member("datasets", "imagenet")
    assert dataset.IMAGES == {"train": 1281167, "val": 50000}
    assert dataset.NUM_CLASSES == 1000


def test_samples_come_by_class_and_name_with_their_size(tree: Path) -> None:
    assert imagenet.classes() == ("n01", "n02")
    samples = list(imagenet.samples("train"))
    assert [(s.filename, s.label, s.width, s.height) for s in samples] == [
        ("a.JPEG", 0, 22, 10),
        ("z.JPEG", 0, 21, 10),
        ("b.JPEG", 1, 20, 10),
    ]
    assert samples[0].encoded == (tree / "train/n01/a.JPEG").read_bytes()
    assert [s.label for s in imagenet.samples("val")] == [0, 1]


def test_samples_are_read_one_at_a_time(tree: Path) -> None:
    (tree / "train/n02/b.JPEG").write_text("no picture")
    samples = imagenet.samples("train")
    assert next(samples).filename == "a.JPEG"
    assert next(samples).filename == "z.JPEG"
    with pytest.raises(ConfigError, match=r"train/n02/b\.JPEG: is no picture"):
        next(samples)


@pytest.mark.parametrize("form", ["raw", "tfrecord"])
@pytest.mark.usefixtures("tree")
def test_it_can_be_prepared(tmp_path: Path, form: str) -> None:
    manifest = prepare("imagenet", form, tmp_path / "data" / form)
    assert manifest.classes == ("n01", "n02")
    assert {name: split.images for name, split in manifest.splits.items()} == {"train": 3, "val": 2}


def test_an_unset_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(imagenet.FOLDER, raising=False)
    with pytest.raises(ConfigError, match="DDLBENCH_IMAGENET: is not set; allowed: a folder with train/"):
        imagenet.classes()


def test_a_missing_folder_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(imagenet.FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"nowhere.* is not allowed; it has no train/<synset>"):
        imagenet.classes()


def test_validation_pictures_without_class_folders_are_told(tree: Path) -> None:
    for path in sorted((tree / "val").rglob("*.JPEG")):
        path.rename(tree / "val" / path.name)
        path.parent.rmdir()
    with pytest.raises(ConfigError, match="it has no val/<synset>"):
        next(imagenet.samples("val"))


def test_a_class_that_train_lacks_is_told(tree: Path) -> None:
    (tree / "val/n02").rename(tree / "val/n03")
    with pytest.raises(ConfigError, match='val: "n03" is not allowed; it is no class of train; allowed: n01, n02'):
        next(imagenet.samples("val"))


def test_an_empty_class_folder_is_told(tree: Path) -> None:
    (tree / "train/n01/a.JPEG").rename(tree / "train/n01/a.txt")
    (tree / "train/n01/z.JPEG").unlink()
    with pytest.raises(ConfigError, match=r"train/n01: holds no \*\.JPEG"):
        next(imagenet.samples("train"))
