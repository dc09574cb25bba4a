"""How much of a file lies in memory: what was just written is there, what the kernel was told to drop is not."""

import os
import re
from pathlib import Path

import pytest
from ddlbench.run import cached, facts

from tests.specs import run_spec

SIZE = 40 * 4096


def form(folder: Path, files: int = 3) -> Path:
    (folder / "train/cats").mkdir(parents=True)
    (folder / "manifest.json").write_text('{"root": null}')
    for number in range(files):
        with (folder / f"train/cats/{number}.png").open("wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())  # a page that is not yet on disk cannot be dropped
    return folder


def drop(file: Path) -> None:
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_what_was_just_written_is_in_memory_and_what_was_dropped_is_not(tmp_path: Path) -> None:
    data = form(tmp_path / "data", 2)
    assert cached.cached_share(data) == 1.0
    drop(data / "train/cats/0.png")
    share = cached.cached_share(data)
    if share == 1.0:
        pytest.skip("this file system drops nothing when it is asked to")
    assert share == pytest.approx(0.5)


def test_the_files_of_a_tree_that_is_used_in_place_are_looked_at(tmp_path: Path) -> None:
    tree = form(tmp_path / "tree", 2)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/manifest.json").write_text(f'{{"root": "{tree}"}}')
    assert cached.cached_share(tmp_path / "data") == 1.0


@pytest.mark.parametrize("text", ["", "[]", '{"root": "/not/there"}', '{"root": 3}'])
def test_nothing_that_cannot_be_read_stops_a_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert cached.cached_share(tmp_path) is None
    assert cached.cached_share(tmp_path / "missing") is None
    assert cached.cached_share(None) is None


def test_a_large_tree_is_only_sampled(tmp_path: Path) -> None:
    for folder in range(20):
        (tmp_path / f"{folder:02}").mkdir()
        for file in range(20):
            (tmp_path / f"{folder:02}/{file:02}").touch()
    sample = list(cached._sample(tmp_path, 10))
    assert len(sample) == 10
    assert len({file.parent for file in sample}) == 10


def test_a_record_says_driver_gpu_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "nvidia"
    (driver / "gpus/0000:03:00.0").mkdir(parents=True)
    (driver / "gpus/0000:03:00.0/information").write_text("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 67\n")
    (driver / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Release Build\nGCC\n")
    monkeypatch.setattr(facts, "NVIDIA", driver)
    said = facts.facts(run_spec(), ["python"], None, form(tmp_path / "data"))
    assert said["gpu"] == "NVIDIA A100-SXM4-40GB"
    assert said["driver"] == "NVIDIA UNIX x86_64 Kernel Module 570.86.15 Release Build"
    assert re.fullmatch("[0-9a-f]{64}", said["data_sha256"])
    assert said["data_cached_share"] == 1.0
    monkeypatch.setattr(facts, "NVIDIA", tmp_path / "none")
    said = facts.facts(run_spec(), ["python"])
    assert (said["gpu"], said["driver"], said["data_sha256"], said["data_cached_share"]) == (None, None, None, None)
