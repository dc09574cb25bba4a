"""The form webdataset: tar shards that other tools read, and damage that is named."""

import json
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from ddlbench.data.forms import raw, webdataset
from ddlbench.data.prepare import write_form
from ddlbench.data.verify import index, verify

from tests.facts import missing, refuses
from tests.sources import Memory, Sample, picture, some


def made(folder: Path, source: Memory | None = None, form: str = "webdataset") -> Path:
    """A form of 60 and 20 pictures."""
    source = source or some(60, 20)
    write_form(lambda: source, "mnist5k", form, folder / form)
    return folder / form


def as_webdataset_reads(shards: list[Path]) -> list[dict[str, bytes]]:
    """What WebDataset makes of tar files: files that follow each other and have one key are one
    sample; the key ends at the first dot of the file's name.
    """
    found: list[dict[str, bytes]] = []
    for shard in shards:
        with tarfile.open(shard) as tar:
            key = None
            for member in tar:
                folder, slash, name = member.name.rpartition("/")
                stem, _, extension = name.partition(".")
                if folder + slash + stem != key:
                    key = folder + slash + stem
                    found.append({"__key__": key.encode()})
                assert member.isreg() and extension not in found[-1]
                opened = tar.extractfile(member)
                assert opened is not None
                found[-1][extension] = opened.read()
    return found


def test_other_tools_read_every_sample_once_with_its_label(tmp_path: Path) -> None:
    hostile = [
        "a.b.png",
        ".hidden.png",
        "a b\t.png",
        "ü" * 100 + ".png",
        "../x.png",
        "{0..9}.png",
        "\u202e.png",
    ]
    samples = [Sample(name, n % 11, picture(n), 9, 12) for n, name in enumerate(hostile * 3)]
    samples += [Sample("j.JPEG", 10, picture(99, kind="JPEG"), 9, 12)]
    classes = tuple(f"{n:02d} c.l/{n}"[:8] for n in range(11))
    folder = made(tmp_path, Memory({"train": samples, "val": samples}, classes))
    for split in ("train", "val"):
        found = as_webdataset_reads(webdataset.shards(folder, split))
        assert len({sample["__key__"] for sample in found}) == len(found)
        pictures = [(int(s["cls"]), s.get("png") or s["jpg"]) for s in found]
        assert Counter(pictures) == Counter((s.label, s.encoded) for s in samples)
        assert {len(s["cls"]) for s in found} == {2}
        told = [json.loads(sample["json"]) for sample in found]
        assert Counter((t["class"], t["filename"]) for t in told) == Counter(
            (classes[s.label], s.filename) for s in samples
        )
    assert verify([folder]) == []


def test_headers_are_pythons_own_and_tar_takes_them(tmp_path: Path) -> None:
    for name, size in (("0007/0001234.jpg", 1234567), ("0/0.cls", 1), ("a" * 100, 8**11 - 1)):
        info = tarfile.TarInfo(name)
        info.size = size
        assert webdataset._header(name, size) == info.tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(ValueError, match="do not fit"):
        webdataset._header("a", 8**11)
    folder = made(tmp_path)
    for shard in webdataset.shards(folder, "train"):
        listed = subprocess.run(
            ["tar", "--list", "--file", shard], capture_output=True, text=True, check=True
        )
        assert (len(listed.stdout.splitlines()), listed.stderr) == (45, "")


def test_the_index_is_that_of_dalis_tool(tmp_path: Path) -> None:
    wds2idx = pytest.importorskip("wds2idx")
    for shard in webdataset.shards(made(tmp_path), "val"):
        creator = wds2idx.IndexCreator(str(shard), str(tmp_path / "idx"), verbose=False)
        creator.create_index()
        creator.close()
        assert (tmp_path / "idx").read_bytes() == Path(f"{shard}.idx").read_bytes()


def test_samples_are_numbered_as_in_the_raw_form(tmp_path: Path) -> None:
    """Also without those that were skipped: an order of numbers is the same training in both
    forms.
    """
    for bad in (frozenset[str](), frozenset({"class1/00001.png", "class2/00059.png"})):
        found = []
        for member in (raw, webdataset):
            folder = tmp_path / str(len(bad)) / str(member.__name__).rpartition(".")[2]
            source = some(60, 20, bad=bad)
            write_form(lambda: source, "mnist5k", folder.name, folder, on_error="skip")  # noqa: B023
            samples = member.samples(folder, "train")
            found.append([(samples.read(n), int(samples.labels[n])) for n in range(len(samples))])
        assert found[0] == found[1]
        assert len(found[0]) == 60 - len(bad)


def test_the_list_of_samples_is_made_again_and_not_needed(tmp_path: Path) -> None:
    folder = made(tmp_path)
    (kept,) = folder.glob(".*.train.samples")
    before = kept.read_bytes()
    assert len(before) == 60 * 32
    whole = [webdataset.samples(folder, "train").read(n) for n in range(60)]
    kept.unlink()
    assert [webdataset.samples(folder, "train").read(n) for n in range(60)] == whole
    assert index(folder) == []
    assert kept.read_bytes() == before
    kept.write_bytes(before[32:] + before[:32])
    (problem,) = verify([folder])
    assert missing(problem, f"{kept}: ", "does not list") == []
    kept.write_bytes(before[32:])
    with refuses(ValueError, "train", 59, 60):
        webdataset.samples(folder, "train")
