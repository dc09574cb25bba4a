"""The parts of loaders that need no pictures: orders, shares, worker processes, and how batches
come to a GPU.
"""

import io
import multiprocessing
import os
import re
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from ddlbench.core import notes, spec
from ddlbench.data.forms import _kept, raw
from ddlbench.data.forms.raw import Files
from ddlbench.data.manifest import Manifest, Split
from ddlbench.data.verify import index
from ddlbench.train.loaders import (
    _dali,
    _normalisation,
    _pictures,
    _sampling,
    _stream,
    _workers,
    native,
    synthetic,
    torchvision,
)
from PIL import Image

from tests.contract.engine_cases import Case, spec_of
from tests.facts import refuses


def run(workers: int, batch: int, epochs: int = 3):
    """A run of the loader."""
    return replace(
        spec_of(Case("ddp", "ddp", "sgd")), workers=workers, global_batch=batch, epochs=epochs
    )


def test_an_order_is_the_one_that_it_was():
    """Numbers that the first version gave: another order would be another training."""
    assert _sampling.shuffled(12, 1, 0).tolist() == [8, 11, 4, 7, 5, 0, 1, 9, 2, 10, 6, 3]
    assert _sampling.shuffled(12, 7, 3).tolist() == [4, 2, 5, 8, 7, 3, 11, 10, 0, 1, 9, 6]
    parts = [part.tolist() for part in _sampling.share(_sampling.shuffled(12, 1, 0), 5, 1, 2)]
    assert parts == [[4, 7, 5], [9, 2, 10], [3]]
    parts = [part.tolist() for part in _sampling.share(_sampling.shuffled(12, 7, 3), 5, 0, 2, 1)]
    assert parts == [[3, 11], [9]]


def drawn(train: bool, epoch: int, index: int) -> Any:
    """One picture as a loader gives it, [3, 16, 16]: red grows to the right, green downwards."""
    down, right = np.mgrid[0:240:40j, 0:240:60j].astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.stack([right, down, np.zeros_like(down)], 2)).save(buffer, "PNG")
    samples: Any = SimpleNamespace(read=lambda _: buffer.getvalue(), name=str)
    of = run(1, 1)
    recipe = replace(of.recipe, augmentation="imagenet", image_size=16)
    place = np.zeros((1, 3, 16, 16), np.uint8)
    _pictures.Pictures(samples, train, replace(of, recipe=recipe)).fill(place, epoch, [index])
    return place[0].astype(int)


def test_a_picture_is_drawn_anew_in_each_epoch_and_turned_to_the_side_only():
    every = [drawn(True, epoch, index) for epoch in range(6) for index in range(2)]
    assert len({picture.tobytes() for picture in every}) == 12
    assert (drawn(True, 1, 1) == drawn(True, 1, 1)).all()
    red, green = (
        np.sign([picture[n].mean(n) @ [-1, *[0] * 14, 1] for picture in every]) for n in (0, 1)
    )
    assert {*red.tolist()} == {-1, 1} and {*green.tolist()} == {1}


def test_a_picture_of_validation_is_the_same_in_each_epoch():
    assert (
        len({drawn(False, epoch, index).tobytes() for epoch in range(3) for index in range(3)}) == 1
    )


def test_ranks_draw_different_random_batches():
    source: Any = SimpleNamespace(images=8, classes=10)
    batches = [next(synthetic.Loader(source, run(2, 8), rank).epoch(0))[0] for rank in range(2)]
    assert not (batches[0] == batches[1]).any()


@pytest.mark.parametrize(
    ("images", "batch", "world"),
    [(10, 4, 3), (7, 7, 2), (5, 2, 4), (9, 8, 8), (64, 16, 4), (0, 4, 2)],
)
def test_every_sample_of_a_step_has_one_rank_in_shares_as_equal_as_it_goes(images, batch, world):
    """In the order of the epoch, and in as many steps on every rank."""
    ranks = [
        [list(part) for part in _sampling.share(range(images), batch, rank, world)]
        for rank in range(world)
    ]
    steps = list(zip(*ranks, strict=True))
    whole = [[sample for part in parts for sample in part] for parts in steps]
    assert whole == [list(range(images))[n : n + batch] for n in range(0, images, batch)]
    for parts in steps:
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    if steps:
        assert min(map(len, steps[-1])) == spec.smallest_share(images, batch, world)
        assert len(steps) == spec.steps_per_epoch(images, batch)
    for first in range(len(steps) + 2):
        later = [
            [list(part) for part in _sampling.share(range(images), batch, rank, world, first)]
            for rank in range(world)
        ]
        assert later == [parts[first:] for parts in ranks]


def test_pixels_are_normalised_as_everywhere_in_the_literature():
    assert (_normalisation.MEAN, _normalisation.STD) == (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    )


def taken(batches: native.Batches, epoch: int, first_step: int = 0) -> list[list[int]]:
    """All batches of an epoch."""
    batches.epoch, batches.first_step = epoch, first_step
    found = [keys[0] for keys in batches]
    assert {of for of, _ in found} == {epoch}
    return [list(map(int, indices)) for _, indices in found]


@pytest.mark.parametrize("shuffle", [True, False])
def test_orders_drawn_ahead_are_those_drawn_at_once(shuffle):
    in_turn, alone = (native.Batches(100, shuffle, run(2, 16), 1) for _ in range(2))
    whole = []
    for epoch in range(3):
        whole.append(taken(in_turn, epoch))
        in_turn.draw_ahead()
    taken(alone, 0)
    alone.draw_ahead()
    assert taken(alone, 2) == whole[2]  # another epoch than the one that lies ready
    assert whole[1][3:] == taken(alone, 1, 3)
    assert taken(in_turn, 0) == whole[0]
    assert (whole[0] == whole[1]) is not shuffle


def test_the_next_epochs_order_lies_ready_when_it_begins(monkeypatch):
    """And none is drawn that no epoch of the run needs."""
    drawn = []
    monkeypatch.setattr(
        native, "shuffled", lambda *a: drawn.append(a[-1]) or _sampling.shuffled(*a)
    )
    batches = native.Batches(100, True, run(2, 16, epochs=2), 0)
    for epoch in range(2):
        taken(batches, epoch)
        batches.draw_ahead()
        assert batches.ahead is None or batches.ahead[1].result(10) is not None
        assert drawn == [0, 1]


def private_bytes() -> int:
    """Memory of this process that it shares with no other."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.M)) * 1024


def form(folder: Path, names: list[str], classes: int) -> Path:
    """A raw form of so many empty pictures as names, dealt to classes; only its folders are
    real.
    """
    per = {f"class{n:03d}": names[n::classes] for n in range(classes)}
    for name, inside in per.items():
        (folder / "train" / name).mkdir(parents=True)
        for file in inside:
            (folder / "train" / name / file).touch()
    write_manifest(folder, {name: len(inside) for name, inside in per.items()})
    return folder


def write_manifest(folder: Path, pictures: dict[str, int], root: str | None = None) -> None:
    """Of so many training pictures by class."""
    splits = {s: Split(0, {}, 0, {}, "", {}) for s in ("train", "val")}
    splits["train"] = Split(sum(pictures.values()), pictures, 0, {}, "", {})
    Manifest("mnist5k", "raw", 1, root, tuple(pictures), 0, 1, {}, {}, splits).write(folder)


def test_worker_processes_share_names_and_labels(tmp_path, monkeypatch):
    """A forked process that asks for every name takes no memory of its own for them."""
    count = 200_000
    names = [f"n{i:08d}_{i}.JPEG" for i in range(count)]
    monkeypatch.setattr(
        raw,
        "files",
        lambda path, _: names[int(path.name[5:]) :: 10] if path.parent.name == "train" else [],
    )
    (tmp_path / "raw").mkdir()
    write_manifest(
        tmp_path / "raw", {f"class{n}": count // 10 for n in range(10)}, "/data/imagenet"
    )
    pictures = native.Batched(Files(tmp_path / "raw", "train"), True, run(2, 16)).samples
    assert pictures.name(1) == f"/data/imagenet/train/class0/{names[10]}"
    assert pictures.name(count - 1) == f"/data/imagenet/train/class9/{names[-1]}"
    assert np.array_equal(pictures.labels, np.repeat(range(10), count // 10))
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        before = private_bytes()
        for i in range(count):
            pictures.name(i)
        os.write(writable, str(private_bytes() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(readable, 100)) < 4 * 2**20  # 40 MiB where names are strings in a list


def test_names_need_not_be_utf_8(tmp_path):
    names = [os.fsdecode(b"caf\xe9.png"), "two  words .png"]
    files = Files(form(tmp_path / "raw", names, 1), "train")
    assert [files.name(n) for n in range(2)] == [
        f"{tmp_path}/raw/train/class000/{name}" for name in sorted(names)
    ]


def test_torchvision_takes_the_manifests_pictures_and_labels(tmp_path):
    """Classes need not be in order, a class may lack pictures and a folder, and what was skipped is
    no picture.
    """
    folder = form(tmp_path / "raw", [f"{n}.png" for n in range(7)], 3)
    (folder / "train" / "class000" / "notes.txt").touch()
    manifest = Manifest.read(folder)
    told = replace(manifest.splits["train"], images=6, skipped={"class000/3.png": "is empty"})
    classes = ("class002", "class003", "class001", "class000")
    replace(manifest, classes=classes, splits=manifest.splits | {"train": told}).write(folder)
    found = torchvision.Batched(folder, "train", run(2, 16), 6).folder
    assert {Path(path).parent.name: found.target_transform(number) for path, number in found.samples} == {
        "class000": 3, "class001": 2, "class002": 0,
    }  # fmt: skip
    assert sorted(Path(path).name for path, _ in found.samples) == [
        f"{n}.png" for n in (0, 1, 2, 4, 5, 6)
    ]
    with refuses(RuntimeError, "raw/train: ", "torchvision", 6, 7):
        torchvision.Batched(folder, "train", run(2, 16), 7)


def test_each_rank_of_dali_draws_by_its_own_numbers(tmp_path, monkeypatch):
    """And by others in another repeat; DALI itself is not asked."""
    dali = SimpleNamespace(
        fn=None, types=None, pipeline_def=lambda **given: lambda define: lambda: given
    )
    monkeypatch.setitem(sys.modules, "nvidia.dali", dali)
    seeds = [
        _dali.pipeline(tmp_path, "train", replace(run(4, 16), repeat=repeat), rank, False)["seed"]
        for repeat in (1, 2)
        for rank in range(4)
    ]
    assert len({*seeds}) == 8


def test_the_list_of_files_is_made_once_and_for_one_manifest(tmp_path, monkeypatch):
    folder = form(tmp_path / "raw", [f"{n}.png" for n in range(7)], 3)
    assert index(folder) == []
    first = Files(folder, "train")
    assert (
        first.list is not None
        and len(first) == 7
        and first.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    )
    with monkeypatch.context() as none:
        none.setattr(raw, "files", None)  # folders are not listed again
        assert index(folder) == []
        assert Files(folder, "train").list == first.list
    (folder / "train" / "class002" / "9.png").touch()
    manifest = Manifest.read(folder)
    told = manifest.splits["train"]
    manifest.splits["train"] = replace(
        told, images=8, images_per_class=told.images_per_class | {"class002": 3}
    )
    manifest.write(folder)
    assert index(folder) == []
    second = Files(folder, "train")
    assert len(second) == 8 and second.list != first.list
    assert list(folder.glob(".*.train.files")) == [second.list]
    (folder / "train" / "class002" / "9.png").unlink()
    second.list.unlink()
    with pytest.raises(ValueError, match="7 files, the manifest says 8"):
        Files(folder, "train")


def test_where_nothing_can_be_written_each_rank_lists_for_itself(tmp_path, monkeypatch):
    folder = form(tmp_path / "raw", [f"{n}.png" for n in range(5)], 2)
    monkeypatch.setattr(
        _kept, "aside", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system"))
    )
    assert index(folder) == []
    listed = []
    files_of = raw.files
    monkeypatch.setattr(raw, "files", lambda *asked: listed.append(asked) or files_of(*asked))
    files = Files(folder, "train")
    assert files.list is None
    assert len(listed) == 2  # each class once
    assert files.name(4) == f"{folder}/train/class001/3.png"


def work() -> None:
    _workers.listen_to_rank()
    time.sleep(60)


@pytest.fixture
def worker():
    with _workers.signals_blocked():
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
    yield process
    process.kill()
    process.join()


@pytest.mark.parametrize("number", notes.STOP_SIGNALS)
def test_a_signal_from_elsewhere_is_ignored_from_the_first_moment(worker, number):
    os.system(
        f"kill -{int(number)} {worker.pid}"
    )  # from another process than the one that forked it
    worker.join(0.3)
    assert worker.is_alive()
    for _ in range(100):  # one that has not listened yet hears two SIGTERMs as one, the first
        worker.terminate()
        worker.join(0.1)
        if worker.exitcode is not None:
            break
    assert worker.exitcode == 0


def test_workers_end_with_a_rank_that_is_killed():
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def rank() -> None:
        process = multiprocessing.get_context("fork").Process(target=listening, args=(theirs,))
        process.start()
        time.sleep(60)

    def listening(pipe) -> None:
        _workers.listen_to_rank()
        pipe.send(os.getpid())
        time.sleep(60)

    killed = multiprocessing.get_context("fork").Process(target=rank)
    killed.start()
    assert ours.poll(30)
    left = psutil.Process(ours.recv())
    killed.kill()
    killed.join()
    _, alive = psutil.wait_procs([left], timeout=20)
    for process in alive:
        process.kill()
    assert not alive


def test_whoever_forks_hears_them_again():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with _workers.signals_blocked():
        assert set(notes.STOP_SIGNALS) <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


class Pretended:
    """CUDA with two streams, `main` and `side`. What happens is in `told`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.current = SimpleNamespace(
            name="main", wait_stream=lambda of: self.told.append(f"main waits for {of}")
        )
        self.done: set[int] = set()
        self.events = 0
        monkeypatch.setattr("torch.cuda.current_stream", lambda: self.current)
        monkeypatch.setattr("torch.cuda.stream", self.stream)
        monkeypatch.setattr("torch.cuda.Event", self.event)

    @contextmanager
    def stream(self, name: str) -> Any:
        before, self.current = self.current, SimpleNamespace(name=name)
        yield
        self.current = before

    def tensor(self, name: str) -> Any:
        def to(device: str, non_blocking: bool) -> Any:
            self.told.append(
                f"{name} to {device} on {self.current.name}, blocking {not non_blocking}"
            )
            return SimpleNamespace(
                record_stream=lambda s: self.told.append(f"{name} is used on {s.name}")
            )

        return SimpleNamespace(to=to)

    def event(self) -> Any:
        self.events += 1
        number = self.events
        return SimpleNamespace(
            record=lambda: self.told.append(f"record {number}"),
            query=lambda: number in self.done,
            synchronize=lambda: self.told.append(f"wait {number}"),
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    return Pretended(monkeypatch)


def test_batches_are_copied_beside_the_computation(cuda: Pretended) -> None:
    _stream.copied([cuda.tensor("pixels"), cuda.tensor("labels")], "cuda", "side")
    assert cuda.told == [
        "pixels to cuda on side, blocking False",
        "labels to cuda on side, blocking False",
        "main waits for side",
        "pixels is used on main",
        "labels is used on main",
    ]


class Batch:
    """One that says when it is let go."""

    def __init__(self, number: int, gone: list[int]) -> None:
        self.number, self.gone = number, gone

    def __del__(self) -> None:
        self.gone.append(self.number)


def test_memory_of_others_is_kept_until_the_gpu_has_used_it(cuda: Pretended) -> None:
    held, gone = _stream.KeptBatches(), []  # type: ignore[var-annotated]
    for number in (1, 2, 3):
        held.keep(Batch(number, gone))
    assert gone == []  # the GPU is at work on the first
    cuda.done = {1, 2}
    held.keep(Batch(4, gone))
    assert gone == [1, 2]
    assert not any("wait" in told for told in cuda.told)


def test_a_host_far_ahead_waits_for_its_gpu(cuda: Pretended) -> None:
    held, gone = _stream.KeptBatches(), []  # type: ignore[var-annotated]
    for number in range(1, _stream.MOST_KEPT + 2):
        held.keep(Batch(number, gone))
    assert cuda.told[-1] == "wait 1"
    assert gone == [1]
