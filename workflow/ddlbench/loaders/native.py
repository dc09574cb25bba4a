"""native: PyTorch's DataLoader with worker processes, reading the raw form (class folders).

JPEGs are decoded by simplejpeg, everything else by Pillow; both give the same pixels (libjpeg-turbo, its exact DCT).
Crops at whole pixels are resized by PyTorch, those between pixels by Pillow: within a grey level the same filter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.data.pictures import JPEG, as_rgb
from ddlbench.loaders import _workers
from ddlbench.loaders._share import MEAN, STD, Files, Indices, Order, share, shuffled
from ddlbench.loaders._stream import copied
from ddlbench.spec import steps_per_epoch

if TYPE_CHECKING:
    from ddlbench.loaders import Batch
    from ddlbench.spec import RunSpec

FORMS: tuple[str, ...] = ("raw",)
FAMILY = "native"
LEARNS = True
DEVICE: str | None = None
PACKAGE: str | None = "simplejpeg"
INSTALL = "make install"
DISTRIBUTION: str | None = "torch"

Box = tuple[float, float, float, float]  # left, top, right, bottom [pixels]


class Loader:
    """One rank's share of a split. Worker processes start with the first epoch: ask for it before any framework has
    started threads."""

    def __init__(
        self,
        folder: Path | None,
        split: str,
        spec: RunSpec,
        rank: int,
        images: int,
        classes: int,
        state: dict[str, Any] | None = None,
    ) -> None:
        import torch
        from torch.utils.data import DataLoader

        self.batches = Batches(images, split == "train", spec, rank)
        assert folder is not None, "native reads the raw form"
        pictures: Any = Pictures(Files(folder, split), split == "train", spec)
        self.loader: DataLoader[Any] = DataLoader(
            pictures,
            batch_sampler=self.batches,
            collate_fn=_as_it_is,
            num_workers=spec.loader_threads,
            multiprocessing_context="fork",
            persistent_workers=True,
            generator=torch.Generator().manual_seed(spec.seed),  # leave torch's own generator to the model
            pin_memory=spec.device == "cuda",
            worker_init_fn=_workers.listen_to_rank,
        )
        self.device = torch.device(spec.device)
        self.stream = torch.cuda.Stream() if spec.device == "cuda" else None
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1) * 255

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """(images, labels) a step: float32 [n, 3, size, size] normalised, int64 [n]."""
        self.batches.epoch, self.batches.first_step = epoch, first_step
        with _workers.forked_deaf():
            batches = iter(self.loader)  # not lazily: worker processes start when this is called
        return self._on_device(batches)

    def state(self) -> None:
        """None: epoch and step decide every batch."""

    def _on_device(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        import torch

        for number, (pixels, numbers) in enumerate(batches):
            if number == 0:
                self.batches.draw_ahead()
            labels = torch.from_numpy(numbers)
            if self.stream is not None:
                # The loader pins tensors only; from other memory the copy would wait for the GPU.
                pixels, labels = copied([pixels, labels.pin_memory()], self.device, self.stream)
            # float() first: on CPUs arithmetic between types takes twice as long.
            yield pixels.float().sub_(self.mean).div_(self.std), labels


class Batches:
    """The batch sampler: for each step of `epoch` from `first_step` on, one key: the epoch and this rank's indices.

    To draw ImageNet's order takes 0.2 s. `draw_ahead` does it beside the steps of the epoch before, so that an epoch
    begins without waiting for it.
    """

    def __init__(self, images: int, shuffle: bool, spec: RunSpec, rank: int) -> None:
        self.images, self.shuffle, self.spec, self.rank = images, shuffle, spec, rank
        self.epoch = self.first_step = 0
        self.ahead: tuple[int, Future[Indices]] | None = None  # an epoch and its order

    def __iter__(self) -> Iterator[list[tuple[int, Order]]]:
        epoch, spec = self.epoch, self.spec
        for batch in share(self._order(epoch), spec.global_batch, self.rank, spec.workers, self.first_step):
            yield [(epoch, batch)]

    def draw_ahead(self) -> None:
        """Begin to draw the next epoch's order, in a thread (NumPy lets others run meanwhile); not before all worker
        processes are forked.
        """
        if self.shuffle and self.epoch + 1 < self.spec.epochs:
            thread = ThreadPoolExecutor(max_workers=1)
            self.ahead = self.epoch + 1, thread.submit(shuffled, self.images, self.spec.seed, self.epoch + 1)
            thread.shutdown(wait=False)

    def _order(self, epoch: int) -> Order:
        if not self.shuffle:
            return range(self.images)
        ahead, self.ahead = self.ahead, None
        return ahead[1].result() if ahead and ahead[0] == epoch else shuffled(self.images, self.spec.seed, epoch)

    def __len__(self) -> int:
        return steps_per_epoch(self.images, self.spec.global_batch) - self.first_step


class Pictures:
    """Decoded and augmented pictures of image files, a batch at a time.

    All worker processes share the list of files.
    """

    def __init__(self, files: Files, train: bool, spec: RunSpec) -> None:
        self.files = files
        self.train, self.seed = train, spec.seed
        self.size = spec.recipe.image_size
        self.augment = spec.recipe.augmentation == "imagenet"

    def __getitems__(self, keys: list[tuple[int, Order]]) -> tuple[Any, Any]:
        """uint8 [n, 3, size, size] in shared memory and int64 [n] of the only key's n indices; n can be 0.

        Labels are an array: a second tensor would be a second file descriptor to hand over, for 0.4 ms a batch.
        """
        import torch

        ((epoch, wanted),) = keys
        indices = list(map(int, wanted))
        pixels = torch.empty(len(indices), 3, self.size, self.size, dtype=torch.uint8)
        if indices:
            pixels.share_memory_()  # before it is filled: handing it over then copies nothing
        places = pixels.numpy()  # NumPy costs a small picture much less than PyTorch's operators do
        for place, index in enumerate(indices):
            places[place] = self._picture(epoch, index)
        return pixels, self.files.labels[indices]

    def _picture(self, epoch: int, index: int) -> Any:
        picture = decoded(self.files.path(index))
        height, width, _ = picture.shape
        if not self.augment:
            return resized(picture, (0, 0, width, height), self.size)
        if not self.train:
            return resized(picture, centre_crop(width, height), self.size)
        # Every picture draws from its own seed: the same whatever the number of ranks, workers or restarts.
        rng = random.Random(f"{self.seed}-{epoch}-{index}")
        crop = resized(picture, random_crop(width, height, rng), self.size)
        return crop[:, :, ::-1] if rng.random() < 0.5 else crop


def decoded(path: str) -> Any:
    """An image file as uint8 [height, width, 3], RGB, as it is stored: not turned by its EXIF orientation."""
    with open(path, "rb") as file:  # noqa: PTH123 (a Path is as much work as reading a small file)
        encoded = file.read()
    if encoded.startswith(JPEG):
        import simplejpeg

        # Pillow makes another RGB of CMYK, and overlooks flaws that simplejpeg does not.
        with suppress(ValueError):
            if simplejpeg.decode_jpeg_header(encoded)[2] in ("YCbCr", "Gray"):
                return simplejpeg.decode_jpeg(encoded)
    import numpy as np
    from PIL import Image

    try:
        # From memory: Pillow would read the file again, a few bytes at a time.
        with Image.open(BytesIO(encoded)) as image:
            return np.array(as_rgb(image))
    except OSError as error:  # which says what is wrong, but not with which file
        error.add_note(path)
        raise


def resized(picture: Any, box: Box, size: int) -> Any:
    """The part of a picture that lies in the box, as uint8 [3, size, size]: bilinear, as wide as it shrinks.

    It may be a view of the picture.
    """
    left, top, right, bottom = corners = tuple(map(int, box))
    if corners == box:
        part = picture[top:bottom, left:right].transpose(2, 0, 1)
        if part.shape[1:] == (size, size):
            return part
        import torch

        # Several times as fast as Pillow.
        whole = torch.from_numpy(part)[None]
        return torch.nn.functional.interpolate(whole, (size, size), mode="bilinear", antialias=True)[0].numpy()
    import numpy as np
    from PIL import Image

    image = Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(image).transpose(2, 0, 1)


def centre_crop(width: int, height: int) -> Box:
    """The box that becomes the picture: 224/256 of the shorter side, in the centre."""
    side = min(width, height) * 224 / 256
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_crop(width: int, height: int, rng: random.Random) -> Box:
    """Inception's crop: 8 to 100 % of the area, 3:4 to 4:3, ten tries, else the centre (arXiv:1409.4842, section 6)."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = (3 / 4) * (16 / 9) ** rng.random()
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            left, top = rng.randint(0, width - w), rng.randint(0, height - h)
            return left, top, left + w, top + h
    whole = min(width, height)
    x, y = (width - whole) / 2, (height - whole) / 2
    return x, y, x + whole, y + whole


def _as_it_is(batch: Any) -> Any:
    """`Pictures` makes whole batches: there is nothing to collate."""
    return batch
