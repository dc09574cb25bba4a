"""Pictures from a form to a batch, for loaders that decode in Python: `native.py` and `spdl.py`
train on the same ones.

JPEGs are decoded by simplejpeg, everything else by Pillow; both give the same pixels
(libjpeg-turbo, its exact DCT). Crops at whole pixels are resized by PyTorch, those between pixels
by Pillow: within a grey level the same filter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ddlbench.core import registry
from ddlbench.data.pictures import JPEG, as_rgb
from ddlbench.train.loaders._normalisation import MEAN, STD
from ddlbench.train.loaders._stream import copied

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.data.forms import Samples
    from ddlbench.train.loaders import Batch, PictureSet

Box = tuple[float, float, float, float]  # left, top, right, bottom [pixels]


def opened(source: PictureSet, spec: RunSpec) -> Samples:
    """Open the pictures of the form that the run reads.

    Raises OSError, ValueError, RuntimeError.
    """
    assert source.folder is not None and spec.reads is not None
    samples: Samples | None = registry.member("forms", spec.reads).samples(
        source.folder, source.split
    )
    assert samples is not None, f"form {spec.reads} cannot be read in random order"
    return samples


class Pictures:
    """The decoded and augmented pictures of a split of a form."""

    def __init__(self, samples: Samples, train: bool, spec: RunSpec) -> None:
        self.samples = samples
        self.train, self.seed = train, spec.seed
        self.size = spec.recipe.image_size
        self.augment = spec.recipe.augmentation == "imagenet"

    def fill(self, places: Any, epoch: int, indices: Sequence[int]) -> None:
        """Put pictures into an array, uint8 [n, 3, size, size].

        NumPy costs a small picture much less than PyTorch's operators do. Raises OSError,
        ValueError; a note names the picture.
        """
        for place, index in enumerate(indices):
            places[place] = self._picture(epoch, index)

    def _picture(self, epoch: int, index: int) -> Any:
        picture = decoded(self.samples.read(index), lambda: self.samples.name(index))
        height, width, _ = picture.shape
        if not self.augment:
            return resized(picture, (0, 0, width, height), self.size)
        if not self.train:
            return resized(picture, centre_crop(width, height), self.size)
        # Every picture draws from its own seed: the same whatever the number of ranks, workers or
        # restarts.
        rng = random.Random(f"{self.seed}-{epoch}-{index}")
        crop = resized(picture, random_crop(width, height, rng), self.size)
        return crop[:, :, ::-1] if rng.random() < 0.5 else crop


def decoded(encoded: bytes, name: Callable[[], str]) -> Any:
    """Decode an image file to uint8 [height, width, 3], RGB, as it is stored: not turned by its
    EXIF orientation.

    `name` is called for the file's place if it cannot be decoded. Raises OSError.
    """
    if encoded.startswith(JPEG):
        import simplejpeg

        # Pillow makes another RGB of CMYK, and overlooks flaws that simplejpeg does not.
        with suppress(ValueError):
            if simplejpeg.decode_jpeg_header(encoded)[2] in ("YCbCr", "Gray"):
                return simplejpeg.decode_jpeg(encoded)
    import numpy as np
    from PIL import Image

    try:
        with Image.open(BytesIO(encoded)) as image:
            return np.array(as_rgb(image))
    except OSError as error:  # the error gives the reason, but not the file
        error.add_note(name())
        raise


def resized(picture: Any, box: Box, size: int) -> Any:
    """Resize the part of a picture that lies in the box to uint8 [3, size, size]: bilinear, with a
    filter as wide as it shrinks.

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
        return torch.nn.functional.interpolate(
            whole, (size, size), mode="bilinear", antialias=True
        )[0].numpy()
    import numpy as np
    from PIL import Image

    image = Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(image).transpose(2, 0, 1)


def centre_crop(width: int, height: int) -> Box:
    """Return the box of the centre crop: 224/256 of the shorter side."""
    side = min(width, height) * 224 / 256
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_crop(width: int, height: int, rng: random.Random) -> Box:
    """Draw Inception's crop: 8 to 100 % of the area, 3:4 to 4:3, ten tries, else the centre
    (arXiv:1409.4842, section 6).
    """
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


class Normalised:
    """The normalisation of batches on the run's device: bytes are a quarter of floats to copy."""

    def __init__(self, spec: RunSpec) -> None:
        import torch

        self.device = torch.device(spec.device)
        self.stream = torch.cuda.Stream() if spec.device == "cuda" else None
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1) * 255

    def batch(self, pixels: Any, numbers: Any) -> Batch:
        """Return (images, labels) of a tensor, uint8 [n, 3, size, size], pinned for a GPU, and an
        array, int64 [n].
        """
        import torch

        labels = torch.from_numpy(numbers)
        if self.stream is not None:
            # From memory that is not pinned the copy would wait for the GPU.
            pixels, labels = copied([pixels, labels.pin_memory()], self.device, self.stream)
        # float() first: on CPUs arithmetic between types takes twice as long.
        return pixels.float().sub_(self.mean).div_(self.std), labels
