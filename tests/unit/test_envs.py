"""The pins of the install: requirements and lock agree, and every requirement says why it is
there.
"""

import ast
import re
from importlib import import_module
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

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


@pytest.mark.parametrize(
    "script", sorted((ROOT / "examples").rglob("get.sh")), ids=lambda path: path.parent.name
)
def test_what_the_scripts_of_examples_import_is_there(script: Path) -> None:
    """Of their parts for this environment's Python: `"$python" - <<'PYTHON'`."""
    parts = re.findall(
        r'"\$python" - .*?<<\'PYTHON\'\n(.*?)\nPYTHON\n', script.read_text(), re.DOTALL
    )
    imports = [node for part in parts for node in ast.walk(ast.parse(part))]
    modules = {
        alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names
    }
    names = {
        (node.module, alias.name)
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    missing = {
        name for name in modules | {module for module, _ in names} if find_spec(name) is None
    }
    assert not missing
    ours = {(module, name) for module, name in names if module.startswith("ddlbench")}
    assert all(
        hasattr(import_module(module), name) or find_spec(f"{module}.{name}")
        for module, name in ours
    )
