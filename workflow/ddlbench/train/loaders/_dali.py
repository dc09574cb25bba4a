"""The DALI pipeline that all of DALI's loaders share. It reads the forms tfrecord, raw and
webdataset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core import registry
from ddlbench.core.spec import steps_per_epoch
from ddlbench.data.forms import raw, tfrecord, webdataset
from ddlbench.patches.dali_epochs import EpochDecoder
from ddlbench.train.loaders._normalisation import MEAN, STD
from ddlbench.train.loaders._stream import KeptBatches

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.loaders import Batch, PictureSet

FORMS = ("tfrecord", "raw", "webdataset")
FAMILY = "dali"
LABEL_OFFSET = {
    "tfrecord": tfrecord.LABEL_OFFSET,
    "raw": raw.LABEL_OFFSET,
    "webdataset": webdataset.LABEL_OFFSET,
}
PACKAGE = "nvidia.dali"
INSTALL = "make install"
# Two builds of the same Python package; envs/install.sh determines which one is installed.
DISTRIBUTION = registry.installed("nvidia-dali-cuda120", "nvidia-dali-cuda130")
# Each reader shuffles records within a buffer of this many. That is enough: pictures were shuffled
# over all shards when they were written, and shards are read in another order in each epoch.
SHUFFLE_BUFFER = 4096
# Each rank's seed is the run's seed times this, plus the rank: no rank of any repeat has the seed
# of another.
MOST_RANKS = 1 << 20
# How many batches DALI decodes ahead of the one in use.
AHEAD = 2
# Settings of the GPU's decoder [bytes, pixels], those of NVIDIA's own ImageNet training: no picture
# of ImageNet is so large that the decoder has to allocate again (docs.nvidia.com/deeplearning/dali,
# "ResNet50 training in PyTorch").
GPU_DECODER = {
    "device_memory_padding": 211_025_920,
    "host_memory_padding": 140_544_512,
    "preallocate_width_hint": 5980,
    "preallocate_height_hint": 6430,
    "jpeg_fancy_upsampling": True,  # as every CPU decoder does; the GPU's is blockier by default
}


class DaliLoader:
    """A loader of one rank's share of a split, which needs a picture for each rank.

    `on_gpu`, set by each member, says where pictures are decoded; `normalises_on_gpu`, whether a
    GPU normalises them if there is one.

    DALI's stream runs through all epochs in order. So epochs are taken one after the other, each to
    its end. To begin anywhere else, a loader needs the `state` of a loader that came to that point.
    Decoding of an epoch begins when it is asked for, not before (`patches/dali_epochs.py`); after a
    checkpoint at an epoch's end, when the checkpoint is made.
    """

    on_gpu: bool
    normalises_on_gpu = True

    def __init__(
        self, source: PictureSet, spec: RunSpec, rank: int, state: dict[str, Any] | None = None
    ) -> None:
        from nvidia.dali.plugin.base_iterator import LastBatchPolicy
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        folder, split, images, *_ = source
        assert folder is not None and spec.reads is not None
        if images < spec.workers:
            raise RuntimeError(
                f"{folder}: {split} has {images} pictures, fewer than the run's {spec.workers}"
                " ranks, and DALI needs one for each; allowed: fewer workers, or another loader"
            )
        self.kept = KeptBatches() if spec.device == "cuda" else None
        self.label_offset = LABEL_OFFSET[spec.reads]
        self.steps = steps_per_epoch(images, spec.global_batch)
        self.step = (
            state["step"] if state else 0
        )  # the step of this epoch that the next batch is for
        where = self.on_gpu, self.normalises_on_gpu
        built = pipeline(folder, split, spec, rank, *where, state["dali"] if state else None)
        self.decoder = EpochDecoder(built, DISTRIBUTION, AHEAD, self.steps - self.step)
        self.iterator = DALIGenericIterator(
            built,
            ["images", "labels"],
            reader_name="reader",
            # Every sample comes once. Padding gives every rank the same number of batches; else
            # ranks would hang.
            last_batch_policy=LastBatchPolicy.PARTIAL,
        )
        count = built.reader_meta("reader")["epoch_size"]
        if count != images:
            raise RuntimeError(f"{folder}: {count} pictures in {split}, the manifest says {images}")

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield (images, labels) per step: float32 [n, 3, size, size] normalised, int64 [n].

        Raises RuntimeError if the stream is not at that step.
        """
        self._turn()
        if first_step == self.steps:
            return iter(())
        if first_step != self.step:
            raise RuntimeError(
                f"DALI is at step {self.step} of an epoch; step {first_step} needs the state from"
                " there"
            )
        return self._batches()

    def state(self) -> dict[str, Any]:
        """Return the position of the stream, as DALI serialises it.

        An epoch's end is the beginning of the next one: DALI begins to decode it.
        """
        self._turn()
        return {"step": self.step, "dali": self.iterator.checkpoints()[0]}

    def _batches(self) -> Iterator[Batch]:
        for _ in range(self.step, self.steps):
            (batch,) = next(self.iterator)  # on the run's device
            self.step += 1
            yield batch["images"], _numbers(batch["labels"]) - self.label_offset
            if self.kept is not None:  # the step has been enqueued
                self.kept.keep(batch)

    def _turn(self) -> None:
        """Go on to the next epoch at the end of one: DALI begins to decode it."""
        if self.step == self.steps:
            self.step = 0
            self.decoder.begin(self.iterator, self.steps)


def pipeline(
    folder: Path,
    split: str,
    spec: RunSpec,
    rank: int,
    on_gpu: bool,
    normalises_on_gpu: bool = True,
    checkpoint: bytes | None = None,
) -> Any:
    """Return the pipeline, not built yet: read, decode, augment according to the recipe, normalise
    to float32 CHW.

    `on_gpu` determines where pictures are decoded and resized. Usually they are normalised on the
    run's device, because copying bytes to it takes a quarter of the time for floats.
    """
    from nvidia.dali import fn, pipeline_def, types

    train = split == "train"
    size = spec.recipe.image_size
    for_gpu = spec.device == "cuda"
    augment = spec.recipe.augmentation == "imagenet"

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=spec.batch_per_worker,
        num_threads=spec.loader_threads,
        # None, and not -1 or CPU_ONLY_DEVICE_ID, is what works on a machine without a GPU.
        device_id=_device_index() if for_gpu else None,
        seed=spec.seed * MOST_RANKS + rank,
        prefetch_queue_depth=AHEAD,
        enable_checkpointing=True,
        checkpoint=checkpoint,
    )
    def define() -> Any:
        encoded, labels = _read(folder, split, spec, rank)
        mirror = 0
        # Pictures stay as they are stored: Pillow and torchvision do not turn them by their EXIF
        # orientation either.
        how = {"device": "cpu", "output_type": types.RGB, "adjust_orientation": False}
        if on_gpu:
            how |= {"device": "mixed", **GPU_DECODER}
        # Linear with antialiasing (DALI's default where pictures shrink) is Pillow's BILINEAR.
        target = {"size": (size, size), "interp_type": types.INTERP_LINEAR}
        images: Any
        if augment and train:
            images = fn.decoders.image_random_crop(
                encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], **how
            )
            images = fn.resize(images, **target)
            mirror = fn.random.coin_flip(probability=0.5)
        elif augment:
            # The same box as native's centre_crop, but cut and resized at once: the size is not
            # rounded in between.
            shape = fn.peek_image_shape(encoded, adjust_orientation=False)
            height_width = fn.cast(shape[0:2], dtype=types.FLOAT)
            side = fn.reductions.min(height_width) * (224 / 256)
            begin = (height_width - side) / 2
            images = fn.resize(
                fn.decoders.image(encoded, **how), roi_start=begin, roi_end=begin + side, **target
            )
        else:
            images = fn.resize(fn.decoders.image(encoded, **how), **target)
        images = fn.crop_mirror_normalize(
            images.gpu() if for_gpu and normalises_on_gpu else images,
            crop=(size, size),
            mirror=mirror,
            mean=[255 * m for m in MEAN],
            std=[255 * s for s in STD],
            dtype=types.FLOAT,
            output_layout="CHW",
        )
        return (images.gpu(), labels.gpu()) if for_gpu else (images, labels)

    return define()


def _read(folder: Path, split: str, spec: RunSpec, rank: int) -> tuple[Any, Any]:
    """Read bytes and labels of this rank's share of the image files, as the form has them.

    The reader is named `reader`.
    """
    from nvidia.dali import fn
    from nvidia.dali import tfrecord as tfrec

    train = split == "train"
    common: dict[str, Any] = {
        "shard_id": rank,
        "num_shards": spec.workers,
        "pad_last_batch": True,
        "name": "reader",
    }
    if train:  # all ranks draw the same order, and each takes its part of it
        common |= {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": spec.seed}
    if spec.reads == "raw":
        files = raw.Files(folder, split)
        if files.list:
            encoded, label = fn.readers.file(
                file_root=files.root, file_list=str(files.list), **common
            )
        else:
            names = [files.name(n) for n in range(len(files))]
            encoded, label = fn.readers.file(files=names, labels=files.labels.tolist(), **common)
        return encoded, label
    member = webdataset if spec.reads == "webdataset" else tfrecord
    paths = [str(path) for path in member.shards(folder, split)]
    indices = [f"{path}.idx" for path in paths]
    if spec.reads == "webdataset":
        read: Any = fn.readers.webdataset(
            paths=paths,
            index_paths=indices,
            ext=[";".join(webdataset.PICTURES), "cls"],
            missing_component_behavior="error",
            random_shuffle=train,
            initial_fill=SHUFFLE_BUFFER,
            **common,
        )
        return read[0], read[1]
    record: Any = fn.readers.tfrecord(
        path=paths,
        index_path=indices,
        features={
            "image/encoded": tfrec.FixedLenFeature([], tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
        },
        random_shuffle=train,
        initial_fill=SHUFFLE_BUFFER,
        **common,
    )
    return record["image/encoded"], record["image/class/label"]


def _numbers(labels: Any) -> Any:
    """Convert labels to int64 [n].

    A reader gives numbers [n, 1]; that of webdataset gives their digits, uint8 [n, digits].
    """
    import torch

    if labels.dtype != torch.uint8:
        return labels.squeeze(-1).long()
    digits = labels.long() - ord("0")
    numbers = digits[:, 0]
    for place in range(
        1, digits.shape[1]
    ):  # not by a tensor of powers of ten: copying it would wait for the GPU
        numbers = numbers * 10 + digits[:, place]
    return numbers


def _device_index() -> int:
    import torch

    return torch.cuda.current_device()
