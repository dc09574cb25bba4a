"""How files under config/ are read: hard or hostile YAML ends in one line, text stays text, and
data have a source.
"""

import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import ConfigError, read_yaml, typed
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config

from tests.facts import missing, refuses
from tests.unit.spoiled import Files, bad_input


@pytest.mark.parametrize("kind", ["study", "machine", "recipe", "config"])
@pytest.mark.parametrize(("text", "facts"), bad_input("no mapping"))
def test_a_file_that_is_no_mapping(
    files: Files, kind: str, text: str, facts: tuple[str, ...]
) -> None:
    files.spoil("study", "recipe: demo", "recipe: mine")
    files.path[kind].write_text(text, encoding="utf-8")
    message = files.complaint()
    assert message.startswith(f"{files.path[kind]}: ")
    assert missing(message, *facts) == []


def bomb() -> str:
    """Ten levels of ten aliases each: 10^10 values."""
    levels = ["&a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"&a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "[" + ", ".join(levels) + "]"


# Text of a title, then what is said of it: these hung, ended in a traceback, or were taken for
# something else.
HARD_TO_READ = [
    (bomb(), "100000 values"),
    ("[" * 5000 + "]" * 5000, "50 levels"),
    ("[" * 60 + "]" * 60, "50 levels"),
    ("[" * 130_000 + "]" * 130_000, "50 levels"),
    ("9" * 400, "18 digits"),
    ("9" * 5000, "18 digits"),
    ("x" * 300_000, "300"),
]


@pytest.mark.parametrize(
    ("text", "says"), HARD_TO_READ, ids=[text[:20] for text, _ in HARD_TO_READ]
)
def test_what_is_hard_to_read_is_refused_at_once(files: Files, text: str, says: str) -> None:
    study = files.path["study"].read_text(encoding="utf-8")
    files.path["study"].write_text(
        study.replace("title: A study", f"title: {text}", 1), encoding="utf-8"
    )
    before, began = sys.getrecursionlimit(), time.process_time()
    sys.setrecursionlimit(2**14)  # as mypy does, and others
    said = files.complaint()
    sys.setrecursionlimit(before)
    assert said.startswith(f"{files.path['study']}: ") and says in said
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("2024-13-45", "2024-13-45"),
        ("1:60", "1:60"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("On", "On"),
        ("'010'", "010"),
        ("'1:30'", "1:30"),
        ("999999999999999999", 10**18 - 1),
        ("<<", "<<"),
        ("0x10", 16),
        ("0o10", 8),
        ("1e-4", 0.0001),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-7", -7),
        ("~", None),
        ("True", True),
        ("{1: a, no: b, ~: c, 1.50: d}", {"1": "a", "no": "b", "~": "c", "1.50": "d"}),
    ],
)
def test_words_mean_what_they_look_like(tmp_path: Path, text: str, value: object) -> None:
    """YAML 1.2: dates, times and `no` are text, as all keys are."""
    (tmp_path / "a.yaml").write_text(f"a: {text}\n", encoding="utf-8")
    assert read_yaml(tmp_path / "a.yaml") == {"a": value}


@pytest.mark.parametrize("text", ["010", "-010", "00", "1:30", "12:30:45.5", "1000000000000000000"])
def test_numbers_that_readers_of_yaml_take_for_others_are_refused(
    tmp_path: Path, text: str
) -> None:
    """In YAML 1.1, as which Snakemake reads config.yaml, 010 is 8 and 1:30 is 90."""
    (tmp_path / "a.yaml").write_text(f"a:\n  b: [1, {text}]\n", encoding="utf-8")
    with refuses(ConfigError, f'a.yaml: a.b.1: "{text}" '):
        read_yaml(tmp_path / "a.yaml")


def merges() -> str:
    """Twenty levels, each of which merges the one before ten times."""
    return "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 20)
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {x: [1]}\nb: *a\n", {"a": {"x": [1]}, "b": {"x": [1]}}),
        ("a: {<<: [{x: 1, y: 1}, {x: 2, z: 2}], z: 3}\n", {"a": {"x": 1, "y": 1, "z": 3}}),
        (merges(), {f"a{n}": {"x": 1} for n in range(20)}),
    ],
)
def test_aliases_and_merges(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    made = read_yaml(tmp_path / "a.yaml")
    assert made == value
    assert len({id(inner) for inner in made.values()}) == len(
        made
    )  # a change of one is no change of the other


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: {<<: {x: 1, x: 2}}", "lines 1 and 1"),
        ("a: {<<: 1}", "<< takes a mapping"),
        ("a: &s {b: *s}", "line 1, column 4: "),
        (
            "a: " + "".join(f"&a{n} [*a{n - 1}], " if n else "[&a0 [x], " for n in range(60)) + "]",
            "is nested too deeply",
        ),
        ("? [a]\n: b", "line 1, column 3: "),
        ("a: *b", "line 1, column 4: "),
        ("a: 1\n---\nb: 2\n", "is not YAML: line 2, column 1: "),
        ('a: "\\UFFFFFFFF"', "is not YAML: "),
        ("a: !!str 5", "line 1, column 4: !!str"),
        ("a: !mine 5", "line 1, column 4: !mine"),
    ],
)
def test_what_yaml_can_say_and_no_file_may(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_yaml(tmp_path / "a.yaml")
    assert str(error.value).startswith(f"{tmp_path}/a.yaml: ") and says in str(error.value)


def test_variables_keep_their_names(files: Files) -> None:
    files.spoil("machine", "{A: b}", "{NO: 1, A: b, ON: 010x, y: yes}")
    assert files.machine().environment == (("A", "b"), ("NO", "1"), ("ON", "010x"), ("y", "yes"))


def test_anchors_and_merges_are_not_taken_for_repetitions(files: Files) -> None:
    text = "a: &a {x: 1, y: 2}\nb: {c: &c {<<: *a, x: 3}}\nd: {<<: *c, y: 4}\n"
    files.path["config"].write_text(text, encoding="utf-8")
    assert read_yaml(files.path["config"])["d"] == {"x": 3, "y": 4}


def test_a_file_that_is_not_text(files: Files) -> None:
    files.path["study"].write_bytes(b"title: \xff\xfe\n")
    assert f"{files.path['study']}: cannot be read: " in files.complaint()


def test_a_folder_where_a_file_should_be(files: Files) -> None:
    files.path["study"].unlink()
    files.path["study"].mkdir()
    assert f"{files.path['study']}: cannot be read: " in files.complaint()


@pytest.mark.parametrize(
    ("key", "folder", "right"), [("study", "studies", "demo"), ("machine", "machines", "local")]
)
def test_a_missing_file(files: Files, key: str, folder: str, right: str) -> None:
    files.spoil("config", f"{key}: mine", f"{key}: {right}x")
    message = files.complaint()
    assert message.startswith(f"{files.folder / folder / right}x.yaml: no such file; ")
    assert missing(message, f"{right}?", f"ddlbench new {key} {right}x") == []


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_study("mine", tmp_path / "studies")


@pytest.mark.parametrize("text", ["it's", 'a "b"', "$(touch x)", "a b", "`id`; rm -r x", "{a}"])
def test_hostile_text_is_only_text(files: Files, text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    files.spoil("study", "title: A study", f"title: {quoted}")
    files.spoil("machine", "CPU core", quoted)
    if "{" not in text:
        files.spoil("machine", "results/data", quoted)
        assert files.machine().data == text
    study, machine = load_study("mine", files.folder / "studies"), files.machine()
    assert (study.title, machine.device_name) == (text, text)
    calm = make_plan(study, replace(machine, device_name="x", data="x"))
    assert list(make_plan(study, machine).runs) == list(calm.runs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${SET}/a", "here/a"),
        ("$SET/a", "here/a"),
        ("${SET:-there}/a", "here/a"),
        ("${UNSET:-there}/a", "there/a"),
        ("${UNSET:-}/a", "/a"),
        ("~/a", "/home/x/a"),
        ("~", "/home/x"),
        ("a~/b", "a~/b"),
        ("a$/b$(touch x)", "a$/b$(touch x)"),
        ("${SET:-$(touch x)}", "here"),
    ],
)
def test_variables_in_data(
    files: Files, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.setenv("SET", "here")
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.delenv("UNSET", raising=False)
    files.spoil("machine", "results/data", f"'{text}'")
    assert files.machine().data == expected


def test_values_of_the_command_line_are_those_of_a_file() -> None:
    """Snakemake reads `--config 'checkpoint={minutes: 10}'` with all values as text."""
    given = {
        "minutes": "10",
        "epochs": "null",
        "bandwidth": ["0.5", "2", "1e-1", "<<"],
        "model": "resnet18",
        "as": "3 x",
    }
    made = typed(given)
    assert made == {
        "minutes": 10,
        "epochs": None,
        "bandwidth": [0.5, 2, 0.1, "<<"],
        "model": "resnet18",
        "as": "3 x",
    }
    assert typed(10) == 10 and typed(None) is None
    with pytest.raises(ConfigError, match="--config: "):
        typed("010")


FILE = "config/config.yaml"


def checked(data: dict[str, Any]) -> dict[str, Any]:
    return check_config({"study": "demo", "machine": "local", **data}, FILE)["data"]


def test_what_is_left_out_has_its_default() -> None:
    assert checked({}) == {"on_error": "stop", "sources": {}}
    assert checked({"data": {"on_error": "skip"}}) == {"on_error": "skip", "sources": {}}
    assert checked({"data": {"sources": {"imagenet": "/d"}}}) == {
        "on_error": "stop",
        "sources": {"imagenet": "/d"},
    }


def test_every_data_set_may_have_a_source() -> None:
    checked({"data": {"sources": dict.fromkeys(registry.members("datasets"), "/d")}})


def test_a_source_may_name_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("SET", "/data")
    given = {"imagenet": "~/ILSVRC2012", "mnist": "$SET/mnist"}
    assert checked({"data": {"sources": given}})["sources"] == {
        "imagenet": "/home/x/ILSVRC2012",
        "mnist": "/data/mnist",
    }


def test_helpers_are_no_data_sets() -> None:
    files = {path.name for path in registry.folder("datasets").glob("*.py")}
    helpers = {name for name in files if name.startswith("_")}
    assert len(helpers) > 4
    assert {
        registry.path("datasets", name).name for name in registry.members("datasets")
    } == files - helpers


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({1: 2}, "1: unknown key"),
        ({None: 2, True: 3}, "(None|True): unknown key"),
        ({"max_gpu_hours": 10**400}, r"max_gpu_hours: 10{199}\.\.\. .*2\^63"),
        ({"max_gpu_hours": 10**5000}, ".* 4300 digits"),
        ({"max_gpu_hours": float("nan")}, "max_gpu_hours: NaN "),
        ({"account": date(2024, 1, 1)}, 'account: "2024-01-01" .*text'),
        ({"data": {"sources": {1: "x", None: "y"}}}, "data.sources.(1|None): unknown data set"),
    ],
)
def test_what_yaml_1_1_makes_of_words_is_one_line(config: dict[Any, Any], complaint: str) -> None:
    """Snakemake reads config.yaml and the command line as YAML 1.1: keys may be numbers, values
    dates.
    """
    with pytest.raises(ConfigError, match=rf"^{FILE}: {complaint}"):
        checked(config)
