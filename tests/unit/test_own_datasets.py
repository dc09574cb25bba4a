"""Pictures of users: `config/datasets/<name>.yaml`, prepared into any form without a file written
beside theirs.
"""

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
from ddlbench.data.forms import raw
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import prepare
from ddlbench.data.source import BadImage, Place, SourceError
from ddlbench.data.target import TargetError
from ddlbench.data.verify import verify
from ddlbench.preflight import scout
from ddlbench.run.facts import facts
from ddlbench.settings import dataset
from ddlbench.settings.config import ConfigError
from ddlbench.settings.dataset import load_dataset
from ddlbench.train.loaders import torchvision

from tests.builders.plans import run_spec
from tests.facts import missing, refuses
from tests.sources import picture
from tests.unit.spoiled import Files, bad_input


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The user's folder."""
    (tmp_path / "pictures").mkdir()
    return tmp_path / "pictures"


@pytest.fixture
def described(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Manifest]:
    """`described(form, validation_every=2)`: the manifest of data set `mine`, which the user's
    folder holds.
    """
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
            return prepare(
                "mine", form, folder, place=Place(given, tmp_path / "cache"), on_error=on_error
            )
        finally:
            assert times(pictures) == before

    return prepared


def times(folder: Path) -> dict[Path, int]:
    """When each file and folder was changed."""
    return (
        {path: path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
        if folder.exists()
        else {}
    )


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
    """Of each class, in the order of names; a class with fewer has none. Names are in any
    alphabet.
    """
    classes(pictures / where, **{"Äpfel": 7, "犬": 3, "ein Hund": 2})
    manifest = described(form, validation_every=3)
    assert sizes(manifest)["val"] == {"ein Hund": 0, "Äpfel": 2, "犬": 1}
    assert sizes(manifest)["train"] == {"ein Hund": 2, "Äpfel": 5, "犬": 2}
    assert missing(manifest.source["validation"], 3) == [] and manifest.root is None
    assert verify([tmp_path / "data" / form]) == []
    assert Manifest.read(tmp_path / "data" / form) == manifest


def test_the_rule_is_said_and_takes_pictures_by_name(
    described: Callable[..., Manifest],
    pictures: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    classes(pictures, a=5)
    rule = described(validation_every=2).source["validation"]
    assert missing(rule, 2) == [] and rule in capfd.readouterr().out
    assert sorted(p.name for p in (tmp_path / "data/raw/val/a").iterdir()) == [
        "bild 01 ü.png",
        "bild 03 ü.png",
    ]
    with refuses(TargetError, rule, rule.replace("2", "5"), "rm -r"):
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
    samples = [
        {"jpg": picture(n, kind="JPEG"), "cls": b"%d" % (n % 2 * 9 + 1), "json": b"{}"}
        for n in range(6)
    ]
    one, other = {
        "one": ("a", "b"),
        "named": ("train-0", "val-0"),
        "folders": ("train/0", "val/0"),
    }[layout]
    shard(pictures / f"{one}.tar", *samples[:4])
    shard(pictures / f"{other}.tar", *samples[4:])
    manifest = described(form, validation_every=3)
    assert manifest.classes == ("01", "10")
    assert sizes(manifest) == {"train": {"01": 2, "10": 2}, "val": {"01": 1, "10": 1}}
    assert verify([tmp_path / "data" / form]) == []


def test_one_class_one_picture(described: Callable[..., Manifest], pictures: Path) -> None:
    classes(pictures / "train", only=1)
    with refuses(SourceError, "mine.yaml", "validation_every", 10, "val"):
        described()
    classes(pictures / "val", only=1)
    assert sizes(described()) == {"train": {"only": 1}, "val": {"only": 1}}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda top: None, "no class folders"),
        (lambda top: top.rmdir(), "pictures: .*No such file"),
        (lambda top: classes(top, a=3, b=0), "pictures/b: .*no pictures"),
        (lambda top: classes(top, a=5), "validation_every: 10: .*at most 5"),
        (
            lambda top: (classes(top / "train", a=3), classes(top / "val", b=1)),
            "val/b: .*not a class .*train",
        ),
        (
            lambda top: (classes(top, a=20), (top / "a/BILD 00 ü.png").write_bytes(b"")),
            "2 files have the same name",
        ),
        (lambda top: (top / "x.tar").write_bytes(b"no tar"), r"x\.tar: .*damaged"),
        (lambda top: shard(top / "x.tar", {"jpg": b"x"}), r"x\.tar: .*some/where/0 .*jpg.*cls"),
        (lambda top: shard(top / "x.tar", {"cls": b"1"}), r"x\.tar: .*some/where/0 has cls;"),
        (
            lambda top: shard(top / "x.tar", {"jpg": b"x", "cls": b"../../up"}),
            r"cls is '\.\./\.\./up'",
        ),
        (lambda top: shard(top / "x.tar", {"jpg": b"x", "cls": b"a" * 300}), "cls is 'aaa"),
        (
            lambda top: [
                shard(top / f"{n}.tar", {"jpg": b"x", "cls": b"1"})
                for n in ("train", "val", "more")
            ],
            r"more\.tar: belongs to neither split",
        ),
        (
            lambda top: [
                shard(top / f"{n}.tar", {"jpg": b"x", "cls": b"1"})
                for n in ("set-0", "train-val-1")
            ],
            r"train-val-1\.tar: .*train and val",
        ),
        (
            lambda top: (classes(top / "train", a=3), classes(top, validation=3)),
            "validation: .*no class folders",
        ),
        (
            lambda top: (classes(top / "train", a=3), classes(top, test=3)),
            "test: .*no class folders",
        ),
        (lambda top: classes(top, a=20, valid=20), "valid: .*no class folders"),
        (
            lambda top: (classes(top / "train", a=3), classes(top / "Training", a=3)),
            "Training: .*train",
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


def test_bad_pictures_stop_or_are_skipped(
    described: Callable[..., Manifest], pictures: Path
) -> None:
    classes(pictures, a=20)
    (pictures / "a/bild 00 ü.png").write_bytes(b"no picture")
    (pictures / "a/gone.png").symlink_to("nowhere")
    (pictures / "a/phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with refuses(BadImage, "bild 00 ü.png", "JPEG", "PNG"):
        described()
    manifest = described(on_error="skip")
    assert sizes(manifest) == {"train": {"a": 17}, "val": {"a": 2}}
    assert {*manifest.splits["train"].skipped, *manifest.splits["val"].skipped} == {
        *("a/bild 00 ü.png", "a/gone.png", "a/phone.heic")
    }


def test_a_form_does_not_go_into_the_users_folder(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path
) -> None:
    classes(pictures, a=20)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/raw").symlink_to(pictures)
    with refuses(TargetError, tmp_path / "data/raw", pictures):
        described()


def test_the_plan_guesses_and_says_so(described: Callable[..., Manifest], pictures: Path) -> None:
    classes(pictures, a=20, b=3)
    described()
    mine = get("mine")
    assert isinstance(mine, _own.Own) and not mine.in_place(None)
    assert (mine.IMAGES, mine.NUM_CLASSES) == ({"train": 36, "val": 4}, 2)
    cut, line = mine.remarks()
    assert "one picture in 10" in cut
    assert "guesses: 2 classes and 36 pictures" in line and "mine.yaml" in line
    pictures.rename(pictures.with_name("away"))
    for says in ("No such file", "no class folders"):
        assert says in get("mine").remarks()[0]  # type: ignore[attr-defined]  # only those of users have it
        pictures.mkdir(exist_ok=True)
    pictures.with_name("away").rename(pictures)


@pytest.mark.parametrize(("text", "facts"), bad_input("pictures"))
def test_a_wrong_description_is_one_line(files: Files, text: str, facts: tuple[str, ...]) -> None:
    folder = files.folder / "datasets"
    folder.mkdir()
    files.spoil("study", "dataset: mnist5k", "dataset: flowers")
    assert missing(files.complaint(), "dataset", '"flowers"') == []
    (folder / "flowers.yaml").write_text(text)
    with refuses(ConfigError, f"{folder}/flowers.yaml: ", *facts):
        files.load()


def test_a_name_of_ours_stays_ours(files: Files) -> None:
    (files.folder / "datasets").mkdir()
    (files.folder / "datasets/mnist5k.yaml").write_text("folder: /x")
    assert missing(files.complaint(), "mnist5k.yaml") == []


KINDS = {"webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tif": "TIFF", "TIFF": "TIFF", "jpeg": "JPEG"}


@pytest.mark.parametrize("form", registry.members("forms"))
@pytest.mark.parametrize("split", [True, False])
def test_pictures_of_all_kinds_are_taken_from_wherever_they_lie_in_a_class(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path, form: str, split: bool
) -> None:
    """And folders that a system left there are passed over."""
    tops = [pictures / "train", pictures / "val"] if split else [pictures]
    for number, top in enumerate(tops):
        classes(top, a=2, b=2)
        for place, (ending, kind) in enumerate(KINDS.items()):
            inner = top / "a" / ("day 1/morning" if place % 2 else "")
            inner.mkdir(parents=True, exist_ok=True)
            (inner / f"x.{ending}").write_bytes(picture(100 + 10 * number + place, kind=kind))
        for junk in ("a/@eaDir/x.jpg", "a/.ipynb_checkpoints", "@eaDir/a"):
            (top / junk).mkdir(parents=True)
            (top / junk / "thumb.jpg").write_bytes(b"no picture of the set")
    manifest = described(form, validation_every=2)
    total = sum(split.images for split in manifest.splits.values())
    assert (
        total == (20 if split else 10) and manifest.classes == ("a", "b") and manifest.root is None
    )
    assert verify([tmp_path / "data" / form]) == []


@pytest.mark.parametrize("loader", ["native", "torchvision"])
def test_folders_that_a_system_left_are_no_pictures_for_loaders(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path, loader: str
) -> None:
    for top in (pictures / "train", pictures / "val"):
        classes(top, a=3, b=2)
        for junk in ("a/@eaDir", "@eaDir"):
            (top / junk).mkdir(parents=True)
            (top / junk / "thumb.jpg").write_bytes(picture(1))
    assert described().root == str(pictures)
    assert scout.read_rate(tmp_path / "data/raw")["files"] == 10
    run = run_spec(loader=loader, form="raw", dataset="mine")
    if loader == "torchvision":
        assert len(torchvision.Batched(tmp_path / "data/raw", "train", run, 5).folder) == 5
    else:
        assert len(raw.Files(tmp_path / "data/raw", "train")) == 5


@pytest.mark.parametrize(
    ("train", "val", "unused"),
    [
        ("training", "valid", None),
        ("Train", "Validation", "Test"),
        ("train", "dev", "test"),
        ("train", "test", None),
        ("train", "val", "test"),
    ],
)
def test_folders_of_splits_by_any_usual_name(
    described: Callable[..., Manifest],
    pictures: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    train: str,
    val: str,
    unused: str | None,
) -> None:
    classes(pictures / train, a=4, b=3)
    classes(pictures / val, a=1, b=2)
    if unused:
        classes(pictures / unused, a=5, b=5)
    manifest = described()
    assert sizes(manifest) == {"train": {"a": 4, "b": 3}, "val": {"a": 1, "b": 2}}
    assert "validation" not in manifest.source
    assert (manifest.root is None) is ((train, val) != ("train", "val"))
    said = capfd.readouterr().out
    assert f"validation: {val}" in said and (unused is None or f"not used: {unused}" in said)
    assert f"validation: {val}" in get("mine").remarks()[0]  # type: ignore[attr-defined]
    assert get("mine").in_place(None) is (manifest.root is not None)


@pytest.mark.parametrize(
    ("train", "val", "unused"),
    [
        ("imagenet1k-train-{:04d}", "imagenet1k-validation-{:02d}", None),
        ("shard_{:03d}_training", "shard_{:03d}_valid", "shard_{:03d}_test"),
        ("train-{:06d}", "test-{:06d}", None),
        ("test-set-train{}", "test-set-val{}", None),
        ("MySetTrain{}", "MySetDev{}", None),
        ("training/{}", "Validation/{}", "test/{}"),
    ],
)
def test_shards_say_their_split_anywhere_in_their_names(
    described: Callable[..., Manifest], pictures: Path, train: str, val: str, unused: str | None
) -> None:
    count = 0
    for name, shards in ((train, 3), (val, 2), (unused, 1)):
        for number in range(shards if name else 0):
            samples = [{"jpg": picture(count + n, kind="JPEG"), "cls": b"%d" % n} for n in range(2)]
            shard(pictures / f"{str(name).format(number)}.tar", *samples)
            count += 2
    assert sizes(described()) == {"train": {"0": 3, "1": 3}, "val": {"0": 2, "1": 2}}


def test_a_validation_set_that_was_cut_is_in_the_facts_of_a_run(
    described: Callable[..., Manifest], pictures: Path, tmp_path: Path
) -> None:
    classes(pictures, a=20)
    rule = described().source["validation"]
    assert missing(rule, 10) == []
    assert facts(run_spec(), [], data=tmp_path / "data/raw")["validation"] == rule
    shutil.rmtree(tmp_path / "data/raw")
    (pictures / "a").rename(pictures / "b")
    classes(pictures / "train", a=2)
    classes(pictures / "val", a=2)
    shutil.rmtree(pictures / "b")
    described()
    assert facts(run_spec(), [], data=tmp_path / "data/raw")["validation"] == "its own"
    assert facts(run_spec(), [])["validation"] is None
