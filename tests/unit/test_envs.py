"""The environments of the rules pin what the local environment pins."""

import re

import pytest
import yaml

from tests.conftest import ROOT


def pins(text: str) -> dict[str, str]:
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([^\s;#]+)", text, re.M)}


REQUIREMENTS = pins((ROOT / "envs/requirements.txt").read_text())
CONSTRAINTS = pins((ROOT / "envs/constraints.txt").read_text())


@pytest.mark.parametrize("name", ["train", "analysis"])
def test_rule_environments_pin_the_same(name: str) -> None:
    environment = yaml.safe_load((ROOT / f"envs/{name}.yaml").read_text())
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    pinned = pins("\n".join(pip))
    assert len(pinned) == len(pip), "every line is a pin"
    assert pinned == {package: REQUIREMENTS.get(package) for package in pinned}


def test_constraints_agree_with_requirements() -> None:
    assert {p: CONSTRAINTS.get(p) for p in REQUIREMENTS if p not in ("cmake", "ninja", "setuptools", "wheel")} | {
        p: REQUIREMENTS[p] for p in ("cmake", "ninja", "setuptools", "wheel")
    } == REQUIREMENTS


def test_every_requirement_says_why() -> None:
    for line in (ROOT / "envs/requirements.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            assert re.search(r"==\S+ +# \w", line), line
