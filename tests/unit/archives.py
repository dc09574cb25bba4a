"""ImageNet's official archives, small ones of the published layout."""

import hashlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ddlbench.data.datasets import imagenet
from ddlbench.data.datasets.imagenet import TRAIN, VAL
from ddlbench.data.pictures import encode
from ddlbench.data.source import Place, SourceError
from PIL import Image

SYNSETS = ("n01440764", "n01443537", "n02105855")

VALIDATION = [SYNSETS[i] for i in (2, 0, 1, 1, 0, 2)]

GNU, PAX = tarfile.GNU_FORMAT, tarfile.PAX_FORMAT


def picture(number: int, form: str = "JPEG", mode: str = "RGB") -> bytes:
    return encode(Image.new(mode, (40 + number, 30), number * 7), form)


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], form: int = GNU) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def contents() -> dict[str, dict[str, bytes]]:
    """Pictures by synset and name, neither in order; one is a PNG, one CMYK, one has a name of 120
    letters.
    """
    by_synset = {
        s: {f"{s}_{9 - n}.JPEG": picture(n + 3 * k) for n in range(3)}
        for k, s in enumerate(SYNSETS[::-1])
    }
    by_synset["n02105855"]["n02105855_2933.JPEG"] = picture(1, "PNG")
    by_synset["n01440764"]["n01440764_1.JPEG"] = picture(2, mode="CMYK")
    by_synset["n01443537"][f"n01443537_{'x' * 110}é.JPEG"] = picture(5)
    return by_synset


def train(by_synset: dict[str, dict[str, bytes]], form: int = GNU) -> bytes:
    inner = {
        s: tar(*(member(n, d) for n, d in files.items()), form=form)
        for s, files in by_synset.items()
    }
    return tar(*(member(f"{s}.tar", data) for s, data in inner.items()), form=form)


def val(count: int = len(VALIDATION)) -> bytes:
    return tar(*(member(f"ILSVRC2012_val_{n:08d}.JPEG", picture(n)) for n in range(count, 0, -1)))


def opened(folder: Path) -> Any:
    """The source as a worker process has it, as if the archives in the folder were those that were
    published.
    """
    digests = {
        n: hashlib.md5((folder / n).read_bytes()).hexdigest()
        for n in (TRAIN, VAL)
        if (folder / n).is_file()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imagenet, "MD5", imagenet.MD5 | digests)
        return pickle.loads(
            pickle.dumps(imagenet.open_source(Place(str(folder), folder / "cache")))
        )


def refused(folder: Path, split: str = "train") -> str:
    """The one line that says why."""
    with pytest.raises(SourceError) as error:
        opened(folder).entries(split)
    assert "\n" not in str(error.value)
    return str(error.value)


def archives(tmp_path: Path) -> Path:
    """The archives and a given list of the validation pictures' synsets."""
    (tmp_path / TRAIN).write_bytes(train(contents()))
    (tmp_path / VAL).write_bytes(val())
    (tmp_path / "validation_synsets.txt").write_text("\n".join(VALIDATION) + "\n")
    return tmp_path
