"""The pins of the install: requirements and constraints agree, and every requirement says why it is there."""

import re

from tests.conftest import ROOT


def pins(text: str) -> dict[str, str]:
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([^\s;#]+)", text, re.M)}


REQUIREMENTS = pins((ROOT / "envs/requirements.txt").read_text())
CONSTRAINTS = pins((ROOT / "envs/constraints.txt").read_text())
# Pinned in requirements.txt alone.
BUILD_TOOLS = {"setuptools", "wheel"}


def test_constraints_agree_with_requirements() -> None:
    constrained = {package: CONSTRAINTS.get(package) for package in REQUIREMENTS if package not in BUILD_TOOLS}
    assert constrained == {package: pin for package, pin in REQUIREMENTS.items() if package not in BUILD_TOOLS}


def test_every_requirement_says_why() -> None:
    for line in (ROOT / "envs/requirements.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            assert re.search(r"==\S+ +# \w", line), line
