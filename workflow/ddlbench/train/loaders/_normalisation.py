"""The normalisation of pixels, which all loaders share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

# ImageNet's channel means and deviations on the 0..1 scale, as every published ResNet recipe uses
# them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
