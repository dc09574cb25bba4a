"""Augmentation `imagenet` on JPEGs: all loaders validate on the same pictures and train on alike
ones.
"""

import io
import traceback
from dataclasses import replace

import numpy as np
import pytest
import torch
from ddlbench.core import registry
from ddlbench.patches import torchvision_operators
from ddlbench.train.loaders import _dali, _pictures
from PIL import Image

from tests.contract import launches
from tests.contract.test_samples import ALIKE, READERS, open_all, pixels
from tests.sources import Sample, prepare_all

pytestmark = pytest.mark.more

IMAGES = 40
CLASSES = tuple("abcd")
SIZES = (
    56,
    32,
)  # 56: the shorter side is a whole 64 pixels before the centre is cut; 32: it is not


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """JPEGs of 300x200 and 200x300: coloured gradients with noise, every fifth with an EXIF
    orientation.
    """
    rng = np.random.default_rng(1)
    samples = []
    for i in range(IMAGES):
        width, height = (300, 200) if i % 2 else (200, 300)
        down, right = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j][..., None]
        smooth = 255 * (rng.random(3) * down + rng.random(3) * right) / 2 + 60 * rng.random(3)
        image = Image.fromarray(
            (smooth + rng.normal(0, 20, (height, width, 3))).clip(0, 255).astype(np.uint8)
        )
        exif = Image.Exif()
        if i % 5 == 0:
            exif[0x0112] = 6  # orientation: turned by a quarter
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=90, exif=exif)
        samples.append(Sample(f"{i:02d}.jpg", i % len(CLASSES), buffer.getvalue(), height, width))
    folder = tmp_path_factory.mktemp("photographs")
    return prepare_all(folder, {"train": samples, "val": samples}, CLASSES)


def epochs(reader, folder, split, size, count=1):
    """All pictures of some epochs and their labels, in the loader's order."""
    recipe = replace(launches.PLAIN, augmentation="imagenet", image_size=size)
    (opened,) = open_all(reader, folder, split, IMAGES, 16, 1, recipe, len(CLASSES))
    batches = [b for epoch in range(count) for b in opened.epoch(epoch)]
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


@pytest.mark.parametrize("size", SIZES)
def test_validation_pictures_agree(photographs, size):
    """Resized with a filter as wide as the shrinking, cut to the centre: within a grey level on
    average.
    """
    readers = [("native", "raw"), *(reader for reader in READERS if reader != ("native", "raw"))]
    (native, labels), *others = (epochs(reader, photographs, "val", size) for reader in readers)
    for other, other_labels in others:
        distance = (pixels(native)[:, None] - pixels(other)[None]).abs().mean((2, 3, 4))
        nearest = distance.argmin(1)
        assert sorted(nearest.tolist()) == list(
            range(IMAGES)
        )  # each has one partner, in another order
        assert torch.equal(labels, other_labels[nearest])
        assert distance.min(1).values.max() < 0.5


def test_torchvision_is_pytorchs_own_pipeline(photographs):
    """To the bit, as github.com/pytorch/examples (imagenet/main.py) has it: what papers mean by the
    native loader.
    """
    torchvision_operators.apply()  # nothing may have imported torchvision in this process before
    from torchvision import datasets, transforms

    by_hand = [
        transforms.Resize(64),
        transforms.CenterCrop(56),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    theirs = datasets.ImageFolder(str(photographs / "raw" / "val"), transforms.Compose(by_hand))
    images, labels = epochs(("torchvision", "raw"), photographs, "val", 56)
    assert torch.equal(images, torch.stack([image for image, _ in theirs]))
    assert labels.tolist() == theirs.targets


def test_torchvision_crops_each_picture_in_its_own_way(tmp_path):
    """Of one picture under several names: no two crops are equal."""
    noise = np.random.default_rng(2).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    names = [f"{i}.png" for i in range(IMAGES)]
    samples = [
        Sample(name, i % len(CLASSES), buffer.getvalue(), 64, 64) for i, name in enumerate(names)
    ]
    folder = prepare_all(tmp_path, {"train": samples, "val": samples[:4]}, CLASSES)
    images, _ = epochs(("torchvision", "raw"), folder, "train", 32)
    assert len(images.flatten(1).unique(dim=0)) == IMAGES


def test_training_pictures_are_alike(photographs):
    """Crops are drawn at random: what agrees is shape, type, labels, and the statistics of many."""
    size, count = SIZES[0], 10
    # Those that are ALIKE give native's pictures to the bit (test_samples.py).
    others = [reader for reader in READERS if reader not in ALIKE]
    given = [
        epochs(reader, photographs, "train", size, count) for reader in (("native", "raw"), *others)
    ]
    for x, y in given:
        assert (x.shape, x.dtype) == ((IMAGES * count, 3, size, size), torch.float32)
        assert (y.bincount() == IMAGES * count // len(CLASSES)).all()
        assert not torch.equal(x[:IMAGES].sort(0).values, x[IMAGES : 2 * IMAGES].sort(0).values)
    (native, _), *others = given
    for other, _ in others:
        torch.testing.assert_close(native.mean((0, 2, 3)), other.mean((0, 2, 3)), rtol=0, atol=0.05)
        torch.testing.assert_close(native.std((0, 2, 3)), other.std((0, 2, 3)), rtol=0, atol=0.05)
        # Half are flipped, crops are of all sizes: so are the gradients across and down the
        # pictures.
        for dim in (2, 3):
            spread = [float(x.diff(dim=dim).mean((1, 2, 3)).std()) for x in (native, other)]
            assert spread[0] == pytest.approx(spread[1], rel=0.2)


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("JPEG", "RGB", {"quality": 90}),
        ("JPEG", "RGB", {"quality": 75, "subsampling": 0, "progressive": True}),
        ("JPEG", "L", {}),
        ("JPEG", "CMYK", {}),
        ("PNG", "RGB", {}),
    ],
)
def test_native_decodes_as_pillow_does(tmp_path, kind, mode, options):
    """Whoever decodes: the same pixels to the bit."""
    noise = np.random.default_rng(1).integers(0, 256, (40, 61, 3), np.uint8)
    path = tmp_path / "a"
    Image.fromarray(noise).resize((200, 150), Image.Resampling.BICUBIC).convert(mode).save(
        path, kind, **options
    )
    assert (
        _pictures.decoded(path.read_bytes(), str) == np.asarray(Image.open(path).convert("RGB"))
    ).all()


def test_native_decodes_what_pillow_overlooks(tmp_path):
    """Bytes that belong to nothing within a JPEG: libjpeg warns, Pillow takes it."""
    buffer = io.BytesIO()
    Image.new("RGB", (20, 10), (10, 200, 30)).save(buffer, "JPEG")
    encoded = buffer.getvalue()
    (tmp_path / "a").write_bytes(encoded[:-2] + b"\x12\x34" + encoded[-2:])
    assert (
        _pictures.decoded((tmp_path / "a").read_bytes(), str)
        == np.asarray(Image.open(tmp_path / "a"))
    ).all()


@pytest.mark.parametrize("content", [b"no picture", b"\x89PNG\r\n\x1a\n"])
def test_a_picture_that_cannot_be_decoded_is_named(content):
    with pytest.raises(OSError) as caught:
        _pictures.decoded(content, lambda: "class/a.png")
    assert "class/a.png" in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize("box", [(3, 5, 193, 133), (0, 0, 200, 150), (20, 20, 60, 61)])
def test_native_resizes_as_pillow_does(box):
    """A crop that is resized, as torchvision does it: PyTorch's filter and Pillow's differ by a
    grey level at most.
    """
    picture = np.random.default_rng(1).integers(0, 256, (150, 200, 3), np.uint8)
    pillow = Image.fromarray(picture).crop(box).resize((56, 56), Image.Resampling.BILINEAR)
    ours = _pictures.resized(picture, box, 56).transpose(1, 2, 0)
    assert np.abs(ours.astype(int) - np.asarray(pillow)).max() <= 1


def operators(folder, split, on_gpu, device, **options):
    """The graph of a DALI pipeline that is defined, not built: (operator, its arguments as
    text).
    """
    recipe = replace(launches.PLAIN, augmentation="imagenet", image_size=56)
    spec = replace(
        launches.spec_of("plain", "ddp", 2), loader="dali-gpu", recipe=recipe, device=device
    )
    made = _dali.pipeline(folder / "tfrecord", split, spec, 1, on_gpu, **options)
    made.serialize()  # defines the graph, which checks every argument's name and type
    graph = []
    for operator in made._ops:
        told, arguments = repr(operator.spec).split("Arguments:")
        pairs = (line.strip().split(": ", 1) for line in arguments.splitlines() if ": " in line)
        graph.append(
            (
                told.split()[2].rstrip(":"),
                {key: value for key, value in pairs if not key.startswith("_")},
            )
        )
    return graph


@pytest.mark.parametrize("split", ["train", "val"])
def test_gpu_pipeline_is_the_cpu_one_on_other_devices(photographs, split, monkeypatch):
    """As far as a machine without a GPU can tell: DALI builds it only where there is one."""
    pytest.importorskip("nvidia.dali")
    monkeypatch.setattr(_dali, "_device_index", lambda: None)
    cpu, gpu = (
        operators(photographs, split, device == "cuda", device) for device in ("cpu", "cuda")
    )
    decoders = [arguments for name, arguments in gpu if name.startswith("decoders")]
    assert len(decoders) == 1
    assert decoders[0]["device"] == "mixed"
    for name, value in _dali.GPU_DECODER.items():
        assert float(decoders[0].pop(name).replace("True", "1")) == value, name
    devices = {name: arguments.pop("device") for name, arguments in gpu}
    assert devices["Resize"] == devices["CropMirrorNormalize"] == "gpu"
    assert {arguments.pop("device") for _, arguments in cpu} == {"cpu"}
    assert gpu == cpu
    member = registry.member("loaders", "dali-gpu")
    assert (member.DEVICE, member.Loader.on_gpu) == ("cuda", True)


@pytest.mark.parametrize("split", ["train", "val"])
def test_pictures_decoded_on_the_cpu_are_normalised_on_the_gpu(photographs, split, monkeypatch):
    """Bytes go to the GPU, a quarter of the floats; DALI copies them while the step before is
    computed.
    """
    pytest.importorskip("nvidia.dali")
    monkeypatch.setattr(_dali, "_device_index", lambda: None)
    here, for_gpu = (operators(photographs, split, False, device) for device in ("cpu", "cuda"))
    all_here = operators(photographs, split, False, "cuda", normalises_on_gpu=False)
    assert all_here == here  # dali-cpu-only: nothing is left to the GPU
    assert registry.member("loaders", "dali-cpu-only").Loader.normalises_on_gpu is False
    devices = {name: arguments["device"] for name, arguments in for_gpu}
    assert (devices.pop("CropMirrorNormalize"), set(devices.values())) == ("gpu", {"cpu"})
    assert for_gpu[-1][0] == "CropMirrorNormalize"
    assert [name for name, _ in here] == [name for name, _ in for_gpu]
