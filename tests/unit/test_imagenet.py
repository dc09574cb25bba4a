"""Sources of pictures: ImageNet from a site's own tree of class folders, and pictures that weigh what ImageNet's do."""

import io
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pytest
from ddlbench.data.datasets import synthetic_imagenet
from ddlbench.data.datasets.imagenet import open_source
from ddlbench.data.pictures import jpeg_header, mended
from ddlbench.data.source import BadImage, Place, SourceError
from PIL import Image

from tests.unit.archives import opened, refused


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


def flattened(tree: Path) -> None:
    for path in sorted((tree / "val").rglob("*.JPEG")):
        path.rename(tree / "val" / path.name)
        path.parent.rmdir()


def emptied(tree: Path) -> None:
    (tree / "train/n01/a.JPEG").rename(tree / "train/n01/a.txt")
    (tree / "train/n01/z.JPEG").unlink()


# What is done to the tree, the split that is asked for, and what is said.
@pytest.mark.parametrize(
    ("spoil", "split", "says"),
    [
        (flattened, "val", "val: holds no class folders"),
        (lambda tree: rmtree(tree / "val"), "val", "val: cannot be read: No such file or directory; data.sources"),
        (lambda tree: (tree / "val/n02").rename(tree / "val/n03"), "val", "val/n03: n03 is no class of train"),
        (emptied, "train", "train/n01: holds no pictures (.jpeg, .jpg, .png)"),
        (lambda tree: (tree / "train/n01/A.jpeg").touch(), "train", "train/n01: 2 files of one name: a.jpeg"),
    ],
)
def test_what_is_wrong_with_a_tree_is_told(tree: Path, spoil: Any, split: str, says: str) -> None:
    spoil(tree)
    assert says in refused(tree, split)


def made(given: str | None) -> Any:
    return synthetic_imagenet.open_source(Place(given, Path("nowhere")))


def test_the_default_is_what_the_constants_say() -> None:
    source = made(None)
    assert {s: len(source.entries(s)) for s in synthetic_imagenet.IMAGES} == synthetic_imagenet.IMAGES
    assert len(source.classes) == synthetic_imagenet.NUM_CLASSES
    assert not Path("nowhere").exists()


def test_count_and_classes_are_as_asked_for() -> None:
    source = made("train=70, val=30, classes=7")
    assert source.classes == tuple(sorted(source.classes))
    for split, count in (("train", 70), ("val", 30)):
        entries = source.entries(split)
        assert len({e.filename for e in entries}) == len(entries) == count
        assert set(np.bincount([e.label for e in entries])) <= {count // 7, count // 7 + 1}
    assert source.described == {"source": "made here", "train": 70, "val": 30, "classes": 7, "seed": 1}


def test_every_process_makes_the_same_bytes() -> None:
    source = made("train=8,val=2,classes=2")
    entries = source.entries("train")
    here = [source.read(entry) for entry in entries]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(pickle.loads(pickle.dumps(source)).read, reversed(entries))) == here[::-1]
    others = made("train=8,val=2,classes=2,seed=2"), made("train=9,val=9,classes=2")
    assert others[0].read(entries[0]) != here[0]
    assert others[1].read(entries[0]) == here[0], "more pictures leave those before as they are"
    assert source.read(source.entries("val")[0]) != here[0]


def test_they_weigh_and_measure_what_those_of_imagenet_do() -> None:
    source = made("train=300,val=10,classes=10")
    pictures = [source.read(entry) for entry in source.entries("train")]
    assert 100e3 < np.mean([len(p.encoded) for p in pictures]) < 125e3
    assert 470 < np.mean([p.width for p in pictures]) < 530
    assert 350 < np.mean([p.height for p in pictures]) < 400
    assert len({(p.height, p.width) for p in pictures}) > 50
    for picture in pictures[:20]:
        assert mended(picture.encoded, "it") == picture
        assert jpeg_header(picture.encoded).components == 3
        with Image.open(io.BytesIO(picture.encoded)) as image:
            assert image.convert("RGB").size == (picture.width, picture.height)


def test_classes_can_be_told_apart() -> None:
    """By the nearest mean of thumbnails, chance is 0.1."""
    source = made("train=150,val=50,classes=10")

    def thumbnails(split: str) -> tuple[Any, Any]:
        entries = source.entries(split)
        small = [Image.open(io.BytesIO(source.read(e).encoded)).resize((8, 6)) for e in entries]
        return np.stack([np.asarray(s, float).ravel() for s in small]), np.array([e.label for e in entries])

    x, y = thumbnails("train")
    means = np.stack([x[y == label].mean(0) for label in range(10)])
    x, y = thumbnails("val")
    nearest = ((x[:, None] - means) ** 2).sum(2).argmin(1)
    assert (nearest == y).mean() > 0.9


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("20000", r"'20000' in '20000'; such as train=20000,val=1000,classes=100,seed=1; allowed: classes, seed"),
        ("trian=3", r"did you mean train\?"),
        ("train=-3", "'train=-3'"),
        ("train=3,", "''"),
        ("", "''"),
        ("classes=0", "each class needs a picture"),
        ("val=5", "each class needs a picture"),
    ],
)
def test_text_that_cannot_be_understood_is_told(given: str, complaint: str) -> None:
    with pytest.raises(SourceError, match=rf"^data\.sources\.synthetic-imagenet: .*{complaint}"):
        made(given)
