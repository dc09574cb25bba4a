"""Where a form is put: it is whole or not there, and nothing that lies there is replaced."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddlbench.data import target
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import write_form
from ddlbench.data.target import TargetError, manifest_in
from ddlbench.settings.config import ConfigError

from tests.conftest import ROOT
from tests.facts import missing, refuses
from tests.sources import contents, some
from tests.unit.targets import FORMS, everything, imagenet, made, refused
from tests.unit.test_forms_faults import ENVIRONMENT, prepare


@pytest.mark.parametrize("form", FORMS)
def test_a_source_is_not_replaced_by_its_own_form(tmp_path: Path, form: str) -> None:
    folder = imagenet(tmp_path / "data/imagenet" / form)
    before = everything(tmp_path)
    refused(
        prepare("imagenet", form, folder / "manifest.json", "--source", folder),
        str(folder),
        "the same folder",
    )
    assert everything(tmp_path) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "way", ["link to it", "link above", "relative", "above", "within", "train is a link"]
)
def test_however_the_source_is_named(tmp_path: Path, form: str, way: str) -> None:
    folder = tmp_path / "data/imagenet" / form
    source = imagenet(
        folder / "inside" if way == "within" else tmp_path / "data" if way == "above" else folder
    )
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "above").symlink_to(tmp_path / "data")
    given = {
        "link to it": tmp_path / "link",
        "link above": tmp_path / "above/imagenet" / form,
        "relative": os.path.relpath(folder, ROOT / "."),
        "train is a link": tmp_path / "site",
    }.get(way, source)
    (tmp_path / "site").mkdir()
    for split in ("train", "val"):
        (tmp_path / "site" / split).symlink_to(folder / split)
    before = everything(tmp_path)
    refused(
        prepare("imagenet", form, folder / "manifest.json", "--source", given),
        "nothing was touched",
    )
    assert everything(tmp_path) == before


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_that_ddlbench_did_not_make_stays(tmp_path: Path, form: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("thesis.tex", "train-00000-of-00001", "manifest.json"):
        (home / name).write_text("mine")
    before = everything(home)
    done = prepare("mnist5k", form, home / "manifest.json")
    refused(done, f"{home}: was not made by ddlbench", "'manifest.json'", "nothing was touched")
    assert everything(home) == before


def test_the_working_directory_is_a_folder_like_others(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    command = [sys.executable, "-m", "ddlbench.data.prepare", "mnist5k", "raw", "manifest.json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    refused(done, f"{tmp_path}: was not made by ddlbench")
    assert (tmp_path / "thesis.tex").read_text() == "mine"


# What is asked for where a form of seed 1 and 60 + 20 pictures lies, and what the line names.
OTHERS = {
    "seed": (
        lambda folder, form: made(folder, seed=2, form=form),
        r"its seed is 1, asked for is 2",
    ),
    "source": (
        lambda folder, form: write_form(
            lambda: some(60, 20, described={"source": "b"}), "some", form, folder
        ),
        r'its source is {"source": "a test"}, asked for is {"source": "b"}',
    ),
    "pictures": (
        lambda folder, form: write_form(lambda: some(60, 21), "some", form, folder),
        "of other pictures",
    ),
    "classes": (
        lambda folder, form: write_form(lambda: some(60, 20, classes=4), "some", form, folder),
        r"other classes \(3\); 4 ",
    ),
    "data set": (
        lambda folder, form: write_form(lambda: some(60, 20), "mnist5k", form, folder),
        'its dataset is "some", asked for is "mnist5k"',
    ),
    "form": (
        lambda folder, form: made(folder, form="webdataset"),
        r'its form is "(raw|tfrecord)", asked for is "webdataset"',
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", OTHERS)
def test_a_form_that_is_not_the_one_asked_for_stays(tmp_path: Path, form: str, case: str) -> None:
    """With a user's files in it, or without. The line says what to type."""
    ask, says = OTHERS[case]
    folder = tmp_path / "my data" / form
    made(folder, form=form)
    (folder / "notes.txt").write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(TargetError, match=says) as error:
        ask(folder, form)
    assert missing(error.value, f"rm -r '{folder}'", "`data`") == []
    assert str(error.value).isprintable()
    assert everything(tmp_path) == before
    made(folder, form=form)  # the one that is there
    shutil.rmtree(folder)
    ask(folder, form)
    assert manifest_in(folder) is not None


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_is_not_whole_stays(tmp_path: Path, form: str) -> None:
    manifest = made(tmp_path / form, form=form)
    part = tmp_path / form / next(iter(manifest.splits["val"].sha256))
    part.rename(tmp_path / "away")
    with refuses(TargetError, next(iter(manifest.splits["val"].sha256)), f"rm -r {tmp_path}"):
        made(tmp_path / form, form=form)
    (tmp_path / "away").rename(part)
    assert made(tmp_path / form, form=form) == manifest


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    """What lies there is used; it is not replaced, nor is anything put through the link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "tfrecord").symlink_to(tmp_path / "disk")
    with refuses(TargetError, tmp_path / "tfrecord", "symbolic link"):
        made(tmp_path / "tfrecord")
    with refuses(ConfigError, tmp_path / "tfrecord", "symbolic link"):
        target.check_places({tmp_path / "tfrecord/manifest.json": None})
    assert list((tmp_path / "disk").iterdir()) == []
    (tmp_path / "disk").rmdir()
    made(tmp_path / "disk")
    before = everything(tmp_path)
    target.check_places({tmp_path / "tfrecord/manifest.json": None})
    assert made(tmp_path / "tfrecord") == Manifest.read(tmp_path / "disk")
    with refuses(TargetError, "seed", 1, 2):
        made(tmp_path / "tfrecord", seed=2)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_neighbour_that_ddlbench_did_not_make_stays(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ".tfrecord.partial"
    mine = place if kind == "folder" else tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    if kind == "link":
        place.symlink_to(mine)
    if kind == "file":
        place.write_text("mine")
    with refuses(TargetError, f"{place}: "):
        made(tmp_path / "tfrecord")
    assert (mine / "thesis.tex").read_text() == "mine"
    assert os.path.lexists(place)
    assert not (tmp_path / "tfrecord").exists()


def test_the_lock_truncates_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".tfrecord.lock").symlink_to(tmp_path / "precious")
    with refuses(TargetError, tmp_path / ".tfrecord.lock", "lock"):
        made(tmp_path / "tfrecord")
    assert (tmp_path / "precious").read_text() == "mine"
    (tmp_path / ".tfrecord.lock").unlink()
    (tmp_path / ".tfrecord.lock").write_text("another user's")
    made(tmp_path / "tfrecord")
    assert (tmp_path / ".tfrecord.lock").read_text() == "another user's"
    (tmp_path / ".tfrecord.lock").unlink()
    os.mkfifo(tmp_path / ".tfrecord.lock")
    shutil.rmtree(tmp_path / "tfrecord")
    with refuses(TargetError, tmp_path / ".tfrecord.lock", "lock"):
        made(tmp_path / "tfrecord")


def test_links_in_what_is_left_aside(tmp_path: Path) -> None:
    """Put there by somebody in a folder that all may write to."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/precious").write_text("mine")
    work = tmp_path / ".tfrecord.partial"
    work.mkdir()
    (work / "train-00000-of-00004").symlink_to(tmp_path / "precious")
    (work / "val").symlink_to(tmp_path / "folder")
    made(tmp_path / "tfrecord")
    assert (
        (tmp_path / "precious").read_text() == (tmp_path / "folder/precious").read_text() == "mine"
    )
    made(tmp_path / "straight")
    assert contents(tmp_path / "tfrecord") == contents(tmp_path / "straight")


@pytest.mark.parametrize("form", FORMS)
def test_a_subset_of_links_into_the_form_that_is_there(tmp_path: Path, form: str) -> None:
    """To replace that form would remove the pictures."""
    folder = tmp_path / "data/imagenet/raw"
    imagenet(tmp_path / "archive", ("n01", "n02", "n03"))
    made(folder, form="raw")
    subset = tmp_path / "subset"
    for file in sorted((folder / "train").rglob("*.png")) + sorted((folder / "val").rglob("*.png")):
        link = subset / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    before = everything(tmp_path)
    refused(
        prepare("imagenet", form, folder / "manifest.json", "--source", subset),
        "holds another form",
        "rm -r ",
    )
    assert everything(tmp_path) == before


# For each line "number folder" a process, which ends without a word at its `number`th deed on a
# file or folder. They are forks of one that has loaded everything, and no threads.
KILLED = """
import os, shutil, sys
from pathlib import Path
from ddlbench.data import prepare, target
from tests.sources import some
left = 0
def counted(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*arguments, **named)
    return call
for owner, name in (
    *((Path, name) for name in ("mkdir", "rename", "replace", "unlink", "write_text")),
    (shutil, "rmtree"), (shutil, "copy2"), (os, "fsync"), (target.Target, "put"),
):
    setattr(owner, name, counted(getattr(owner, name)))
for line in sys.stdin:
    number, folder = line.rstrip().split(" ", 1)
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # its own words are not answers
        left = int(number)
        prepare.write_form(lambda: some(12, 6), "some", "tfrecord", Path(folder))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_between_any_two_deeds_there_is_a_whole_form_or_none(tmp_path: Path) -> None:
    """The next call finds it, or begins from the start."""
    write_form(lambda: some(12, 6), "some", "tfrecord", tmp_path / "straight")
    whole = contents(tmp_path / "straight")
    other = [sys.executable, "-c", KILLED]
    found: list[bool] = []
    with subprocess.Popen(
        other, env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        code = 9
        while code != 0:
            folder = tmp_path / f"{len(found)}/tfrecord"
            print(len(found), folder, file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            assert code in (0, 1, 9)  # 1: it was a process of the crew
            found.append(folder.exists())
            if folder.exists():
                assert contents(folder) == whole
            write_form(lambda: some(12, 6), "some", "tfrecord", folder)
            assert contents(folder) == whole
            assert sorted(path.name for path in folder.parent.iterdir()) == [
                ".tfrecord.lock",
                "tfrecord",
            ]
        process.stdin.close()
    assert process.returncode == 0
    assert found.count(False) > 5 and found[-1]


def test_the_plan_refuses_too(tmp_path: Path) -> None:
    folder = tmp_path / "data/imagenet/raw"
    manifest = folder / "manifest.json"
    target.check_places({manifest: str(tmp_path / "elsewhere")})
    target.check_places({manifest: "train=20,val=10,classes=10"})
    imagenet(tmp_path / "site")
    target.check_places({manifest: str(tmp_path / "site")})
    target.check_places({manifest: None})
    imagenet(folder)
    with pytest.raises(ConfigError, match="the same folder"):
        target.check_places({manifest: str(folder)})
    with refuses(ConfigError, folder, tmp_path / "data"):
        target.check_places({manifest: str(tmp_path / "data")})
    with refuses(ConfigError, f"{folder}: ", "'train'"):
        target.check_places({manifest: str(tmp_path / "site")})


def test_a_form_of_an_overlapping_source_that_is_there_stays_usable(tmp_path: Path) -> None:
    """Somebody moved it there: nothing is to be written."""
    source = imagenet(tmp_path / "data")
    folder = tmp_path / "data/imagenet/tfrecord"
    done = prepare(
        "imagenet", "tfrecord", tmp_path / "aside/tfrecord/manifest.json", "--source", source
    )
    assert done.returncode == 0, done.stderr
    folder.parent.mkdir()
    (tmp_path / "aside/tfrecord").rename(folder)
    target.check_places({folder / "manifest.json": str(source)})
    done = prepare("imagenet", "tfrecord", folder / "manifest.json", "--source", source)
    assert (done.returncode, "already prepared" in done.stdout) == (0, True), done.stderr


# With all loaded before: another user may not be able to read this installation.
NOBODY = """
import os, sys
import filelock, multiprocessing.popen_fork, multiprocessing.queues, multiprocessing.synchronize, numpy, PIL.Image
from ddlbench.core import registry
from ddlbench.data import prepare
loaded = [registry.member(room, name) for room in ("datasets", "forms") for name in registry.members(room)]
pillow = prepare.version("pillow")
prepare.version = lambda name: pillow
os.setegid(65534)
os.seteuid(65534)
prepare.main()
"""


def as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """prepare, as a user who owns nothing."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    command = [sys.executable, "-c", NOBODY, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all may write to; pytest's own are closed to others, and it closes them
    again.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_another_users_form_is_used(public: Path) -> None:
    folder = public / "tfrecord"
    asked = ("synthetic-imagenet", "tfrecord", folder / "manifest.json", "--source")
    assert prepare(*asked, "train=8,val=2,classes=2").returncode == 0
    done = as_nobody(*asked, "train=8,val=2,classes=2")
    assert (done.returncode, "already prepared" in done.stdout) == (0, True), done.stderr
    before = everything(public)
    refused(
        as_nobody(*asked, "train=8,val=4,classes=2"), "holds another form: its source is", "rm -r "
    )
    assert everything(public) == before


def test_a_place_that_cannot_be_written_to(public: Path) -> None:
    public.chmod(0o755)
    (public / "tfrecord").mkdir()
    refused(
        as_nobody("synthetic-imagenet", "tfrecord", public / "tfrecord/manifest.json"),
        "Permission denied",
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / ".manifest.json").write_text("{}"),
        lambda folder: (folder / ".manifest.json").write_text('{"versions": {"ddlbench": "1"}}'),
        lambda folder: (folder / ".manifest.json").unlink(),
    ],
)
def test_only_a_manifest_that_can_be_read_says_so(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    folder = tmp_path / "tfrecord"
    made(folder)
    spoil(folder)
    before = contents(folder)
    with refuses(TargetError, f"{folder}: ", "not made"):
        made(folder)
    assert contents(folder) == before
