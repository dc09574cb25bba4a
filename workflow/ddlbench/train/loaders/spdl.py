"""spdl: SPDL's pipeline, whose threads decode within the rank's own process; reads the raw form, or
webdataset.

It gives the batches of loader `native`, to the bit: `_pictures.py` says what a thread does with a
picture. What differs is who does it: no worker processes, so nothing is forked or handed over, but
Python's lock is shared with the training. SPDL: https://github.com/facebookresearch/spdl
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from ddlbench.train.loaders._pictures import Normalised, Pictures, opened
from ddlbench.train.loaders._sampling import share, shuffled

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.loaders import Batch, PictureSet

FORMS: tuple[str, ...] = ("raw", "webdataset")
FAMILY = "spdl"
LEARNS = True
DEVICE: str | None = None
PACKAGE: str | None = "spdl.pipeline"
INSTALL = "make install"
DISTRIBUTION: str | None = "spdl_core"
# pictures that a thread takes at once: the first batch is soon there, and a piece is worth its way
PIECE = 8
AHEAD = 2  # complete batches that may be ready in advance


class Piece(NamedTuple):
    """A part of a batch: pictures `begin` to `end` of its indices, and how many pieces are to
    come.
    """

    pixels: Any  # uint8 [n, 3, size, size], of the complete batch
    indices: Any  # int64 [n], of the whole batch
    begin: int
    end: int
    remaining: int


class Loader:
    """A loader of one rank's share of a split."""

    def __init__(
        self, source: PictureSet, spec: RunSpec, rank: int, state: dict[str, Any] | None = None
    ) -> None:
        self.pictures = Pictures(opened(source, spec), source.split == "train", spec)
        self.normalised = Normalised(spec)
        self.spec, self.rank, self.images = spec, rank, source.images

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield (images, labels) per step: float32 [n, 3, size, size] normalised, int64 [n]."""
        from spdl.pipeline import PipelineBuilder

        pictures, threads, over = self.pictures, self.spec.loader_threads, Event()

        def fill(piece: Any) -> Any:
            if over.is_set():
                return piece, None
            try:
                wanted = piece.indices[piece.begin : piece.end].tolist()
                pictures.fill(piece.pixels[piece.begin : piece.end].numpy(), epoch, wanted)
            except Exception as error:  # SPDL would write it into a log and leave the piece out
                return piece, error
            return piece, None

        pieces = -(-self.spec.batch_per_worker // PIECE)
        builder: PipelineBuilder[Any, Any] = PipelineBuilder()
        pipeline = (
            builder.add_source(self._pieces(epoch, first_step, over))
            .pipe(fill, concurrency=threads, output_order="input")
            .add_sink(AHEAD * pieces)
            .build(num_threads=threads, max_failures=0, use_thread_output_queue=True)
        )
        pipeline.start()  # not lazily: threads begin to decode when this is called
        return self._batches(pipeline, over)

    def state(self) -> None:
        """Return None: epoch and step decide every batch."""

    def _pieces(self, epoch: int, first_step: int, over: Event) -> Iterator[Piece]:
        import numpy as np
        import torch

        order = (
            shuffled(self.images, self.spec.seed, epoch)
            if self.pictures.train
            else np.arange(self.images)
        )
        size, pinned = self.pictures.size, self.spec.device == "cuda"
        for indices in share(
            order, self.spec.global_batch, self.rank, self.spec.workers, first_step
        ):
            if over.is_set():
                return
            pixels = torch.empty(len(indices), 3, size, size, dtype=torch.uint8, pin_memory=pinned)
            begins = range(
                0, max(1, len(indices)), PIECE
            )  # a batch without a picture is a piece, too
            for number, begin in enumerate(begins):
                yield Piece(pixels, indices, begin, begin + PIECE, len(begins) - number - 1)

    def _batches(self, pipeline: Any, over: Event) -> Iterator[Batch]:
        try:
            for piece, error in pipeline:
                if error is not None:
                    raise error
                if not piece.remaining:
                    yield self.normalised.batch(
                        piece.pixels, self.pictures.samples.labels[piece.indices]
                    )
        finally:
            over.set()
            for _ in (
                pipeline
            ):  # SPDL's stop may wait for ever for a thread that has no room for its piece
                pass
            pipeline.stop()
