"""The pins of the install: requirements and lock agree, and every requirement says why it is
there.
"""

import re
from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT


def pins(text: str) -> dict[str, str]:
    return {
        name.lower().replace("_", "-"): version
        for name, version in re.findall(r"^([\w.-]+)==([^\s;#]+)", text, re.M)
    }


REQUIREMENTS = pins((ROOT / "envs/requirements.txt").read_text())
LOCK = (ROOT / "envs/lock.txt").read_text()
LOCKED = pins(LOCK)


def test_the_lock_agrees_with_requirements() -> None:
    assert {package: LOCKED.get(package) for package in REQUIREMENTS} == REQUIREMENTS


def test_every_package_of_the_lock_has_digests_and_no_index() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert len(lines) == len(LOCKED) > 150
    assert [
        line[:80]
        for line in lines
        if not re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line)
    ] == []
    assert "/" not in "".join(lines)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_has_what_its_packages_need_on_each_python(python: str) -> None:
    """Some need a package on one Python only: the install failed under 3.13, for want of
    pyyaml-ft.
    """
    found = {one.metadata["Name"].lower().replace("_", "-"): one for one in distributions()}
    given = {"python_version": python, "python_full_version": f"{python}.1", "extra": ""}
    needs = [
        Requirement(need) for name in LOCKED if name in found for need in found[name].requires or ()
    ]
    wanted = {
        need.name.lower().replace("_", "-")
        for need in needs
        if not need.marker or need.marker.evaluate(given)
    }
    assert len(wanted) > 100
    assert sorted(wanted - LOCKED.keys()) == []
