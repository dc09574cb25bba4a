"""Pictures of users: `config/datasets/<name>.yaml`, prepared into any form without a file written beside theirs."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.data.datasets import _own, get
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import prepare
from ddlbench.data.source import BadImage, Place, SourceError
from ddlbench.data.target import TargetError
from ddlbench.data.verify import verify
from ddlbench.settings import dataset
from ddlbench.settings.config import ConfigError
from ddlbench.settings.dataset import load_dataset

from tests.sources import picture
from tests.unit.spoiled import Files, bad_input


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The user's folder."""
    (tmp_path / "pictures").mkdir()
    return tmp_path / "pictures"


@pytest.fixture
def described(tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Manifest]:
    """`described(form, validation_every=2)`: the manifest of data set `mine`, which the user's folder holds."""
    for module in (_own, dataset):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "datasets")
    (tmp_path / "datasets").mkdir()

    def prepared(form: str = "raw", on_error: str = "stop", **keys: Any) -> Manifest:
        text = json.dumps({"folder": str(pictures), **keys})
        (tmp_path / "datasets/mine.yaml").write_text(text)
        before = times(pictures)
        try:
            given = load_dataset("mine").to_json()
            folder = tmp_path / "data" / form
            return prepare("mine", form, folder, place=Place(given, tmp_path / "cache"), on_error=on_error)
        finally:
            assert times(pictures) == before

    return prepared


def times(folder: Path) -> dict[Path, int]:
    """When each file and folder was changed."""
    return {path: path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))} if folder.exists() else {}


def classes(top: Path, **counts: int) -> None:
    """Class folders with so many pictures each."""
    for number, (name, count) in enumerate(counts.items()):
        (top / name).mkdir(parents=True)
        for i in range(count):
            (top / name / f"bild {i:02d} ü.png").write_bytes(picture(100 * number + i))


def shard(file: Path, *samples: dict[str, bytes]) -> None:
    """Samples of files by extension; their keys say only where they stand."""
    file.parent.mkdir(exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for number, files in enumerate(samples):
            for extension, data in files.items():
                info = tarfile.TarInfo(f"some/where/{number}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def sizes(manifest: Manifest) -> dict[str, dict[str, int]]:
    return {name: split.images_per_class for name, split in manifest.splits.items()}


@pytest.mark.parametrize("form", registry.members("forms"))
@pytest.mark.parametrize("where", ["", "train", "val"])
def test_one_in_so_many_is_for_validation(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path, form: str, where: str
) -> None:
    """Of each class, in the order of names; a class with fewer has none. Names are in any alphabet."""
    classes(pictures / where, **{"Äpfel": 7, "犬": 3, "ein Hund": 2})
    manifest = described(form, validation_every=3)
    assert sizes(manifest)["val"] == {"ein Hund": 0, "Äpfel": 2, "犬": 1}
    assert sizes(manifest)["train"] == {"ein Hund": 2, "Äpfel": 5, "犬": 2}
    assert manifest.source["validation"] == "one picture in 3 of each class, by name" and manifest.root is None
    assert verify([tmp_path / "data" / form]) == []
    assert Manifest.read(tmp_path / "data" / form) == manifest


def test_the_rule_is_said_and_takes_pictures_by_name(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    classes(pictures, a=5)
    described(validation_every=2)
    assert "one picture in 2 of each class, by name" in capfd.readouterr().out
    assert sorted(p.name for p in (tmp_path / "data/raw/val/a").iterdir()) == ["bild 01 ü.png", "bild 03 ü.png"]
    with pytest.raises(TargetError, match=r"one picture in 2 .* asked for is .*one picture in 5 .* rm -r "):
        described(validation_every=5)  # another rule is another form
    shutil.rmtree(tmp_path / "data/raw")
    described(validation_every=5)
    assert sorted(p.name for p in (tmp_path / "data/raw/val/a").iterdir()) == ["bild 04 ü.png"]


@pytest.mark.parametrize("form", registry.members("forms"))
def test_both_splits_are_used_where_they_lie(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path, form: str
) -> None:
    classes(pictures / "train", a=3, b=1)
    classes(pictures / "val", a=1)
    (pictures / "train/c").symlink_to(pictures / "train/b")
    (pictures / "train/a/link.png").symlink_to(pictures / "train/b/bild 00 ü.png")
    manifest = described(form)
    assert sizes(manifest) == {"train": {"a": 4, "b": 1, "c": 1}, "val": {"a": 1, "b": 0, "c": 0}}
    assert manifest.root == (str(pictures) if form == "raw" else None)
    assert verify([tmp_path / "data" / form]) == []


@pytest.mark.parametrize("form", registry.members("forms"))
@pytest.mark.parametrize("layout", ["one", "named", "folders"])
def test_shards_of_others(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path, form: str, layout: str
) -> None:
    """Keys come again in each shard; numbers of classes stay in their order."""
    samples = [{"jpg": picture(n, kind="JPEG"), "cls": b"%d" % (n % 2 * 9 + 1), "json": b"{}"} for n in range(6)]
    one, other = {"one": ("a", "b"), "named": ("train-0", "val-0"), "folders": ("train/0", "val/0")}[layout]
    shard(pictures / f"{one}.tar", *samples[:4])
    shard(pictures / f"{other}.tar", *samples[4:])
    manifest = described(form, validation_every=3)
    assert manifest.classes == ("01", "10")
    assert sizes(manifest) == {"train": {"01": 2, "10": 2}, "val": {"01": 1, "10": 1}}
    assert verify([tmp_path / "data" / form]) == []


def test_one_class_one_picture(described: Callable[..., Manifest], pictures: Path) -> None:
    classes(pictures / "train", only=1)
    with pytest.raises(SourceError, match=r"mine\.yaml: validation_every: 10: no class has .* in a folder val"):
        described()
    classes(pictures / "val", only=1)
    assert sizes(described()) == {"train": {"only": 1}, "val": {"only": 1}}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda top: None, "holds no class folders; allowed: "),
        (lambda top: top.rmdir(), "pictures: cannot be read: No such file"),
        (lambda top: classes(top, a=3, b=0), "pictures/b: holds no pictures"),
        (lambda top: classes(top, a=5), r"validation_every: 10: .*; allowed: at most 5"),
        (lambda top: (classes(top / "train", a=3), classes(top / "val", b=1)), "val/b: b is no class of train"),
        (lambda top: (classes(top, a=20), (top / "a/BILD 00 ü.png").write_bytes(b"")), "2 files of one name"),
        (lambda top: (top / "x.tar").write_bytes(b"no tar"), r"x\.tar: ends early or is damaged"),
        (lambda top: shard(top / "x.tar", {"jpg": b"x"}), r"x\.tar: sample some/where/0 has jpg; allowed: cls"),
        (lambda top: shard(top / "x.tar", {"cls": b"1"}), r"x\.tar: sample some/where/0 has cls; allowed: cls and"),
        (lambda top: shard(top / "x.tar", {"jpg": b"x", "cls": b"../../up"}), r"cls is '\.\./\.\./up'"),
        (lambda top: shard(top / "x.tar", {"jpg": b"x", "cls": b"a" * 300}), "cls is 'aaa"),
        (
            lambda top: [shard(top / f"{n}.tar", {"jpg": b"x", "cls": b"1"}) for n in ("train", "val", "test")],
            r"test\.tar: is of neither split",
        ),
    ],
)
def test_what_cannot_be_used_is_told(
    described: Callable[..., Manifest], pictures: Path, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(pictures)
    try:
        with pytest.raises(SourceError, match=says) as error:
            described()
    finally:
        pictures.mkdir(exist_ok=True)
    assert "\n" not in str(error.value)


def test_bad_pictures_stop_or_are_skipped(described: Callable[..., Manifest], pictures: Path) -> None:
    classes(pictures, a=20)
    (pictures / "a/bild 00 ü.png").write_bytes(b"no picture")
    (pictures / "a/gone.png").symlink_to("nowhere")  # no file: passed over, as in ImageNet's tree
    with pytest.raises(BadImage, match=r"bild 00 ü\.png: is neither JPEG nor PNG"):
        described()
    assert sizes(described(on_error="skip")) == {"train": {"a": 17}, "val": {"a": 2}}


def test_a_form_does_not_go_into_the_users_folder(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path
) -> None:
    classes(pictures, a=20)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/raw").symlink_to(pictures)
    with pytest.raises(TargetError, match="the same folder, or one lies within the other"):
        described()


def test_the_plan_guesses_and_says_so(described: Callable[..., Manifest], pictures: Path) -> None:
    classes(pictures, a=20, b=3)
    described()
    mine = get("mine")
    assert isinstance(mine, _own.Own) and not mine.in_place(None)
    assert (mine.IMAGES, mine.NUM_CLASSES) == ({"train": 36, "val": 4}, 2)
    (line,) = mine.remarks()
    assert "guesses: 2 classes and 36 pictures" in line and "mine.yaml" in line
    pictures.rename(pictures.with_name("away"))
    for says in ("No such file", "no class folders"):
        assert says in get("mine").remarks()[0]  # type: ignore[attr-defined]  # only those of users have it
        pictures.mkdir(exist_ok=True)
    pictures.with_name("away").rename(pictures)


@pytest.mark.parametrize(("text", "says"), bad_input("pictures"))
def test_a_wrong_description_is_one_line(files: Files, text: str, says: str) -> None:
    folder = files.folder / "datasets"
    folder.mkdir()
    files.spoil("study", "dataset: mnist5k", "dataset: flowers")
    assert 'dataset: "flowers" is not allowed' in files.complaint()
    (folder / "flowers.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"^{folder}/flowers\.yaml: {says}"):
        files.load()


def test_a_name_of_ours_stays_ours(files: Files) -> None:
    (files.folder / "datasets").mkdir()
    (files.folder / "datasets/mnist5k.yaml").write_text("folder: /x")
    assert "mnist5k.yaml: ddlbench has a data set of this name" in files.complaint()
