"""Preparing that is killed, runs out of disk, meets bad files or another that prepares the same."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddlbench.core import registry
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import write_form

from tests.conftest import ROOT
from tests.conftest import SLOW as SLOW_TIER
from tests.disks import small_disk
from tests.facts import missing
from tests.sources import contents, picture, some

FORMS = registry.members("forms")
PARTS = {
    "raw": "train/class[0-9]",
    "tfrecord": "train-*-of-00004",
    "webdataset": "train-*-of-00004.tar",
}
SLOW = "some(60, 20, seconds=0.01)"
SLOWER = "some(60, 20, seconds=0.05)"  # a test that is late by half a second still meets it at work
KILLS = 10 if SLOW_TIER else 4  # at moments that differ each day
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'workflow'}:{ROOT}"}


def start(form: str, folder: Path, source: str = SLOW) -> subprocess.Popen[str]:
    """A process, and a group of its own, that prepares a form of a slow source with two
    processes.
    """
    program = (
        "import sys; from pathlib import Path; from ddlbench.data.prepare import write_form\n"
        "from tests.sources import some\n"
        f"write_form(lambda: {source}, 'some', sys.argv[1], Path(sys.argv[2]), processes=2)"
    )
    command = [sys.executable, "-c", program, form, str(folder)]
    return subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def prepare(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m ddlbench.prepare` as the rule calls it."""
    command = [sys.executable, "-m", "ddlbench.prepare", *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


@pytest.mark.more
@pytest.mark.parametrize("form", FORMS)
def test_killed_at_random_moments_there_is_a_whole_form_or_none(tmp_path: Path, form: str) -> None:
    """The next call begins from the start, and makes the same bytes."""
    began = time.monotonic()
    write_form(
        lambda: some(60, 20, seconds=0.01), "some", form, tmp_path / "straight" / form, processes=2
    )
    seconds = time.monotonic() - began
    reference = contents(tmp_path / "straight" / form)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kills = finished = 0
    while kills < KILLS:
        folder = tmp_path / str(finished) / form
        process = start(form, folder)
        if rng.random() < 0.8:  # the others die while they start
            process.stdout.readline()
        time.sleep(rng.uniform(0, seconds))
        if process.poll() is None:
            kills += 1
            if rng.random() < 0.7:
                os.killpg(process.pid, signal.SIGKILL)
            else:  # its processes die with it
                process.kill()
        process.communicate()
        if folder.exists():
            assert contents(folder) == reference
            finished += 1
    process = start(form, folder)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert contents(folder) == reference
    assert sorted(p.name for p in folder.parent.iterdir()) == [f".{form}.lock", form]


@pytest.mark.parametrize("form", FORMS)
def test_what_a_killed_process_wrote_is_not_used(tmp_path: Path, form: str) -> None:
    """It may be half of a shard, or of another source."""
    process = start(form, tmp_path / form, SLOWER)
    work = tmp_path / f".{form}.partial"
    while not list(work.glob(PARTS[form])):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / form).exists()
    kept = {p.relative_to(work): p.stat().st_ino for p in work.glob(PARTS[form])}
    assert kept
    other = some(30, 10)
    write_form(lambda: other, "some", form, tmp_path / form)
    assert not work.exists()
    write_form(lambda: other, "some", form, tmp_path / "straight" / form)
    assert contents(tmp_path / form) == contents(tmp_path / "straight" / form)


def test_two_at_once(tmp_path: Path) -> None:
    first = start("tfrecord", tmp_path / "tfrecord", SLOWER)
    first.stdout.readline()
    os.killpg(
        first.pid, signal.SIGSTOP
    )  # so it is at work when the second one comes, however late that is
    second = start("tfrecord", tmp_path / "tfrecord", SLOWER)
    said = second.stdout.readline()
    os.killpg(first.pid, signal.SIGCONT)
    outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert missing(said, "another process", "waiting") == []
    assert "already prepared" in outputs[1]
    write_form(lambda: some(60, 20), "some", "tfrecord", tmp_path / "alone/tfrecord")
    assert contents(tmp_path / "tfrecord") == contents(tmp_path / "alone/tfrecord")


def test_a_manifest_that_snakemake_deleted_comes_back_as_it_was(tmp_path: Path) -> None:
    """Snakemake deletes a rule's outputs before the rule runs, also those that another workflow has
    just made.
    """
    folder = tmp_path / "tfrecord"
    write_form(lambda: some(60, 20), "some", "tfrecord", folder)
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}
    (folder / "manifest.json").unlink()
    write_form(lambda: some(60, 20), "some", "tfrecord", folder)
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()} == before


@pytest.mark.more
@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk(tmp_path: Path, form: str) -> None:
    def again(folder: Path) -> subprocess.CompletedProcess[str]:
        manifest = folder / form / "manifest.json"
        return prepare(
            "synthetic-imagenet",
            form,
            manifest,
            "--source",
            "train=40,val=8,classes=8",
            "--processes",
            2,
        )

    disk = tmp_path / "small"
    disk.mkdir()
    with small_disk(disk, "3m"):
        done = again(disk)
        work = disk / f".{form}.partial"
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        said = re.fullmatch(
            r"(\S+): No space left on device: about ([\d.]+) MB are needed, ([\d.]+) MB are free .*",
            line,
        )
        assert said, line
        assert Path(said[1]).is_relative_to(work)
        assert float(said[2]) > float(said[3])
        assert sorted(path.name for path in disk.iterdir()) == [f".{form}.lock"]
        subprocess.run(["mount", "-o", "remount,size=30m", disk], check=True)
        done = again(disk)
        assert done.returncode == 0, done.stderr
        assert again(tmp_path / "large").returncode == 0
        assert contents(disk / form) == contents(tmp_path / "large" / form)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A tree of ImageNet's shape in which one file is text."""
    for number, name in enumerate(
        ("train/n01/a", "train/n01/b", "train/n02/c", "val/n01/d", "val/n02/e")
    ):
        path = tmp_path / f"site/{name}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number, kind="JPEG"))
    (tmp_path / "site/train/n01/b.JPEG").write_text("no picture")
    return tmp_path / "site"


@pytest.mark.parametrize("form", FORMS)
def test_a_bad_file_is_one_line_or_listed(site: Path, tmp_path: Path, form: str) -> None:
    manifest = tmp_path / form / "manifest.json"
    done = prepare("imagenet", form, manifest, "--source", site)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{site}/train/n01/b.JPEG: ")
    assert missing(line, "data.on_error: skip") == []
    assert not manifest.exists()
    done = prepare(
        "imagenet", form, manifest, "--source", site, "--on-error", "skip", "--processes", 2
    )
    assert done.returncode == 0, done.stderr
    assert f"imagenet {form} train: 2 images" in done.stdout
    assert missing(done.stdout, "1 skipped") == []
    assert list(Manifest.read(manifest.parent).splits["train"].skipped) == ["n01/b.JPEG"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["train/n02/c\udcff.JPEG", "train/n\udcff/c.JPEG"])
def test_a_name_that_is_not_utf_8_is_one_line(
    site: Path, tmp_path: Path, form: str, name: str
) -> None:
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_bytes(picture(9, kind="JPEG"))
    done = prepare("imagenet", form, tmp_path / form / "manifest.json", "--source", site)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert r"\udcff" in line
    assert missing(line, "UTF-8", "rename") == []
    assert not (tmp_path / form).exists()


def test_names_in_messages_are_printed_safely(site: Path, tmp_path: Path) -> None:
    (site / "train/n01/b.JPEG").rename(site / "train/n01/b\x1b[31m.JPEG")
    done = prepare("imagenet", "raw", tmp_path / "a\n\x1b[31m/raw/manifest.json", "--source", site)
    (line,) = done.stderr.splitlines()
    assert r"train/n01/b\x1b[31m.JPEG: " in line
    assert line.isprintable()
    (site / "train/n01/b\x1b[31m.JPEG").rename(site / "train/n01/b\n.JPEG")
    done = prepare("imagenet", "raw", tmp_path / "raw/manifest.json", "--source", site)
    (line,) = done.stderr.splitlines()
    assert missing(line, r"'b\n.JPEG'", "line break", "rename") == []
    done = prepare("imagenet", "raw", site / "x\n\x1b/raw/manifest.json", "--source", site)
    (line,) = done.stderr.splitlines()
    assert line.isprintable()


def test_another_number_of_pictures_than_was_published_is_said_loudly(
    site: Path, tmp_path: Path
) -> None:
    asked = (
        "imagenet",
        "raw",
        tmp_path / "raw/manifest.json",
        "--source",
        site,
        "--on-error",
        "skip",
    )
    for done in (prepare(*asked), prepare(*asked)):
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
        assert missing(line, "imagenet", "2 classes", "3 images", "2 for validation") == []
        assert missing(line, "1000 classes", "1281167 images", "50000 for validation") == []
    done = prepare(
        "synthetic-imagenet",
        "raw",
        tmp_path / "s/manifest.json",
        "--source",
        "train=4,val=2,classes=2",
    )
    assert (done.returncode, "WARNING" in done.stdout) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("imagenett", "raw"), "did you mean imagenet?"),
        (("mnist5k", "raws"), "allowed: raw, tfrecord, webdataset"),
        (("imagenet", "raw", "--source", "nowhere"), "nowhere"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    dataset, form, *more = arguments
    done = prepare(dataset, form, tmp_path / form / "manifest.json", *more)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert said in line


def test_a_killed_process_is_told(tmp_path: Path) -> None:
    process = start("tfrecord", tmp_path / "tfrecord", SLOWER)
    process.stdout.readline()
    (child, *_) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert missing(output, "CrewError", "killed", "exit code -9") == []
    assert not (tmp_path / "tfrecord").exists()
