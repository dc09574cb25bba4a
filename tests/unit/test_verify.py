"""What `verify` finds, and names: shard and record, or class folder and file."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.data.forms import raw
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import write_form
from ddlbench.data.target import TargetError
from ddlbench.data.verify import glance, index, verify
from ddlbench.run.training import execute

from tests.builders.plans import run_spec
from tests.facts import missing, refuses
from tests.sources import Memory, some
from tests.unit.damage import CHANGED, DAMAGE, SHARD, TAR, zeroed


def test_whole_forms(forms: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(list(forms.values()), processes=2) == []
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": whole: ")[0] for line in lines] == [
        str(folder) for folder in forms.values()
    ]
    for line in lines:
        assert " 80 images" in line
        # 60 and 20 images: at least ten of each split.
        assert int(line.split(" of them decoded")[0].split()[-1]) >= 20
    assert [problem for folder in forms.values() for problem in glance(folder)] == []


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(forms: dict[str, Path], name: str) -> None:
    """By `verify` and by the look before a run."""
    damage = DAMAGE[name]
    folder = forms[damage.form]
    damage.spoil(folder)
    looks = {"verify": (verify([folder]), damage.verify), "glance": (glance(folder), damage.glance)}
    for problems, said in looks.values():
        for words in said.split("\n") if said is not None else ():
            assert any(words in problem for problem in problems), problems
            assert damage.form != "webdataset" or any(words in p and TAR in p for p in problems), (
                problems
            )
        for problem in problems:
            assert (
                str(folder) in problem
                and problem.isprintable()
                and len(problem) - len(str(folder)) < 400
            )
        if damage.form == "raw":  # no other folder
            assert len({re.findall(r"class\d", problem)[0] for problem in problems}) <= 1
    assert len(looks["verify"][0]) <= (damage.most or 99)
    assert damage.form != "tfrecord" or len(looks["glance"][0]) <= 2


def split_with(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda about: about["splits"]["train"].update(values)


FIELDS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    **{f"images {n}": (split_with(images=n), f"{n} images") for n in (24, -5, 10**30)},
    "counts": (
        split_with(images_per_class={"class0": 80, "class1": 0, "class2": -20}),
        "images_per_class",
    ),
    "true": (split_with(images=True), "True is not of type int"),
    "bytes": (split_with(bytes=10**30), "the manifest says 1000"),
    "fewer bytes": (split_with(bytes=-1), "images_per_class"),
    "format": (
        lambda about: about.update(format=99),
        "manifest.json: format is 99, expected 1; prepare",
    ),
    "label_offset": (
        lambda about: about.update(label_offset=7),
        "manifest.json: label_offset is 7",
    ),
    "a class": (lambda about: about["classes"].append("class3"), "those of classes"),
    "a class twice": (lambda about: about.update(classes=["class0"] * 3), "named twice"),
    "other classes": (lambda about: about["classes"].reverse(), "those of classes"),
    "digest": (
        lambda about: about["splits"]["val"].update(sha256={"val/class0": "0"}),
        "'0' is not a SHA-256",
    ),
    "a device": (split_with(sha256={"/dev/full": "0" * 64}), "'/dev/full' is not a part"),
    "elsewhere": (split_with(sha256={"train/../../x": "0" * 64}), "'train/../../x' is not a part"),
    "skipped": (split_with(skipped={"class9/1.png": "cut"}), "'class9/1.png' was skipped"),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_manifest_whose_fields_do_not_fit(forms: dict[str, Path], field: str) -> None:
    change, what = FIELDS[field]
    for folder in forms.values() if field in ("bytes", "format") else [forms["raw"]]:
        about = json.loads((folder / "manifest.json").read_text())
        change(about)
        for name in ("manifest.json", ".manifest.json"):
            (folder / name).write_text(json.dumps(about))
        problems = verify([folder])
        assert any(what in problem for problem in problems), problems
        assert all(str(folder) in problem for problem in problems)
        if field != "bytes":  # a run does not read as much
            assert any(what in problem for problem in glance(folder))
    if field.startswith("images"):
        with refuses(TargetError, forms["raw"], "images_per_class", "rm -r"):
            write_form(lambda: some(60, 20), "mnist5k", "raw", forms["raw"])


@pytest.mark.parametrize("thing", ["pipe", "device", "holes", "folder"])
def test_what_is_no_file_is_refused_and_not_read(forms: dict[str, Path], thing: str) -> None:
    """In the place of a shard, an index, a picture, a list or a manifest."""
    names = [
        forms["tfrecord"] / SHARD,
        forms["tfrecord"] / f"{SHARD}.idx",
        forms["raw"] / "val/class1/00004.png",
    ]
    names += [forms["webdataset"] / f"{SHARD}.tar", forms["webdataset"] / f"{SHARD}.tar.idx"]
    names += [*forms["raw"].glob(".manifest.json.*.train.files")]
    for path in names:
        before = path.read_bytes()
        path.unlink()
        if thing == "pipe":
            os.mkfifo(path)
        elif thing == "device":
            path.symlink_to("/dev/zero")
        elif thing == "holes":
            path.touch()
            os.truncate(path, 1 << 43)
        else:
            path.mkdir()
        problems = verify([path.parents[2] if path.suffix == ".png" else path.parent])
        assert any(path.name in problem for problem in problems), (path, problems)
        assert glance(path.parent) or index(path.parent) or path.suffix == ".png"
        path.rmdir() if thing == "folder" else path.unlink()
        path.write_bytes(before)


def test_a_manifest_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    (problem,) = verify([tmp_path])
    assert missing(problem, tmp_path, "manifest", "regular file") == []


def test_a_list_of_files_that_misleads(forms: dict[str, Path]) -> None:
    """Loaders would give a picture another's label, of as many files as there must be."""
    listed = raw.list_path(forms["raw"], Manifest.read(forms["raw"]), "train")
    listed.write_text(listed.read_text().replace(" 1\n", " 2\n", 1))
    (problem,) = verify([forms["raw"]])
    assert missing(problem, f"{listed}: ", "delete") == []
    listed.unlink()
    assert verify([forms["raw"]]) == []


@pytest.mark.parametrize("form", ["raw", "webdataset"])
def test_a_run_refuses_a_list_that_is_newer_than_the_form(
    forms: dict[str, Path], form: str
) -> None:
    """`verify` reads it. A list that is made again has the time of the form."""
    folder = forms[form]
    (path,) = folder.glob(".manifest.json.*.train.*")
    before = path.read_bytes()
    assert index(folder) == []
    path.write_bytes(before[::-1])
    (said,) = index(folder)
    assert missing(said, f"{path}: ", "changed", "delete", "rebuilt") == []
    path.unlink()
    assert index(folder) == []
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == (folder / ".manifest.json").stat().st_mtime_ns
    assert index(folder) == glance(folder) == verify([folder]) == []


def test_an_earlier_version_took_a_name_with_a_line_end(forms: dict[str, Path]) -> None:
    """It prepared the form, and made no lists: a run refuses it in one line."""
    (forms["raw"] / "train/class1/00001.png").rename(forms["raw"] / "train/class1/0\n1.png")
    for made in forms["raw"].glob(".manifest.json.*"):
        made.unlink()
    (problem,) = index(forms["raw"])
    assert missing(problem, f"{forms['raw']}/train/class1: ", "line break", r"'0\n1.png'") == []
    assert not list(forms["raw"].glob(".manifest.json.*"))


def test_what_a_killed_process_left_of_a_list_is_removed(forms: dict[str, Path]) -> None:
    folder = forms["raw"]
    before = sorted(path.name for path in folder.iterdir())
    whole = raw.list_path(folder, Manifest.read(folder), "val")
    whole.with_suffix(".files.node7-4711").write_text("class0/0000")
    whole.unlink()
    assert index(folder) == []
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("form", registry.members("forms"))
def test_pictures_that_cannot_be_decoded(tmp_path: Path, form: str) -> None:
    source = some(12, 6)
    train = source.samples["train"]
    source.samples["train"] = [s._replace(encoded=s.encoded[:-40]) for s in train]
    write_form(lambda: source, "some", form, tmp_path / form)
    problems = verify([tmp_path / form])
    assert len(problems) == 12
    assert all("cannot be decoded" in problem for problem in problems)


def test_forms_that_hold_different_pictures(forms: dict[str, Path]) -> None:
    shutil.rmtree(forms["tfrecord"])
    source = some(60, 20)
    less = Memory(
        {"train": source.samples["train"][:-1], "val": source.samples["val"]}, source.classes
    )
    write_form(lambda: less, "mnist5k", "tfrecord", forms["tfrecord"])
    (problem,) = verify([*forms.values()])
    assert missing(problem, forms["tfrecord"], "train", "class2", 19, forms["raw"], 20) == []


def command(*folders: Path, code: int = 1) -> list[str]:
    """What `ddlbench verify` prints; that something is wrong it says on its own lines only."""
    done = subprocess.run(
        [sys.executable, "-m", "ddlbench.commands.main", "verify", *folders],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


def change(folder: Path, **values: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_tree_that_is_gone(forms: dict[str, Path]) -> None:
    change(forms["raw"], root=str(forms["raw"] / "gone"))
    assert any(
        missing(line, f"{forms['raw']}/gone/train: ", "No such file") == []
        for line in command(forms["raw"])
    )


BAD_MANIFESTS: tuple[Any, ...] = (
    *(
        {"form": "nope"},
        {"form": ["raw"]},
        {"form": None},
        {"splits": {}},
        {"splits": []},
        {"classes": 5},
    ),
    *({"root": 5}, {"more": 1}, {"versions": "1"}, {"seed": "1"}),
    *("[]", "null", "{", "[" * 100_000, '{"classes": "ab"}'),
)


@pytest.mark.parametrize("bad", BAD_MANIFESTS, ids=lambda bad: str(bad)[:20])
def test_a_manifest_that_says_what_cannot_be(forms: dict[str, Path], bad: Any) -> None:
    if isinstance(bad, dict):
        change(forms["raw"], **bad)
    else:
        (forms["raw"] / "manifest.json").write_text(bad)
    (problem,) = verify([forms["raw"]])
    assert missing(problem, forms["raw"], "no manifest") == []
    assert problem.isprintable()


def test_an_unknown_form_is_one_line_of_the_command(forms: dict[str, Path]) -> None:
    change(forms["raw"], form="nope")
    (line,) = command(forms["raw"])
    assert missing(line, "'nope'", "raw, tfrecord, webdataset") == []


def test_names_are_printed_safely(tmp_path: Path) -> None:
    folder = tmp_path / "a\n\x1b[31mb"
    write_form(lambda: some(12, 6), "some", "raw", folder)
    (folder / "train/class0/00000.png").write_bytes(b"")
    (folder / "val/cl\nass\udcff").mkdir()
    lines = command(folder)
    assert any(r"a\n\x1b[31mb: train/class0/" in line for line in lines)
    assert any(r"cl\nass\udcff" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_the_command(forms: dict[str, Path], tmp_path: Path) -> None:
    command(*forms.values(), code=0)
    assert f"{tmp_path}/nowhere: has no manifest" in "\n".join(
        command(forms["raw"], tmp_path / "nowhere")
    )
    assert Manifest.read(forms["raw"]).dataset == "mnist5k"


@pytest.fixture
def form(forms: dict[str, Path]) -> Path:
    return forms["tfrecord"]


def test_a_form_whose_manifest_snakemake_deleted(form: Path) -> None:
    (form / "manifest.json").unlink()  # by Snakemake, which is about to prepare it again
    assert glance(form) == []
    assert glance(None) == []


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", [SHARD, TAR])
def test_sizes_are_looked_at_where_times_tell_nothing(forms: dict[str, Path], name: str) -> None:
    """A shard that was cut off, by a program that keeps times."""
    folder = forms["webdataset" if name == TAR else "tfrecord"]
    before = times(folder)
    size = sum(split.bytes for split in Manifest.read(folder).splits.values())
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    for path, time in before.items():
        os.utime(path, ns=(time, time))
    (said,) = glance(folder)
    there = sum(path.stat().st_size for path in folder.glob(name.replace("00001", "*", 1)))
    assert missing(said, "train: ", there, there + 1) == [] and there < size


@pytest.mark.parametrize("name", registry.members("forms"))
def test_a_copy_with_new_times_is_used_once_a_person_says_so(
    forms: dict[str, Path], tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "copy" / name
    shutil.copytree(forms[name], copy)
    for path in copy.rglob("*"):
        if path.name != ".manifest.json":
            os.utime(path)
    assert glance(copy) and all(CHANGED in line for line in glance(copy))
    assert verify([copy]) == []
    os.utime(copy / ".manifest.json")  # touch
    assert glance(copy) == index(copy) == []


def test_a_run_reads_no_picture_of_a_form_beforehand(forms: dict[str, Path]) -> None:
    """Nor a shard or a list: the look takes as long for large pictures as for small ones."""
    for name, folder in forms.items():
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in ("manifest.json", ".manifest.json"):
                old = path.stat().st_mtime_ns
                path.write_bytes(bytes(path.stat().st_size))
                os.utime(path, ns=(old, old))
        assert glance(folder) == index(folder) == [], name


def test_no_form(tmp_path: Path) -> None:
    (line,) = glance(tmp_path / "nowhere")
    assert line.startswith(f"{tmp_path}/nowhere: cannot be used: ")
    (tmp_path / "manifest.json").write_text("[]")
    (line,) = glance(tmp_path)
    assert missing(line, tmp_path, "manifest") == []


def test_a_run_with_damaged_data_does_not_start(
    form: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zeroed(form)
    folder = tmp_path / "runs/a"
    assert execute(run_spec(), folder, form, ["touch", str(tmp_path / "started")]) == 1
    assert not (tmp_path / "started").exists()
    failure = json.loads((folder / "failed/failure.json").read_text())
    assert failure["cause"] == "data damaged"
    assert f"{SHARD}: {CHANGED}" in failure["message"]
    assert "ddlbench verify" in capsys.readouterr().err
