"""Where pictures come from: one file per data set; its name is the set's name in a study.

`Dataset` is what such a file offers. To add a data set, write one more file; those of users are
described in `config/datasets/`, and `_own.py` opens them.
"""

from dataclasses import dataclass
from typing import Protocol, cast

from ddlbench.core import registry
from ddlbench.data.source import Place, Source


class Dataset(Protocol):
    """The contract of a data set.

    Its constants are known without the data, and importing its file imports nothing heavy.
    """

    IMAGES: dict[str, int]
    """Images per split (`train`, `val`): as published, or by default where any number can be asked for."""
    NUM_CLASSES: int
    PICTURE_BYTES: float
    """Of one picture as it is stored, on the mean, for the plan; its file names the source of the number."""

    NEEDS: str | None
    """What data.sources has to name, as a sentence; None where the set is fetched or made if nothing is said."""

    def open_source(self, place: Place) -> Source:
        """Return the data set, ready to be read; fetch it if that can be done.

        Raises SourceError.
        """

    def expected(self, given: str | None) -> tuple[dict[str, int], int]:
        """Return the expected (images per split, number of classes). `given` is the value in
        data.sources.

        `prepare` warns where a form has other contents. Raises SourceError if `given` cannot be
        understood.
        """

    def in_place(self, given: str | None) -> bool:
        """Tell whether `given` is a tree of class folders, which a form that is IN_PLACE uses where
        it lies.
        """


def get(name: str) -> Dataset:
    """Return the data set of this name, ours or described by the user. Raises ConfigError."""
    if name in registry.members("datasets"):
        return cast(Dataset, registry.member("datasets", name))
    from ddlbench.data.datasets._own import Own

    return Own(name)


def remarks(name: str) -> list[str]:
    """Return what a user should know of a data set before it is prepared, one line each; nothing of
    ours.
    """
    if name in registry.members("datasets"):
        return []
    from ddlbench.data.datasets._own import Own

    return Own(name).remarks()


@dataclass(frozen=True)
class Fixed:
    """`expected` and `in_place` of a data set that always holds what was published, in no files of
    its own.
    """

    images: dict[str, int]
    classes: int

    def expected(self, given: str | None) -> tuple[dict[str, int], int]:
        """Return (images per split, classes), as published."""
        return self.images, self.classes

    def in_place(self, given: str | None) -> bool:
        """Return False: the pictures are no files of their own."""
        return False
