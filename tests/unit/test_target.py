"""Where a form is put: nothing is replaced or removed that ddlbench did not make."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.data import target
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import write_form
from ddlbench.data.target import Target, TargetError
from ddlbench.settings.config import ConfigError

from tests.conftest import ROOT
from tests.sources import contents, some
from tests.unit.targets import FORMS, everything, imagenet, made, refused
from tests.unit.test_forms_faults import ENVIRONMENT, prepare


@pytest.mark.parametrize("form", FORMS)
def test_a_source_is_not_replaced_by_its_own_form(tmp_path: Path, form: str) -> None:
    folder = imagenet(tmp_path / "data/imagenet" / form)
    before = everything(tmp_path)
    refused(prepare("imagenet", form, folder / "manifest.json", "--source", folder), str(folder), "the same folder")
    assert everything(tmp_path) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["link to it", "link above", "relative", "above", "within", "train is a link"])
def test_however_the_source_is_named(tmp_path: Path, form: str, way: str) -> None:
    folder = tmp_path / "data/imagenet" / form
    source = imagenet(folder / "inside" if way == "within" else tmp_path / "data" if way == "above" else folder)
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
    refused(prepare("imagenet", form, folder / "manifest.json", "--source", given), "nothing was touched")
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
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    refused(done, f"{tmp_path}: was not made by ddlbench")
    assert (tmp_path / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["notes.txt", "train/notes.txt", "train/class1/notes.txt", "train/class1/mine.png"])
def test_a_form_that_holds_a_users_file_is_not_replaced(tmp_path: Path, form: str, name: str) -> None:
    folder = tmp_path / form
    made(folder, form=form)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("mine")
    before = everything(tmp_path)
    other = some(60, 20, described={"source": "another"})
    with pytest.raises(TargetError, match=r"was not made by ddlbench, but lies in a form that is to be replaced"):
        write_form(lambda: other, "some", form, folder)
    assert everything(tmp_path) == before


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    """What lies there is used; it is not replaced, nor is anything put through the link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "tfrecord").symlink_to(tmp_path / "disk")
    with pytest.raises(TargetError, match="is a symbolic link; nothing was touched"):
        made(tmp_path / "tfrecord")
    with pytest.raises(ConfigError, match="is a symbolic link; nothing was touched"):
        target.check_places({tmp_path / "tfrecord/manifest.json": None})
    assert list((tmp_path / "disk").iterdir()) == []
    (tmp_path / "disk").rmdir()
    made(tmp_path / "disk")
    before = everything(tmp_path)
    target.check_places({tmp_path / "tfrecord/manifest.json": None})
    assert made(tmp_path / "tfrecord") == Manifest.read(tmp_path / "disk")
    with pytest.raises(TargetError, match="is a symbolic link; nothing was touched"):
        made(tmp_path / "tfrecord", seed=2)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", [".tfrecord.partial", ".tfrecord.old", ".tfrecord.removed"])
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_neighbours_that_ddlbench_did_not_make_stay(tmp_path: Path, name: str, kind: str) -> None:
    mine = tmp_path / name if kind == "folder" else tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    if kind == "link":
        (tmp_path / name).symlink_to(mine)
    with pytest.raises(TargetError, match=rf"{name}: was not made by ddlbench"):
        made(tmp_path / "tfrecord")
    assert (mine / "thesis.tex").read_text() == "mine"
    assert not (tmp_path / "tfrecord").exists()


def test_the_lock_truncates_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".tfrecord.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(TargetError, match="is a symbolic link, but this name is for a lock"):
        made(tmp_path / "tfrecord")
    assert (tmp_path / "precious").read_text() == "mine"
    (tmp_path / ".tfrecord.lock").unlink()
    (tmp_path / ".tfrecord.lock").write_text("another user's")
    made(tmp_path / "tfrecord")
    assert (tmp_path / ".tfrecord.lock").read_text() == "another user's"
    (tmp_path / ".tfrecord.lock").unlink()
    os.mkfifo(tmp_path / ".tfrecord.lock")
    with pytest.raises(TargetError, match="is no file, but this name is for a lock"):
        made(tmp_path / "tfrecord", seed=2)


def test_links_under_the_names_of_hidden_files(tmp_path: Path) -> None:
    """Left by somebody in a folder that all may write to."""
    (tmp_path / "precious").write_text("mine")
    made(tmp_path / "straight")
    work = tmp_path / ".tfrecord.partial"
    made_aside = Target(tmp_path / "tfrecord")
    with made_aside.alone():
        made_aside.begin(b"{}")
    for name in ("job.json.partial", "train-00000-of-00004.partial", "train-00000-of-00004.idx.partial"):
        (work / name).symlink_to(tmp_path / "precious")
    made(tmp_path / "tfrecord")
    assert (tmp_path / "precious").read_text() == "mine"
    assert contents(tmp_path / "tfrecord") == contents(tmp_path / "straight")


def test_a_copy_that_is_its_own_forms_source_is_kept(tmp_path: Path) -> None:
    """A subset of links into a form that ddlbench made: replacing that form would remove the pictures."""
    folder = tmp_path / "data/imagenet/raw"
    source = imagenet(tmp_path / "archive", ("n01", "n02", "n03"))
    shutil.copytree(source, tmp_path / "tree")
    made(folder, form="raw")
    subset = tmp_path / "subset"
    for file in sorted((folder / "train").rglob("*.png")) + sorted((folder / "val").rglob("*.png")):
        link = subset / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    before = everything(tmp_path)
    refused(prepare("imagenet", "raw", folder / "manifest.json", "--source", subset), "is to be read, but lies in")
    assert everything(tmp_path) == before


@pytest.mark.parametrize("form", FORMS)
def test_what_ddlbench_made_is_replaced(tmp_path: Path, form: str) -> None:
    made(tmp_path / form, form=form)
    other = some(30, 10)
    write_form(lambda: other, "some", form, tmp_path / form)
    write_form(lambda: other, "some", form, tmp_path / "straight")
    assert contents(tmp_path / form) == contents(tmp_path / "straight")
    assert sorted(p.name for p in tmp_path.iterdir() if form in p.name) == [f".{form}.lock", form]


# For each line "number folder" a process, which ends without a word at its `number`th rename or removal of a file or
# folder. They are forks of one that has loaded everything, and no threads.
KILLED = """
import os, shutil, sys
from pathlib import Path
from ddlbench.data import target
from ddlbench.data.prepare import write_form
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
put = target.Target.put
def armed(self):
    for owner, name in ((Path, "rename"), (Path, "unlink"), (Path, "rmdir"), (shutil, "rmtree")):
        setattr(owner, name, counted(getattr(owner, name)))
    put(self)
target.Target.put = armed
for line in sys.stdin:
    number, folder = line.rstrip().split(" ", 1)
    left = int(number)
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # its own words are not answers
        write_form(lambda: some(12, 6), "some", "tfrecord", Path(folder), 2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_between_any_two_renames(tmp_path: Path) -> None:
    """Then either form is there, or the next call brings one back: also one that wants the old form."""
    made_of = {}
    for seed in (1, 2):
        write_form(lambda: some(12, 6), "some", "tfrecord", tmp_path / f"straight{seed}", seed)
        made_of[seed] = contents(tmp_path / f"straight{seed}")
    other = [sys.executable, "-c", KILLED]
    with subprocess.Popen(other, env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        kill_between_renames(tmp_path, made_of, process)
    assert process.returncode == 0


def kill_between_renames(tmp_path: Path, made_of: dict[int, dict[str, bytes]], process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    number = 0
    while True:
        for wanted in (1, 2):
            folder = tmp_path / f"{number}-{wanted}/tfrecord"
            write_form(lambda: some(12, 6), "some", "tfrecord", folder)
            print(number, folder, file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            assert code in (0, 9)
            if folder.exists():
                assert contents(folder) in made_of.values()
            write_form(lambda: some(12, 6), "some", "tfrecord", folder, wanted)
            assert contents(folder) == made_of[wanted]
            # Snakemake's own deed before a job: the manifest is gone.
            (folder / "manifest.json").unlink()
            assert Manifest.read(folder).seed == wanted
        if code == 0:
            break
        number += 1
    assert number > 12


def test_an_old_form_comes_back_into_a_folder_that_snakemake_made(tmp_path: Path) -> None:
    before = made(tmp_path / "tfrecord")
    (tmp_path / "tfrecord").rename(tmp_path / ".tfrecord.old")
    (tmp_path / "tfrecord").mkdir()
    assert made(tmp_path / "tfrecord") == before
    assert not (tmp_path / ".tfrecord.old").exists()


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
    with pytest.raises(ConfigError, match="one lies within the other"):
        target.check_places({manifest: str(tmp_path / "data")})
    with pytest.raises(ConfigError, match="was not made by ddlbench"):
        target.check_places({manifest: str(tmp_path / "site")})


def test_a_form_of_an_overlapping_source_that_is_there_stays_usable(tmp_path: Path) -> None:
    """Earlier versions made it: nothing is to be written."""
    source = imagenet(tmp_path / "data")
    folder = tmp_path / "data/imagenet/tfrecord"
    done = prepare("imagenet", "tfrecord", tmp_path / "aside/tfrecord/manifest.json", "--source", source)
    assert done.returncode == 0, done.stderr
    folder.parent.mkdir()
    (tmp_path / "aside/tfrecord").rename(folder)
    target.check_places({folder / "manifest.json": str(source)})
    done = prepare("imagenet", "tfrecord", folder / "manifest.json", "--source", source)
    assert (done.returncode, "is there already" in done.stdout) == (0, True), done.stderr
