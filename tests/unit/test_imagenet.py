"""ImageNet from a site's own tree of class folders: a small tree of the same shape."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.data.datasets.imagenet import open_source
from ddlbench.data.source import BadImage, Place, SourceError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two synsets, three pictures to train and two to validate, each of another size."""
    from PIL import Image

    root = tmp_path / "ILSVRC2012"
    names = ["train/n02/b.JPEG", "train/n01/z.JPEG", "train/n01/a.JPEG", "val/n02/y.JPEG", "val/n01/x.JPEG"]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 10)).save(root / name, "JPEG")
    return root


def opened(folder: Path) -> Any:
    """The source as a worker process has it."""
    return pickle.loads(pickle.dumps(open_source(Place(str(folder), folder / "cache"))))


def test_facts_need_no_data() -> None:
    dataset = registry.member("datasets", "imagenet")
    assert dataset.IMAGES == {"train": 1281167, "val": 50000}
    assert dataset.NUM_CLASSES == 1000


def test_pictures_come_by_class_and_name_with_their_size(tree: Path) -> None:
    source = opened(tree)
    assert source.classes == ("n01", "n02")
    assert source.tree == tree
    entries = source.entries("train")
    assert [(e.filename, e.label) for e in entries] == [("a.JPEG", 0), ("z.JPEG", 0), ("b.JPEG", 1)]
    assert [source.read(e)[1:] for e in entries] == [(10, 22), (10, 21), (10, 20)]
    assert source.read(entries[0]).encoded == (tree / "train/n01/a.JPEG").read_bytes()
    assert [e.label for e in source.entries("val")] == [0, 1]


def test_a_path_from_the_working_directory_or_with_links(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        "train/n01/sub/a.JPEG",
    ):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("no picture")
    (tree / "train/n01/c.jpg").write_bytes((tree / "train/n01/a.JPEG").read_bytes())
    assert [e.filename for e in opened(tree).entries("train")] == ["a.JPEG", "c.jpg", "z.JPEG", "b.JPEG"]


def test_a_file_that_is_no_picture_is_told_when_it_is_read(tree: Path) -> None:
    (tree / "train/n02/b.JPEG").write_text("no picture")
    source = opened(tree)
    *good, bad = source.entries("train")
    assert len([source.read(e) for e in good]) == 2
    with pytest.raises(BadImage, match=r"train/n02/b\.JPEG: is neither JPEG nor PNG"):
        source.read(bad)
    (tree / "train/n02/b.JPEG").unlink()
    with pytest.raises(BadImage, match=r"train/n02/b\.JPEG: .*cannot be read: No such file"):
        source.read(bad)


def test_an_unset_folder_is_told() -> None:
    with pytest.raises(SourceError, match=r"imagenet: nothing says where it lies; data\.sources\.imagenet is a folder"):
        open_source(Place(None, Path()))


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"nowhere: holds neither train/ nor ILSVRC2012_img_train\.tar; data\.sources"
    ):
        opened(tmp_path / "nowhere")


def test_validation_pictures_without_class_folders_are_told(tree: Path) -> None:
    for path in sorted((tree / "val").rglob("*.JPEG")):
        path.rename(tree / "val" / path.name)
        path.parent.rmdir()
    with pytest.raises(SourceError, match="val: holds no class folders"):
        opened(tree).entries("val")
    for path in (tree / "val").iterdir():
        path.unlink()
    (tree / "val").rmdir()
    with pytest.raises(SourceError, match=r"val: cannot be read: No such file or directory; data\.sources"):
        opened(tree).entries("val")


def test_a_class_that_train_lacks_is_told(tree: Path) -> None:
    (tree / "val/n02").rename(tree / "val/n03")
    with pytest.raises(SourceError, match="val/n03: n03 is no class of train"):
        opened(tree).entries("val")


def test_an_empty_class_folder_is_told(tree: Path) -> None:
    (tree / "train/n01/a.JPEG").rename(tree / "train/n01/a.txt")
    (tree / "train/n01/z.JPEG").unlink()
    with pytest.raises(SourceError, match=r"train/n01: holds no pictures \(\.jpeg, \.jpg, \.png\)"):
        opened(tree).entries("train")


def test_two_names_that_differ_in_case_only_are_told(tree: Path) -> None:
    (tree / "train/n01/A.jpeg").write_bytes(b"")
    with pytest.raises(SourceError, match=r"train/n01: 2 files of one name: a\.jpeg"):
        opened(tree).entries("train")
