"""Loaders feed every sample once an epoch over the ranks, in steps of the size that the loop
expects.
"""

import gc
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import traceback
import weakref
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from ddlbench.core import registry
from ddlbench.data.datasets import mnist5k
from ddlbench.train.loaders import PictureSet
from ddlbench.train.loaders._normalisation import MEAN, STD
from PIL import Image

from tests.conftest import ROOT
from tests.contract import launches
from tests.sources import prepare_all

# (loader, form): those that read pictures on any device; members that are added are held to this by
# themselves.
READERS = [
    (loader, form)
    for loader in registry.members("loaders")
    for form in registry.member("loaders", loader).FORMS
    if registry.member("loaders", loader).DEVICE is None
]
OFTEN = (("native", "raw"), ("dali-cpu", "tfrecord"), ("dali-cpu", "raw"))  # daily in every case
HEAVY = ("dali-cpu", "webdataset")
ALIKE = [reader for reader in READERS if reader[0] in ("native", "spdl")]  # the same batches
DALI = [reader for reader in READERS if reader[0] == "dali-cpu"]
UNREAD = [
    (name, None)
    for name in registry.members("loaders")
    if not registry.member("loaders", name).FORMS
]
# (training images, validation images, global batch, ranks); the sizes of shares matter, not the
# pictures.
EVEN = [(1000, 250, 96, workers) for workers in (1, 2, 3)]
AWKWARD = [
    (257, 65, 64, 2),  # the last step has one image: one rank has none
    (133, 67, 66, 3),  # the same for two of three ranks
    (40, 20, 64, 3),  # one step, smaller than a batch
]
# All loaders decode PNG without loss; in the last bits they normalise differently.
PIXEL_TOLERANCE = 1e-5  # normalised units


@pytest.fixture(autouse=True)
def no_pipelines_left(request):
    """A pipeline of DALI keeps its addresses until it is collected."""
    yield
    if "dali" in request.node.name:
        gc.collect()


def ran_alone(reader, request):
    """Whether this test was run in a process of its own: where DALI opens a webdataset many times,
    or a damaged one, it takes addresses by the gigabyte, until they are so many that the process
    cannot be forked any more.
    """
    if reader != HEAVY or os.environ.get("DDLBENCH_ALONE") == "1":
        return False
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", request.node.nodeid],
        cwd=ROOT,
        env=environment | {"DDLBENCH_ALONE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    return True


def cases(readers, *each, daily=lambda reader: True):
    """Parameters (reader, *case): of the readers of `OFTEN` all cases, of others the first daily
    and the rest slow.

    Of those of `OFTEN` the awkward ones are in `make test`, the others in `make test-more`.
    """

    def marks(reader, number):
        if reader in OFTEN:
            return () if number < 2 * len(AWKWARD) else pytest.mark.more
        return () if number == 0 and daily(reader) else pytest.mark.slow

    return [
        pytest.param(
            reader,
            *case,
            marks=marks(reader, number),
            id="-".join(map(str, filter(None, (*reader, *case)))),
        )
        for reader in readers
        for number, case in enumerate(each)
    ]


def some_of(digits, split, images):
    """So many images of a split; a stride keeps the classes balanced."""
    return digits[split][:: len(digits[split]) // images][:images]


@pytest.fixture(scope="session")
def prepared(once, digits):
    """Some images of mnist5k in every form, by (training images, validation images); prepared
    once.
    """

    def folder(train, val):
        samples = {"train": some_of(digits, "train", train), "val": some_of(digits, "val", val)}
        return once(
            f"samples-{train}-{val}", lambda made: prepare_all(made, samples, mnist5k.CLASSES)
        )

    return folder


def open_all(
    reader, folder, split, images, batch, workers, recipe=launches.PLAIN, classes=10, states=None
):
    """One loader a rank, as `train.py` opens them."""
    loader, form = reader
    spec = replace(
        launches.spec_of("plain", "ddp", workers), loader=loader, form=form, global_batch=batch
    )
    spec = replace(spec, recipe=recipe)
    launches.need(spec)
    member = registry.member("loaders", loader)
    states = states or [None] * workers
    data = folder / form if form else None
    source = PictureSet(data, split, images, classes)
    return [member.Loader(source, spec, r, state) for r, state in enumerate(states)]


def pixels(x):
    """Normalised pictures as they were: 0 to 255, not rounded."""
    return (x * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)) * 255


def fingerprints(batch):
    """(pixels, label) of each picture of a batch, as something that can be counted."""
    x, y = batch
    return [
        (p.tobytes(), label)
        for p, label in zip(pixels(x).round().byte().numpy(), y.tolist(), strict=True)
    ]


def expected(sample):
    """The fingerprint of a sample, from its file."""
    image = np.asarray(Image.open(io.BytesIO(sample.encoded)).convert("RGB"))
    return image.transpose(2, 0, 1).tobytes(), sample.label


@pytest.mark.parametrize(
    ("reader", "split", "train", "val", "batch", "workers"),
    cases(READERS, *((split, *case) for case in AWKWARD + EVEN for split in ("train", "val"))),
)
def test_every_sample_once_an_epoch(prepared, digits, reader, split, train, val, batch, workers):
    images = {"train": train, "val": val}[split]
    whole = Counter(map(expected, some_of(digits, split, images)))
    opened = open_all(reader, prepared(train, val), split, images, batch, workers)
    orders = []
    for epoch in range(2):
        ranks = [list(one.epoch(epoch)) for one in opened]
        sizes = [[len(y) for _, y in batches] for batches in ranks]
        steps = -(-images // batch)
        assert [len(s) for s in sizes] == [steps] * workers
        assert np.sum(sizes, 0).tolist() == [
            min(batch, images - step * batch) for step in range(steps)
        ]
        seen = [f for batches in ranks for b in batches if len(b[1]) for f in fingerprints(b)]
        assert Counter(seen) == whole
        orders.append(seen)
    assert (orders[0] != orders[1]) == (split == "train" or ("dali-cpu" in reader and workers > 1))


def test_loaders_give_the_same_pictures(prepared):
    given = []
    for reader in READERS:
        (opened,) = open_all(reader, prepared(257, 65), "val", 65, 64, 1)
        batches = list(opened.epoch(0))
        assert {(x.dtype, y.dtype) for x, y in batches} == {(torch.float32, torch.int64)}
        pairs = [pair for x, y in batches for pair in zip(x, y.tolist(), strict=True)]
        # Forms keep samples in different orders: sort by label and content.
        given.append(
            sorted(
                pairs, key=lambda pair: (pair[1], pixels(pair[0]).round().byte().numpy().tobytes())
            )
        )
    for pictures in zip(*given, strict=True):
        assert len({label for _, label in pictures}) == 1
        for other, _ in pictures[1:]:
            torch.testing.assert_close(pictures[0][0], other, rtol=0, atol=PIXEL_TOLERANCE)


@pytest.mark.parametrize("workers", [1, 2])
def test_loaders_that_decode_in_python_give_the_same_batches(prepared, workers):
    """To the bit and in the same order, from either form: the same training, whoever feeds it."""
    recipe = replace(launches.PLAIN, augmentation="imagenet", image_size=16)
    given = [
        [
            list(one.epoch(epoch))
            for one in open_all(reader, prepared(257, 65), "train", 257, 64, workers, recipe)
        ]
        for reader in ALIKE
        for epoch in range(2)
    ]
    assert len(given) >= 8
    for number, other in enumerate(given[2:]):
        for ours, theirs in zip(given[number % 2], other, strict=True):
            pairs = list(zip(ours, theirs, strict=True))
            assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in pairs)


def spoiled(folder, reader):
    """The form with every byte of every picture's middle zeroed, under the names that loaders
    know.
    """
    form = reader[1]
    for file in folder.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        if data and (file.suffix == ".png" or ("-of-" in file.name and file.suffix != ".idx")):
            file.write_bytes(
                re.sub(rb"IDAT.{20}", lambda found: b"IDAT" + bytes(20), data, flags=re.DOTALL)
            )
    return folder / form


@pytest.mark.parametrize(
    "reader",
    [pytest.param(r, marks=pytest.mark.slow if r == HEAVY else ()) for r in READERS],
    ids="-".join,
)
def test_a_picture_that_cannot_be_decoded_ends_the_run(prepared, tmp_path, reader, request):
    """It is not left out; and where the loader knows it, the message names the picture."""
    if ran_alone(reader, request):
        return
    folder = tmp_path / "spoiled"
    shutil.copytree(prepared(50, 20), folder)
    spoiled(folder, reader)
    with pytest.raises((OSError, RuntimeError)) as caught:
        (opened,) = open_all(reader, folder, "train", 50, 16, 1)  # DALI begins at once
        list(opened.epoch(0))
    said = "".join(traceback.format_exception(caught.value))
    assert reader[0] == "dali-cpu" or str(folder / reader[1] / "train") in said


def test_threads_of_spdl_end_with_an_epoch_that_nobody_takes(prepared):
    """Begun or not: a rank that fails must not wait for them."""
    before = set(threading.enumerate())
    (loader,) = open_all(("spdl", "raw"), prepared(257, 65), "train", 257, 16, 1)
    batches = loader.epoch(0)
    assert set(threading.enumerate()) - before
    del batches
    gc.collect()
    assert not set(threading.enumerate()) - before
    batches = loader.epoch(1)
    next(batches)
    batches.close()
    assert not set(threading.enumerate()) - before
    assert len(list(loader.epoch(1))) == 17


def through_a_file(state):
    """A state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.more
@pytest.mark.parametrize(
    ("reader", "split", "workers"),
    cases(
        [*READERS, *UNREAD],
        *((split, workers) for workers in (2, 1) for split in ("train", "val")),
        daily=lambda reader: reader != HEAVY,
    ),
)
def test_goes_on_from_any_step(prepared, reader, split, workers, request):
    """From a state, the rest of that epoch and the next one are what they would have been, to the
    bit.
    """
    if ran_alone(reader, request):
        return
    images, batch = {"train": (257, 64), "val": (65, 16)}[
        split
    ]  # five steps; in the last, one of two ranks has none
    recipe = replace(launches.PLAIN, augmentation="imagenet", image_size=16)

    def opened(states=None):
        return open_all(
            reader, prepared(257, 65), split, images, batch, workers, recipe, states=states
        )

    def same(ours, theirs):
        pairs = zip(ours, theirs, strict=True)
        return all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in pairs)

    undisturbed = [[list(one.epoch(epoch)) for epoch in range(3)] for one in opened()]
    assert {len(batches) for rank in undisturbed for batches in rank} == {5}
    saved = {}  # (epoch, steps taken, whether the epoch's end was seen): a state a rank
    for rank, one in enumerate(opened()):
        for epoch in range(2):
            saved.setdefault((epoch, 0, False), []).append(through_a_file(one.state()))
            batches = one.epoch(epoch)
            for step, expected_batch in enumerate(undisturbed[rank][epoch]):
                assert same([next(batches)], [expected_batch])
                saved.setdefault((epoch, step + 1, False), []).append(through_a_file(one.state()))
            assert next(batches, None) is None
            saved.setdefault((epoch, 5, True), []).append(through_a_file(one.state()))
    for epoch, step, ended in [
        (0, 0, 0),
        (0, 1, 0),
        (0, 4, 0),
        (0, 5, 0),
        (0, 5, 1),
        (1, 2, 0),
        (1, 5, 1),
    ]:
        for rank, one in enumerate(opened(saved[epoch, step, bool(ended)])):
            assert same(one.epoch(epoch, step), undisturbed[rank][epoch][step:])
            assert same(one.epoch(epoch + 1), undisturbed[rank][epoch + 1])


def test_dali_refuses_a_step_that_it_is_not_at(prepared):
    (opened,) = open_all(("dali-cpu", "tfrecord"), prepared(257, 65), "train", 257, 64, 1)
    with pytest.raises(RuntimeError, match="step 2 needs the state"):
        opened.epoch(1, 2)


def test_dali_refuses_fewer_pictures_than_ranks(prepared):
    """Its own error names neither the split nor what to do."""
    with pytest.raises(RuntimeError, match=r"val has 20 pictures.*21 ranks"):
        open_all(("dali-cpu", "tfrecord"), prepared(40, 20), "val", 20, 42, 21)


@pytest.mark.parametrize("reader", DALI, ids="-".join)
def test_dali_shuffles_classes_and_epochs(prepared, reader):
    """Class folders are read class by class unless they are shuffled: every batch must hold many
    classes.
    """
    (opened,) = open_all(reader, prepared(1000, 250), "train", 1000, 100, 1)
    for epoch in range(2):
        assert min(len(y.unique()) for _, y in opened.epoch(epoch)) >= 7


@pytest.mark.parametrize("batch", [16, 64])
def test_dali_decodes_nothing_of_an_epoch_before_it_is_asked_for(prepared, batch):
    """Else it would do so during validation, where no column counts it. 64: an epoch of one
    step.
    """
    (loader,) = open_all(("dali-cpu", "tfrecord"), prepared(50, 20), "train", 50, batch, 1)
    for epoch in range(3):
        batches = loader.epoch(epoch)
        if epoch and batch == 16:
            assert not loader.iterator._pipes[0].empty()
        assert sum(len(labels) for _, labels in batches) == 50
        if batch == 16:
            assert loader.iterator._pipes[0].empty()


def test_dali_ends_with_its_loader(prepared):
    """Its threads too, and at once: not when Python comes to look for circles of references."""
    (loader,) = open_all(("dali-cpu", "tfrecord"), prepared(50, 20), "train", 50, 16, 1)
    next(loader.epoch(0))
    pipeline = weakref.ref(loader.iterator._pipes[0])
    gc.disable()
    try:
        del loader
        assert pipeline() is None
    finally:
        gc.enable()
