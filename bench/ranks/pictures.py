"""The pictures of PyTorch's ImageNet example, for the rivals of `trainers.py` that read what
torchvision gives.
"""

from pathlib import Path
from types import SimpleNamespace

from ddlbench.patches import torchvision_operators

torchvision_operators.apply()
from torchvision import datasets, transforms  # noqa: E402


def folder(s: SimpleNamespace) -> datasets.ImageFolder:
    """Class folders; a random crop resized, a flip, normalised."""
    augment = [
        transforms.RandomResizedCrop(s.image_size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
    return datasets.ImageFolder(str(Path(s.data) / "train"), transforms.Compose(augment))
