"""torchvision: PyTorch's own way, its DataLoader over torchvision's ImageFolder and transforms;
reads the raw form.

Pillow decodes, and worker processes on the CPU do all steps, normalisation too, as in PyTorch's
ImageNet example (github.com/pytorch/examples, imagenet/main.py). This is what papers call the
native loader of PyTorch. The order of an epoch is that of loader `native`; crops are torchvision's
own. As ImageFolder does, each rank lists all folders when it starts, and its worker processes hold
the list as Python's objects.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.data.manifest import Manifest
from ddlbench.data.pictures import as_rgb, has_picture_name
from ddlbench.patches import torchvision_operators
from ddlbench.train.loaders import native
from ddlbench.train.loaders._normalisation import MEAN, STD
from ddlbench.train.loaders._pictures import centre_crop
from ddlbench.train.loaders._sampling import Order

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.loaders import Batch, PictureSet

FORMS: tuple[str, ...] = ("raw",)
FAMILY = "torchvision"
LEARNS = True
DEVICE: str | None = None
PACKAGE: str | None = "torchvision"
INSTALL = "make install"
DISTRIBUTION: str | None = "torchvision"


class Loader(native.Loader):
    """A loader of one rank's share of a split, by `native`'s DataLoader."""

    def pictures(self, source: PictureSet, spec: RunSpec) -> Any:
        """Return torchvision's ImageFolder.

        Raises RuntimeError if it finds another number of pictures.
        """
        assert source.folder is not None
        return Batched(source.folder, source.split, spec, source.images)

    def copier(self, spec: RunSpec) -> Callable[[Any, Any], Batch]:
        """Return a function that copies a batch, and nothing else: workers have normalised."""
        return lambda images, labels: (
            images.to(spec.device, non_blocking=True),
            labels.to(spec.device, non_blocking=True),
        )


class Batched:
    """A data set of batches, as the DataLoader's worker processes request them."""

    def __init__(self, folder: Path, split: str, spec: RunSpec, images: int) -> None:
        torchvision_operators.apply()
        from torchvision.datasets import ImageFolder

        manifest = Manifest.read(folder)
        root, skipped = manifest.data(folder) / split, manifest.splits[split].skipped
        numbers = {name: number for number, name in enumerate(manifest.classes)}

        def is_one(path: str) -> bool:
            top, of_class, name = path.rsplit("/", 2)
            mine = top == str(root) and of_class in numbers  # and no folder of the system's
            return mine and has_picture_name(name) and f"{of_class}/{name}" not in skipped

        self.seed, self.size = spec.seed, spec.recipe.image_size
        self.folder = ImageFolder(
            str(root),
            transform(split == "train", spec.recipe.augmentation == "imagenet", self.size),
            loader=opened,
            is_valid_file=is_one,
            allow_empty=True,
        )
        if len(self.folder) != images:
            raise RuntimeError(
                f"{root}: torchvision finds {len(self.folder)} pictures, the manifest says {images}"
            )
        self.folder.target_transform = [
            numbers.get(name) for name in self.folder.classes
        ].__getitem__

    def __getitems__(self, keys: list[tuple[int, Order]]) -> tuple[Any, Any]:
        """Return float32 [n, 3, size, size] normalised and int64 [n] of the only key's n indices; n
        can be 0.
        """
        import torch
        from torch.utils.data import default_collate

        ((epoch, indices),) = keys
        given = []
        for index in map(int, indices):
            # Transforms draw from PyTorch's generator: the same whatever the number of ranks,
            # workers or restarts.
            torch.default_generator.manual_seed(
                random.Random(f"{self.seed}-{epoch}-{index}").getrandbits(63)
            )
            given.append(self.folder[index])
        if not given:
            return torch.empty(0, 3, self.size, self.size), torch.empty(0, dtype=torch.int64)
        images, labels = default_collate(given)
        return images, labels


def opened(path: str) -> Any:
    """Open a picture as Pillow decodes it, RGB. Raises OSError; a note names the file."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return as_rgb(image)
    except OSError as error:
        error.add_note(path)
        raise


def transform(train: bool, augment: bool, size: int) -> Callable[[Any], Any]:
    """Return the transform from a Pillow image to float32 [3, size, size], normalised."""
    from torchvision import transforms

    resized, part = divmod(size * 256, 224)
    if not augment:
        steps = [transforms.Resize((size, size))]
    elif train:
        steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    elif part == 0:
        steps = [transforms.Resize(resized), transforms.CenterCrop(size)]
    else:  # the shorter side would not be an integer number of pixels
        from PIL.Image import Resampling

        at_once = {"size": (size, size), "resample": Resampling.BILINEAR}
        steps = [
            transforms.Lambda(lambda image: image.resize(**at_once, box=centre_crop(*image.size)))
        ]
    finish: Callable[[Any], Any] = transforms.Compose(
        [*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )
    return finish
