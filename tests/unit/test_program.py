"""A user's own program: its file, the lines about what is wrong in it, its digest, its value in a
run.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.core.program import Program, hide, secrets
from ddlbench.core.spec import RunSpec, of_program
from ddlbench.settings import program as program_file
from ddlbench.settings.config import ConfigError
from ddlbench.settings.program import ProgramFile, load_program, reveal

from tests.facts import refuses
from tests.unit.spoiled import bad_input

GIVEN = {
    "command": (
        "python 'my train.py' --batch {batch_per_worker} --precision {precision} --out {folder}"
    ),
    "files": ["my train.py", "net"],
    "settings": {"precision": ["bf16", "fp32"], "layers": [2, 4]},
    "sample": "tokens",
    "lines": r"step (?P<step>\d+) loss (?P<loss>\S+)",
    "resume": "--resume {folder}/last.pt",
}
VALUES = {"batch_per_worker": 8, "folder": "/a folder/out"}


def load(project: Path, **changes: Any) -> ProgramFile:
    """The program `mine` of a project with these keys changed; None leaves a key out."""
    for name, text in (("my train.py", "print()"), ("net/wide.py", "a"), ("net/deep/er.py", "b")):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        if not (project / name).exists():
            (project / name).write_text(text)
    folder = project / "config" / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    keys = {name: value for name, value in (GIVEN | changes).items() if value is not None}
    (folder / "mine.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    return load_program("mine", folder)


def spec(program: Program, **more: Any) -> RunSpec:
    size = {"workers": 2, "workers_per_node": 2, "global_batch": 16}
    return of_program(program, **{"machine": "local", "device": "cpu", **size, **more})


def test_its_settings_make_runs_and_fill_the_command(tmp_path: Path) -> None:
    programs = load(tmp_path).programs()
    settings = [dict(one.settings) for one in programs]
    assert settings == [{"precision": p, "layers": n} for p in ("bf16", "fp32") for n in (2, 4)]
    words = [
        "python",
        "my train.py",
        "--batch",
        "8",
        "--precision",
        "bf16",
        "--out",
        "/a folder/out",
    ]
    assert programs[0].argv(VALUES) == words
    assert programs[0].argv(VALUES, resumes=True) == [*words, "--resume", "/a folder/out/last.pt"]
    assert len({spec(one).id for one in programs}) == 4
    assert spec(programs[0]).id == "local-mine-precision_bf16-layers_2-2workers-bs16-r1"


@pytest.mark.parametrize(("changes", "facts"), bad_input("program"))
def test_a_wrong_key_is_one_line(tmp_path: Path, changes: str, facts: tuple[str, ...]) -> None:
    with refuses(ConfigError, f"{tmp_path}/config/programs/mine.yaml: ", *facts):
        load(tmp_path, **yaml.safe_load(changes))


def test_a_change_of_its_files_changes_its_digest_and_nothing_else_does(tmp_path: Path) -> None:
    before = load(tmp_path).digest
    (tmp_path / "net/__pycache__").mkdir()
    (tmp_path / "net/__pycache__/wide.pyc").write_text("compiled")
    (tmp_path / "other.py").write_text("c")
    assert load(tmp_path).digest == before
    (tmp_path / "net/deep/er.py").write_text("c")
    changed = load(tmp_path).digest
    (tmp_path / "net/deep/er.py").rename(
        tmp_path / "net/deep" / os.fsdecode(b"\xff.py")
    )  # no UTF-8
    assert len({before, changed, load(tmp_path).digest}) == 3


def test_its_run_is_a_value_that_comes_back_from_json(tmp_path: Path) -> None:
    modules = load(
        tmp_path, environment=["GCC/13", "PyTorch"], lines=[r"(?P<step>\d+)", r"top1 (?P<top1>\S+)"]
    )
    for program in (modules.at({"precision": "bf16", "layers": 2}), load(tmp_path).programs()[3]):
        run = spec(program, repeat=3)
        assert RunSpec.from_json(run.to_json()) == run
        columns = run.columns()
        assert columns["model"] == columns["framework"] == "mine"
        assert columns["settings"] == "precision={precision}, layers={layers}".format(
            **dict(program.settings)
        )
        assert (columns["loader"], columns["dataset"], columns["form"], columns["seed"]) == (
            "own",
            "own",
            "own",
            3,
        )


def test_a_setting_framework_is_its_framework(tmp_path: Path) -> None:
    settings = {"framework": ["fsdp"], "precision": ["bf16"], "text": ["a b/c"]}
    (program,) = load(tmp_path, settings=settings).programs()
    run = spec(program)
    assert run.framework == "fsdp" and not {"/", " "} & {*run.id}
    assert run.id != spec(load(tmp_path, settings=settings | {"text": ["a/b c"]}).programs()[0]).id


@pytest.mark.parametrize(
    ("command", "names", "shown"),
    [
        ("train --token S3CRET", (), "train --token ..."),
        ("train --hf-token=S3CRET --lr 0.1", (), "train --hf-token=... --lr 0.1"),
        (
            "env HF_TOKEN=S3CRET WANDB_API_KEY=S3 train",
            (),
            "env HF_TOKEN=... WANDB_API_KEY=... train",
        ),
        ("train --Password 'a b'", (), "train --Password ..."),
        ("train --licence S3CRET -k S", ("--licence", "k"), "train --licence ... -k ..."),
        *(
            (text, (), text)
            for text in (
                "train --tokens 512",
                "train --pad-token  x",
                "a --token {token}",
                "a --token 3",
            )
        ),
        *(
            (text, (), text)
            for text in ("train  --tokenizer t5", "train --token --fast", "--max-token=many")
        ),
    ],
)
def test_what_an_option_of_a_secret_s_name_says_is_hidden(
    command: str, names: tuple[str, ...], shown: str
) -> None:
    assert hide(command, names) == shown
    assert (secrets(command, names) != []) is (command != shown)


def test_a_secret_is_in_no_run_and_its_program_gets_it(tmp_path: Path) -> None:
    words = {
        "command": "train --token S3CRET --licence 'L 1' {folder}",
        "secret": ["--licence"],
        "settings": None,
    }
    file = load(tmp_path, **words, resume="--api-key=K")
    (program,) = file.programs()
    run = spec(program)
    assert not [word for word in ("S3CRET", "L 1", "=K") if word in run.to_json()]
    folder = tmp_path / "config/programs"
    revealed, said = reveal(program, folder)
    assert revealed.argv({"folder": "/out"}, True) == [
        *["train", "--token", "S3CRET", "--licence"],
        "L 1",
        "/out",
        "--api-key=K",
    ]
    assert said == ["S3CRET", "L 1", "K"]
    other = load(
        tmp_path,
        **words | {"command": "train --token NEW --licence 'L 1' {folder}"},
        resume="--api-key=K",
    )
    assert spec(other.programs()[0]) == run  # another token makes no run stale
    load(tmp_path, **words | {"command": "train --token S3CRET"})
    with refuses(ConfigError, "mine.yaml: command: "):
        reveal(program, folder)


def test_data_that_lies_elsewhere_makes_runs_stale_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere/corpus"
    elsewhere.mkdir(parents=True)
    (elsewhere / "a.bin").write_bytes(b"abc")
    monkeypatch.setenv("CORPUS", str(elsewhere))
    project = tmp_path / "project"

    def named(*data: str) -> RunSpec:
        return spec(load(project, data=data).programs()[0])

    before = named("$CORPUS")
    assert before.program is not None and before.program.data[0][0] == "$CORPUS"
    assert RunSpec.from_json(before.to_json()) == before and before.id == named("$CORPUS/a.bin").id
    (elsewhere / "a.bin").touch()
    assert named("$CORPUS") == before  # the same content
    (elsewhere / "b.bin").write_bytes(b"d")
    assert named("$CORPUS") != before
    monkeypatch.setattr(program_file, "MOST_BYTES", 2)
    dated = program_file.fingerprint(elsewhere)
    assert dated.startswith("date ") and program_file.fingerprint(elsewhere) == dated
    os.utime(elsewhere / "a.bin", (1, 1))
    assert program_file.fingerprint(elsewhere) != dated
    monkeypatch.setattr(program_file, "MOST_LISTED", 1)
    assert program_file.fingerprint(elsewhere).startswith("date ")


def test_a_program_without_new_keys_is_the_run_that_it_was(tmp_path: Path) -> None:
    said = spec(load(tmp_path).programs()[0]).to_json()
    assert not {"stop_after", "data", "folder"} & {*json.loads(said)["program"]}
