"""Pictures that weigh what ImageNet's do, from a seed."""

import io
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ddlbench.data.datasets.synthetic_imagenet import IMAGES, NUM_CLASSES, open_source
from ddlbench.data.pictures import jpeg_header, mended
from ddlbench.data.source import Place, SourceError
from PIL import Image


def opened(given: str | None) -> Any:
    return open_source(Place(given, Path("nowhere")))


def test_the_default_is_what_the_constants_say() -> None:
    source = opened(None)
    assert {s: len(source.entries(s)) for s in IMAGES} == IMAGES
    assert len(source.classes) == NUM_CLASSES
    assert not Path("nowhere").exists()


def test_count_and_classes_are_as_asked_for() -> None:
    source = opened("train=70, val=30, classes=7")
    assert source.classes == tuple(sorted(source.classes))
    for split, count in (("train", 70), ("val", 30)):
        entries = source.entries(split)
        assert len({e.filename for e in entries}) == len(entries) == count
        assert set(np.bincount([e.label for e in entries])) <= {count // 7, count // 7 + 1}
    assert source.described == {"source": "made here", "train": 70, "val": 30, "classes": 7, "seed": 1}


def test_every_process_makes_the_same_bytes() -> None:
    source = opened("train=8,val=2,classes=2")
    entries = source.entries("train")
    here = [source.read(entry) for entry in entries]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(pickle.loads(pickle.dumps(source)).read, reversed(entries))) == here[::-1]
    others = opened("train=8,val=2,classes=2,seed=2"), opened("train=9,val=9,classes=2")
    assert others[0].read(entries[0]) != here[0]
    assert others[1].read(entries[0]) == here[0], "more pictures leave those before as they are"
    assert source.read(source.entries("val")[0]) != here[0]


def test_they_weigh_and_measure_what_those_of_imagenet_do() -> None:
    source = opened("train=300,val=10,classes=10")
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
    source = opened("train=150,val=50,classes=10")

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
        opened(given)
