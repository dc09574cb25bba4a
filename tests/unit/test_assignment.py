"""What the supervisor tells the ranks, and when a run goes on from what an earlier try left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.core.record import STEP_COLUMNS
from ddlbench.run import __main__ as supervisor
from ddlbench.train import checkpoint
from ddlbench.train.assignment import FILE, Assignment

from tests.specs import run_spec

SPEC = run_spec(machine="local", options=(("bucket_mb", 5), ("name", [1, {"a": None}])))
DATA = Path("results/data/mnist5k/raw")


def leave(folder: Path, spec: object = SPEC, data: Path | None = DATA) -> None:
    """An earlier try with a checkpoint."""
    folder.mkdir(parents=True)
    Assignment(folder, spec, data, {"host": "here"}, None, 30.0).write()  # type: ignore[arg-type]
    (folder / "failure-1.json").write_text("{}")
    (folder / checkpoint.FOLDER / "000000007").mkdir(parents=True)
    (folder / checkpoint.FOLDER / "000000007" / checkpoint.SUMMARY).write_text(
        json.dumps({"format": checkpoint.FORMAT, "step_columns": [*STEP_COLUMNS], "step": 7})
    )


def test_ranks_read_what_the_supervisor_wrote(tmp_path: Path) -> None:
    told = Assignment(tmp_path, SPEC, None, {"host": "here"}, 2, None, keep_weights=True)
    told.write()
    assert Assignment.read(tmp_path) == told


@pytest.mark.parametrize("name", [".partial", "failed"])
def test_the_same_run_goes_on_from_its_checkpoint(tmp_path: Path, name: str) -> None:
    leave(tmp_path / name)
    saved = supervisor._prepare_folder(tmp_path, tmp_path / ".partial", SPEC, DATA)
    assert saved == tmp_path / ".partial" / checkpoint.FOLDER / "000000007"
    assert [path.name for path in (tmp_path / ".partial").iterdir()] == [checkpoint.FOLDER]


@pytest.mark.parametrize("content", [None, "", "{", "{}", "[]", json.dumps({"spec": {}, "data": None})])
def test_what_cannot_be_read_is_not_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    """What is there and cut off is said, in one line."""
    leave(tmp_path / ".partial")
    if content is None:
        (tmp_path / ".partial" / FILE).unlink()
    else:
        (tmp_path / ".partial" / FILE).write_text(content)
    assert supervisor._prepare_folder(tmp_path, tmp_path / ".partial", SPEC, DATA) is None
    assert list((tmp_path / ".partial").iterdir()) == []
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in said] == [f"{tmp_path}/.partial/{FILE}"] * (content is not None)


def test_another_run_or_other_data_begin_anew(tmp_path: Path) -> None:
    for number, (spec, data) in enumerate(((replace(SPEC, epochs=9), DATA), (SPEC, Path("elsewhere")), (SPEC, None))):
        folder = tmp_path / str(number)
        leave(folder / ".partial", spec, data)
        assert supervisor._prepare_folder(folder, folder / ".partial", SPEC, DATA) is None
