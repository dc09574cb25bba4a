"""envs/install.sh says what is missing, and of a step that fails what to do; nothing is installed here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TOOLS = ("bash", "cat", "date", "dirname", "env", "git", "grep", "head", "make", "mkdir", "tail", "touch")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the script reads, and a PATH with the tools that it calls, g++ not among them."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "envs/install.sh", tmp_path / "envs")
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def install(project: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    script, environment = str(project / "envs/install.sh"), {"PATH": str(project / "bin"), "PYTHON": python}
    return subprocess.run([script], env=environment, capture_output=True, text=True, timeout=60)


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def failing(project: Path, said: str) -> subprocess.CompletedProcess[str]:
    """With a .venv whose pip fails after it has said something."""
    executable(project / "bin/g++", "#!/bin/bash\n")
    pip = f'[ "$4" = --version ] && exit 0\nprintf "{said}"\nexit 1\n'
    executable(project / ".venv/bin/python", f"#!/bin/bash\n{pip}")
    return install(project)


def test_a_missing_compiler_is_named_with_its_package(project: Path) -> None:
    done = install(project)
    assert done.returncode == 1
    assert done.stderr == "missing: g++. On Debian or Ubuntu: apt-get install g++\n"
    assert not (project / ".venv").exists()


def test_another_python_is_refused(project: Path) -> None:
    done = install(project, python="/bin/false")
    assert done.returncode == 1
    assert "needs Python 3.11 or 3.12 ('/bin/false' is neither)" in done.stderr
    assert not (project / ".venv").exists()


def test_a_failed_step_shows_its_errors_without_warnings_and_says_what_to_do(project: Path) -> None:
    warnings = "".join(f"WARNING: place {n} is ignored\\n" for n in range(30))
    done = failing(project, f"{warnings}ERROR: No matching distribution found for torch\\n{warnings}")
    assert done.returncode == 1
    steps = done.stdout.splitlines()
    assert [line[:11] for line in steps] == ["install 1/6", "install 2/6"]
    assert steps[1].endswith(" ... failed")
    assert "ERROR: No matching distribution found for torch" in done.stderr
    assert "WARNING" not in done.stderr
    assert "install stopped at step 2" in done.stderr
    assert "A package could not be fetched" in done.stderr
    assert (project / ".venv/install.log").read_text().count("WARNING") == 60
    assert not (project / ".venv/.installed").exists()


def test_a_full_disk_is_said(project: Path) -> None:
    assert "The disk is full" in failing(project, "OSError: [Errno 28] No space left on device\\n").stderr


def test_an_error_that_is_not_known_is_shown(project: Path) -> None:
    stderr = failing(project, "something else\\n").stderr
    assert "something else" in stderr
    assert "All of it: .venv/install.log" in stderr
