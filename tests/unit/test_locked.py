"""envs/locked.py installs what the lock names, byte by byte, from small wheels in a folder that pip is pointed to."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


class Project:
    """A project whose path has a space, its lock, and a folder of wheels in the place of an index."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels, self.site = (folder / name for name in ("my project", "wheels", "site"))
        (self.folder / "envs").mkdir(parents=True)
        self.wheels.mkdir()
        shutil.copy(ROOT / "envs/locked.py", self.folder / "envs")
        self.lock: list[str] = []

    def wheel(self, name: str, version: str, needs: str = "") -> str:
        """A wheel with one module; gives its digest."""
        path = self.wheels / f"{name}-{version}-py3-none-any.whl"
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files = {
            f"{name}.py": f"version = {version!r}\n",
            f"{name}-{version}.dist-info/METADATA": about + (f"Requires-Dist: {needs}\n" if needs else ""),
            f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = f"{name}-{version}.dist-info/RECORD"
        with zipfile.ZipFile(path, "w") as wheel:
            for file, text in (files | {record: "".join(f"{file},,\n" for file in (*files, record))}).items():
                wheel.writestr(file, text)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def install(self, *names: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "envs/lock.txt").write_text("# a lock\n" + "".join(f"{line}\n" for line in self.lock))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        argv = [sys.executable, "envs/locked.py", f"--target={self.site}", *names]
        return subprocess.run(argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100)

    @property
    def installed(self) -> set[str]:
        return {path.stem for path in self.site.glob("*.py")} if self.site.exists() else set()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    inner, outer = made.wheel("inner", "1.0"), made.wheel("outer", "2.0", "inner")
    made.wheel("inner", "3.0")  # newer than the lock
    made.lock = [f"inner==1.0 --hash=sha256:{'1' * 64} --hash=sha256:{inner}", f"outer==2.0 --hash=sha256:{outer}"]
    made.lock.append(f"unused==9 --hash=sha256:{'2' * 64}")
    return made


def test_another_file_of_the_same_version_is_refused(project: Project) -> None:
    project.lock[0] = f"inner==1.0 --hash=sha256:{'1' * 64}"
    done = project.install("outer")
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert project.installed == set()


def test_what_the_lock_does_not_name_is_refused(project: Project) -> None:
    del project.lock[0]
    done = project.install("outer")
    assert (done.returncode, project.installed) == (1, set())
    assert "ERROR: inner 3.0 is not in envs/lock.txt" in done.stderr


def test_what_a_package_needs_comes_in_the_version_of_the_lock_and_torch_as_pip_has_it(project: Project) -> None:
    project.wheel("torch", "2.13.0+cpu")
    project.lock.append(f"torch==2.13.0 --hash=sha256:{'3' * 64}")
    done = project.install("torch", "outer")
    assert (done.returncode, project.installed) == (0, {"torch", "inner", "outer"}), done.stderr
    assert done.stdout.startswith("note: torch 2.13.0+cpu has no hash in envs/lock.txt; it is file:")
    assert (project.site / "inner.py").read_text() == "version = '1.0'\n"


def test_a_label_is_for_torch_alone(project: Project) -> None:
    project.wheel("inner", "1.0+better")
    done = project.install("outer")
    assert (done.returncode, project.installed) == (1, set())
    assert "ERROR: inner 1.0+better is not in envs/lock.txt" in done.stderr
