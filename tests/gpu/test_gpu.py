"""What only a GPU can say: that loaders overwrite no pictures in use, that its decoder decodes the
same and goes on from a checkpoint. Skipped, with the reason, where there is none.

`make gpu-check` runs them and prints a summary (`conftest.py`); with DEVICE=cpu it tries the tests
themselves.
"""

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ddlbench.core import registry
from ddlbench.train.loaders import PictureSet
from PIL import Image

from tests.contract import launches
from tests.sources import Sample, prepare_all

torch = pytest.importorskip("torch")
DEVICE = os.environ.get("DDLBENCH_GPU_TIER", "cuda")
pytestmark = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(),
    reason="no GPU: torch.cuda.is_available() is false",
)

READERS = [
    (name, form)
    for name in registry.members("loaders")
    for form in registry.member("loaders", name).FORMS
]
NATIVE = ("native", "raw")
OTHERS = [reader for reader in READERS if reader != NATIVE]
IMAGES, BATCH, SIZE = {"train": 96, "val": 32}, 8, 64
AHEAD_CYCLES = (
    100_000_000  # the GPU begins each step so much later [cycles of its clock, some 0.06 s]
)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every form of JPEGs with smooth colours, as photographs have them."""
    draw = np.random.default_rng(1)

    def sample(number: int) -> Sample:
        coarse = draw.integers(0, 256, (6, 8, 3), np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(coarse).resize((200, 150), Image.Resampling.BICUBIC).save(
            buffer, "JPEG", quality=90
        )
        return Sample(f"{number:02d}.jpg", number % 2, buffer.getvalue(), 150, 200)

    samples = {
        split: [sample(number) for number in range(count)] for split, count in IMAGES.items()
    }
    return prepare_all(tmp_path_factory.mktemp("photographs"), samples, ("a", "b"))


def opened(reader: tuple[str, str], folder: Path, split: str, state: Any = None) -> Any:
    """A loader of one rank."""
    loader, form = reader
    member = registry.member("loaders", loader)
    if member.PACKAGE and not registry.importable(member.PACKAGE):
        pytest.skip(f"{member.PACKAGE} is not installed: {member.INSTALL}")
    if member.DEVICE not in (None, DEVICE):
        pytest.skip(f"loader {loader} needs device {member.DEVICE}")
    recipe = replace(launches.PLAIN, augmentation="imagenet", image_size=SIZE)
    spec = replace(launches.spec_of("plain", "ddp", 1), loader=loader, form=form, device=DEVICE)
    spec = replace(spec, global_batch=BATCH, recipe=recipe, loader_threads=2, epochs=2)
    source = PictureSet(folder / form, split, IMAGES[split], 2)
    return member.Loader(source, spec, 0, state)


def seen(batches: Any, ahead: bool) -> list[list[float]]:
    """Sums of each batch. With `ahead` the GPU takes each only when the host has asked for many
    more.
    """
    sums = []
    for x, y in batches:
        if ahead and DEVICE == "cuda":
            torch.cuda._sleep(AHEAD_CYCLES)
        sums.append(torch.stack([x.double().sum(), x.double().square().sum(), y.double().sum()]))
        if not ahead and DEVICE == "cuda":
            torch.cuda.synchronize()
    return [part.tolist() for part in sums]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: "-".join(reader))
def test_nobody_overwrites_pictures_that_the_gpu_has_not_used_yet(
    reader: tuple[str, str], photographs: Path
) -> None:
    """The host runs ahead of its GPU; a step must see the pictures that it was given, as where the
    host waits.
    """
    waiting, ahead = (opened(reader, photographs, "train") for _ in range(2))
    for epoch in range(2):
        assert seen(ahead.epoch(epoch), True) == seen(waiting.epoch(epoch), False)


@pytest.mark.parametrize("reader", OTHERS, ids=lambda reader: "-".join(reader))
def test_every_loader_shows_the_same_photographs(
    reader: tuple[str, str], photographs: Path
) -> None:
    """Half a grey level on average, as between decoders on the CPU; blocky upsampling of colours
    would be several.
    """
    native, other = (
        torch.cat([x for x, _ in opened(of, photographs, "val").epoch(0)])
        for of in (NATIVE, reader)
    )
    distance = (
        (native[:, None] - other[None]).abs().mean((2, 3, 4)) * 255 * 0.225
    )  # normalised units to grey levels
    assert sorted(distance.argmin(1).tolist()) == list(
        range(IMAGES["val"])
    )  # each has one partner, in another order
    assert distance.min(1).values.max() < 0.5


@pytest.mark.parametrize("reader", OTHERS, ids=lambda reader: "-".join(reader))
def test_a_stream_goes_on_from_its_checkpoint(reader: tuple[str, str], photographs: Path) -> None:
    """The GPU's decoder draws crops, too: its random state must be in DALI's checkpoint."""
    whole = opened(reader, photographs, "train")
    batches = whole.epoch(0)
    for _ in range(5):
        next(batches)
    state = whole.state()
    rest = seen(batches, False)
    assert seen(opened(reader, photographs, "train", state).epoch(0, 5), False) == rest
