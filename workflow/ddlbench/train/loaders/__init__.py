"""Who feeds the pictures: one file per loader, and the contract that every one of them keeps.

`LoaderMember` is what a file of this room offers, `Loader` what the training loop (`train/loop.py`)
asks for batches. A further loader is one more file (and one in `forms/`, if it reads a format of its
own).

Every sample is seen once per epoch over all ranks, and every rank makes the same number of steps.
Where the last batch does not divide evenly, ranks get a smaller share of it, or none; the loop
weighs each rank's loss by its share.

All loaders give the same pictures up to the decoder; `tests/contract/test_augmentation.py` holds
them to it.

- Training: a box of 8 to 100 % of the area at 3:4 to 4:3, resized, flipped every second time.
- Validation: 224/256 of the shorter side from the centre, resized.
- Both: bilinear with a filter as wide as the shrinking; normalised by ImageNet's mean and
  deviation; as pictures are stored, not turned by EXIF.

Importing a member is cheap: torch and DALI are imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from ddlbench.core.spec import RunSpec

# Images, float32 [n, 3, size, size] normalised, and labels, int64 [n]; both on the run's device. n
# can be 0.
Batch: TypeAlias = "tuple[Tensor, Tensor]"


class PictureSet(NamedTuple):
    """The pictures that a loader gives: so many, in so many classes.

    They are a split of the form in `folder`, which is None where nothing is read.
    """

    folder: Path | None
    split: str
    images: int
    classes: int


class Loader(Protocol):
    """A loader of one rank's share of a split."""

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield a batch per step, from `first_step` on.

        Epochs are asked for in order, each taken to its end.

        Work for the first batches may begin when this is called. A picture that cannot be decoded
        is never left out: OSError or RuntimeError, with the picture's file or shard in its text or
        in a note.
        """

    def state(self) -> dict[str, Any] | None:
        """Return, between two steps, what a new loader needs besides epoch and step to resume to
        the last bit; None if nothing.
        """


_Loader: TypeAlias = Loader  # within `LoaderMember` the name is the member's own class


class LoaderMember(Protocol):
    """The contract of a file of this room."""

    FORMS: tuple[str, ...]  # the forms that it can read, the preferred one first; () reads nothing
    # published numbers name it: `dali` are all of DALI's loaders; alone, the member's own name
    FAMILY: str
    LEARNS: bool  # False: pictures are random, so accuracy means nothing and tables leave it out
    DEVICE: str | None  # the device that it needs; None: any
    PACKAGE: str | None  # what must be importable
    INSTALL: str  # the command that installs it
    DISTRIBUTION: str | None  # the package whose version a record names

    def Loader(
        self, source: PictureSet, spec: RunSpec, rank: int, state: dict[str, Any] | None = None
    ) -> _Loader:
        """Open a rank's share of these pictures. `state` is what the same rank of an equal run
        returned.

        Loaders are opened before the framework starts: their worker processes are forked, which
        must not happen beside threads.
        """
