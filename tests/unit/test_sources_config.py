"""`data` of config/config.yaml."""

from datetime import date
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.settings.config import ConfigError
from ddlbench.settings.workflow import check_config

FILE = "config/config.yaml"


def checked(data: dict[str, Any]) -> dict[str, Any]:
    return check_config({"study": "demo", "machine": "local", **data}, FILE)["data"]


def test_what_is_left_out_has_its_default() -> None:
    assert checked({}) == {"on_error": "stop", "sources": {}}
    assert checked({"data": {"on_error": "skip"}}) == {"on_error": "skip", "sources": {}}
    assert checked({"data": {"sources": {"imagenet": "/d"}}}) == {"on_error": "stop", "sources": {"imagenet": "/d"}}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"on_error": "ignore"}, 'data.on_error: "ignore" is not allowed; allowed: skip, stop'),
        ({"source": {}}, r"data.source: unknown key; .*did you mean sources\?"),
        ({"sources": {"imagenet": ["/d"]}}, r"data.sources.imagenet: .* allowed: text"),
        ({"sources": {"imagenet": ""}}, r"data.sources.imagenet: .* at least 1 character"),
        (None, "data: null is not allowed"),
    ],
)
def test_a_wrong_value_is_told(data: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{FILE}: {complaint}"):
        checked({"data": data})


def test_a_source_of_no_data_set_is_told() -> None:
    checked({"data": {"sources": dict.fromkeys(registry.members("datasets"), "/d")}})
    with pytest.raises(ConfigError, match=r"data\.sources\.imagnet: unknown data set; .*did you mean imagenet\?"):
        checked({"data": {"sources": {"imagnet": "/d"}}})


def test_a_source_may_name_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("SET", "/data")
    monkeypatch.delenv("UNSET", raising=False)
    given = {"imagenet": "~/ILSVRC2012", "mnist": "$SET/mnist"}
    assert checked({"data": {"sources": given}})["sources"] == {
        "imagenet": "/home/x/ILSVRC2012",
        "mnist": "/data/mnist",
    }
    with pytest.raises(ConfigError, match=r"data\.sources\.imagenet: .* the environment has no UNSET: set it"):
        checked({"data": {"sources": {"imagenet": "$UNSET/x"}}})


def test_helpers_are_no_data_sets() -> None:
    files = {path.name for path in registry.folder("datasets").glob("*.py")}
    helpers = {name for name in files if name.startswith("_")}
    assert len(helpers) > 4
    assert {registry.path("datasets", name).name for name in registry.members("datasets")} == files - helpers


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({1: 2}, "1: unknown key"),
        ({None: 2, True: 3}, "(None|True): unknown key"),
        ({"max_gpu_hours": 10**400}, r"max_gpu_hours: 10{199}\.\.\. is not allowed; allowed: .*, below 2\^63"),
        ({"max_gpu_hours": 10**5000}, "has a number of more than 4300 digits"),
        ({"max_gpu_hours": float("nan")}, "max_gpu_hours: NaN is not allowed"),
        ({"account": date(2024, 1, 1)}, 'account: "2024-01-01" is not allowed; allowed: text'),
        ({"data": {"sources": {1: "x", None: "y"}}}, "data.sources.(1|None): unknown data set"),
    ],
)
def test_what_yaml_1_1_makes_of_words_is_one_line(config: dict[Any, Any], complaint: str) -> None:
    """Snakemake reads config.yaml and the command line as YAML 1.1: keys may be numbers, values dates."""
    with pytest.raises(ConfigError, match=rf"^{FILE}: {complaint}"):
        checked(config)
