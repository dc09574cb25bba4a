"""Our TFRecords, read by three readers that are not ours; our indices, against DALI's own tool."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.data.forms import tfrecord
from ddlbench.data.prepare import write_form

from tests.sources import Memory, Sample, picture

pytestmark = pytest.mark.more

HERE = Path(__file__).resolve().parent
READERS = (
    Path(os.environ.get("DDLBENCH_READERS", "~/.cache/ddlbench/tensorflow-venv")).expanduser()
    / "bin/python"
)
# In protobuf's coding these lengths take one to four bytes, and labels one or two: the second
# begins at 128.
SIZES = [(1, 1), (9, 12), (150, 100), (375, 500), (1200, 1600)]
LABELS = [0, 1, 125, 126, 127, 128, 500, 999]


@pytest.fixture(scope="module")
def source() -> Memory:
    """JPEGs and PNGs of many sizes in a few of 1000 classes."""
    samples = []
    for number in range(90):
        (height, width), kind = SIZES[number % len(SIZES)], ("JPEG", "PNG")[number % 2]
        encoded = picture(number, height, width, kind)
        samples.append(
            Sample(f"n{number:04d}.{kind}", LABELS[number % len(LABELS)], encoded, height, width)
        )
    classes = tuple(f"n{label:08d}" for label in range(1000))
    return Memory({"train": samples[:60], "val": samples[60:]}, classes)


@pytest.fixture(scope="module")
def shards(source: Memory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The shards of both splits."""
    folder = tmp_path_factory.mktemp("readers") / "tfrecord"
    write_form(lambda: source, "some", "tfrecord", folder)
    return {split: tfrecord.shards(folder, split) for split in ("train", "val")}


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("reader", ["tensorflow", "tfrecord"])
def test_every_record(
    source: Memory, shards: dict[str, list[Path]], reader: str, split: str
) -> None:
    if not READERS.exists():
        pytest.skip(f"no {READERS}: make tensorflow installs the readers")
    done = subprocess.run(
        [READERS, HERE / "readers.py", reader, *shards[split]],
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = sorted(
        map(json.loads, done.stdout.splitlines()), key=lambda told: told["image/filename"]
    )
    assert found == [
        {
            "image/class/synset": source.classes[s.label],
            "image/filename": s.filename,
            "image/format": s.filename.rpartition(".")[2],
            "image/colorspace": "RGB",
            "image/class/label": s.label + 1,
            "image/height": s.height,
            "image/width": s.width,
            "image/encoded": hashlib.sha256(s.encoded).hexdigest(),
        }
        for s in source.samples[split]
    ]


@pytest.mark.parametrize("split", ["train", "val"])
def test_every_record_by_dali(source: Memory, shards: dict[str, list[Path]], split: str) -> None:
    pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali import tfrecord as features

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def read():
        record = fn.readers.tfrecord(
            path=[str(s) for s in shards[split]],
            index_path=[f"{s}.idx" for s in shards[split]],
            features={
                "image/encoded": features.FixedLenFeature((), features.string, ""),
                "image/class/label": features.FixedLenFeature([1], features.int64, -1),
            },
        )
        return record["image/encoded"], record["image/class/label"]

    pipeline = read()
    pipeline.build()
    found = []
    for _ in source.samples[split]:
        encoded, label = pipeline.run()
        found.append((encoded.at(0).tobytes(), int(label.at(0)[0])))
    assert sorted(found) == sorted((s.encoded, s.label + 1) for s in source.samples[split])


def test_indices_are_dalis(shards: dict[str, list[Path]], tmp_path: Path) -> None:
    tool = Path(sys.executable).with_name("tfrecord2idx")
    if not tool.exists():
        pytest.skip("tfrecord2idx (ships with DALI) is not installed")
    for shard in shards["train"] + shards["val"]:
        subprocess.run(
            [sys.executable, tool, shard, tmp_path / "idx"], check=True, capture_output=True
        )
        assert Path(f"{shard}.idx").read_bytes() == (tmp_path / "idx").read_bytes()
