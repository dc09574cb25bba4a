"""Prints every record of shards as a reader that is not ours gives it: `python readers.py <reader>
<shard>...`.

Runs in the environment that `make tensorflow` makes, where ddlbench is not installed.
"""

import hashlib
import json
import sys

TEXT = ("image/class/synset", "image/filename", "image/format", "image/colorspace")
NUMBERS = ("image/class/label", "image/height", "image/width")


def tensorflow(shards):
    """tf.data: (features, bytes) of each record."""
    import tensorflow as tf

    strings = {key: tf.io.FixedLenFeature((), tf.string) for key in (*TEXT, "image/encoded")}
    features = strings | {key: tf.io.FixedLenFeature((), tf.int64) for key in NUMBERS}
    for record in tf.data.TFRecordDataset(shards):
        example = tf.io.parse_single_example(record, features)
        told = {key: example[key].numpy().decode() for key in TEXT} | {
            key: int(example[key]) for key in NUMBERS
        }
        # TensorFlow's own decoder must take the picture too.
        pixels = tf.io.decode_image(example["image/encoded"], channels=3)
        assert pixels.shape[:2] == (told["image/height"], told["image/width"])
        yield told, example["image/encoded"].numpy()


def tfrecord(shards):
    """The package tfrecord, with our index."""
    from tfrecord.reader import tfrecord_loader

    features = dict.fromkeys((*TEXT, "image/encoded"), "byte") | dict.fromkeys(NUMBERS, "int")
    for shard in shards:
        for example in tfrecord_loader(shard, f"{shard}.idx", features):
            told = {key: bytes(example[key]).decode() for key in TEXT} | {
                k: int(example[k][0]) for k in NUMBERS
            }
            yield told, bytes(example["image/encoded"])


if __name__ == "__main__":
    for told, encoded in {"tensorflow": tensorflow, "tfrecord": tfrecord}[sys.argv[1]](
        sys.argv[2:]
    ):
        print(json.dumps(told | {"image/encoded": hashlib.sha256(encoded).hexdigest()}))
