"""native: PyTorch's DataLoader with worker processes, reading the raw form (class folders), or
webdataset.

What its workers do with a picture is ours, and quicker than torchvision's transforms:
`_pictures.py`. PyTorch's own way, with ImageFolder and these transforms, is loader `torchvision`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ddlbench.core.spec import steps_per_epoch
from ddlbench.train.loaders import _workers
from ddlbench.train.loaders._pictures import Normalised, Pictures, opened
from ddlbench.train.loaders._sampling import Indices, Order, share, shuffled

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.loaders import Batch, PictureSet

FORMS: tuple[str, ...] = ("raw", "webdataset")
FAMILY = "native"
LEARNS = True
DEVICE: str | None = None
PACKAGE: str | None = "simplejpeg"
INSTALL = "make install"
DISTRIBUTION: str | None = "torch"


class Loader:
    """A loader of one rank's share of a split.

    Worker processes start with the first epoch: ask for it before any framework has started
    threads.
    """

    def __init__(
        self, source: PictureSet, spec: RunSpec, rank: int, state: dict[str, Any] | None = None
    ) -> None:
        import torch
        from torch.utils.data import DataLoader

        self.batches = Batches(source.images, source.split == "train", spec, rank)
        self.loader: DataLoader[Any] = DataLoader(
            self.pictures(source, spec),
            batch_sampler=self.batches,
            collate_fn=_as_it_is,
            num_workers=spec.loader_threads,
            multiprocessing_context="fork",
            persistent_workers=True,
            generator=torch.Generator().manual_seed(
                spec.seed
            ),  # leave torch's own generator to the model
            pin_memory=spec.device == "cuda",
            worker_init_fn=_workers.listen_to_rank,
        )
        self.on_device = self.copier(spec)

    def pictures(self, source: PictureSet, spec: RunSpec) -> Any:
        """Return what worker processes ask for batches, by keys of `Batches`."""
        return Batched(opened(source, spec), source.split == "train", spec)

    def copier(self, spec: RunSpec) -> Callable[[Any, Any], Batch]:
        """Return the function that makes a batch on the run's device from what a worker gave."""
        return Normalised(spec).batch

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield (images, labels) per step: float32 [n, 3, size, size] normalised, int64 [n]."""
        self.batches.epoch, self.batches.first_step = epoch, first_step
        with _workers.signals_blocked():
            batches = iter(self.loader)  # not lazily: worker processes start when this is called
        return self._batches(batches)

    def state(self) -> None:
        """Return None: epoch and step decide every batch."""

    def _batches(self, given: Iterator[Any]) -> Iterator[Batch]:
        for number, (pixels, labels) in enumerate(given):
            if number == 0:
                self.batches.draw_ahead()
            yield self.on_device(pixels, labels)


class Batches:
    """The batch sampler: for each step of `epoch` from `first_step` on, one key: the epoch and this
    rank's indices.

    To draw ImageNet's order takes 0.2 s. `draw_ahead` does it beside the steps of the epoch before,
    so that an epoch begins without waiting for it.
    """

    def __init__(self, images: int, shuffle: bool, spec: RunSpec, rank: int) -> None:
        self.images, self.shuffle, self.spec, self.rank = images, shuffle, spec, rank
        self.epoch = self.first_step = 0
        self.ahead: tuple[int, Future[Indices]] | None = None  # an epoch and its order

    def __iter__(self) -> Iterator[list[tuple[int, Order]]]:
        epoch, spec = self.epoch, self.spec
        for batch in share(
            self._order(epoch), spec.global_batch, self.rank, spec.workers, self.first_step
        ):
            yield [(epoch, batch)]

    def draw_ahead(self) -> None:
        """Begin to draw the next epoch's order, in a thread (NumPy lets others run meanwhile); not
        before all worker processes are forked.
        """
        if self.shuffle and self.epoch + 1 < self.spec.epochs:
            thread = ThreadPoolExecutor(max_workers=1)
            self.ahead = (
                self.epoch + 1,
                thread.submit(shuffled, self.images, self.spec.seed, self.epoch + 1),
            )
            thread.shutdown(wait=False)

    def _order(self, epoch: int) -> Order:
        if not self.shuffle:
            return range(self.images)
        ahead, self.ahead = self.ahead, None
        return (
            ahead[1].result()
            if ahead and ahead[0] == epoch
            else shuffled(self.images, self.spec.seed, epoch)
        )

    def __len__(self) -> int:
        return steps_per_epoch(self.images, self.spec.global_batch) - self.first_step


class Batched(Pictures):
    """A data set of batches, as the DataLoader's worker processes request them. All of them share
    the list of files.
    """

    def __getitems__(self, keys: list[tuple[int, Order]]) -> tuple[Any, Any]:
        """Return uint8 [n, 3, size, size] in shared memory and int64 [n] of the only key's n
        indices; n can be 0.

        Labels are an array: a second tensor would be a second file descriptor to hand over, for 0.4
        ms a batch.
        """
        import torch

        ((epoch, wanted),) = keys
        indices = list(map(int, wanted))
        pixels = torch.empty(len(indices), 3, self.size, self.size, dtype=torch.uint8)
        if indices:
            pixels.share_memory_()  # before it is filled: handing it over then copies nothing
        self.fill(pixels.numpy(), epoch, indices)
        return pixels, self.samples.labels[indices]


def _as_it_is(batch: Any) -> Any:
    """Return the batch unchanged. `Batched` makes complete batches: nothing is left to collate."""
    return batch
