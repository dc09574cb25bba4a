"""What installs: wheels byte by byte as the lock names them, and of a step that fails what to
do.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.facts import missing

TOOLS = (
    "bash",
    "cat",
    "date",
    "dirname",
    "env",
    "git",
    "grep",
    "head",
    "make",
    "mkdir",
    "tail",
    "touch",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the script reads, and a PATH with the tools that it calls, g++ not among them."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "envs/install.sh", tmp_path / "envs")
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def install(
    project: Path, python: str = sys.executable, **more: str
) -> subprocess.CompletedProcess[str]:
    script, environment = (
        str(project / "envs/install.sh"),
        {"PATH": str(project / "bin"), "PYTHON": python, **more},
    )
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


def test_a_failed_step_shows_its_errors_without_warnings_and_says_what_to_do(project: Path) -> None:
    warnings = "".join(f"WARNING: place {n} is ignored\\n" for n in range(30))
    done = failing(
        project, f"{warnings}ERROR: No matching distribution found for torch\\n{warnings}"
    )
    assert done.returncode == 1
    steps = done.stdout.splitlines()
    assert [line[:11] for line in steps] == ["install 1/6", "install 2/6"]
    assert steps[1].endswith(" ... failed")
    assert missing(done.stderr, "No matching distribution", "torch") == []
    assert "WARNING" not in done.stderr
    assert missing(done.stderr, "step 2", "package", "fetched") == []

    assert (project / ".venv/install.log").read_text().count("WARNING") == 60
    assert not (project / ".venv/.installed").exists()


def test_a_full_disk_is_said(project: Path) -> None:
    full = "OSError: [Errno 28] No space left on device\\n"
    assert missing(failing(project, full).stderr, "disk is full") == []


def test_an_error_that_is_not_known_is_shown(project: Path) -> None:
    stderr = failing(project, "something else\\n").stderr
    assert "something else" in stderr
    assert missing(stderr, ".venv/install.log") == []


def test_horovod_can_be_left_out_and_added_later(project: Path) -> None:
    """The script that builds it is not there: where it is asked for, the install stops."""
    executable(project / "bin/g++", "#!/bin/bash\n")
    executable(project / ".venv/bin/python", f'#!/bin/bash\necho "$@" >>{project}/said\n')
    (project / "envs/requirements.txt").write_text("numpy==1\n")
    shutil.copy(ROOT / "Makefile", project)
    (project / "pyproject.toml").touch()
    for name in ("rm", "sort"):
        (project / f"bin/{name}").symlink_to(str(shutil.which(name)))
    done = install(project, HOROVOD="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line[:11] for line in done.stdout.splitlines()] == [
        f"install {n}/5" for n in range(1, 6)
    ]
    said = (project / "said").read_text()
    assert "uninstall -q -y horovod" in said and "-m compileall" in said

    def asks(*words: str) -> bool:
        command = ["make", "-n", "install", *words]
        return (
            "install.sh"
            in subprocess.run(command, cwd=project, capture_output=True, text=True).stdout
        )

    assert (asks(), asks("HOROVOD=0"), asks("HOROVOD=1")) == (False, False, True)
    assert asks("TORCH=site")
    refused = install(project, TORCH="site")
    assert refused.returncode == 1 and missing(refused.stderr, "TORCH=site", "make clean") == []
    gpus = project / ".venv/.installed-gpu"
    gpus.write_text("cuda120\n")
    assert (asks("GPU=1", "DALI=cuda120"), asks("GPU=1", "DALI=cuda130")) == (False, True)
    gpus.unlink()
    assert install(project).returncode == 0  # as it was
    again = install(project, HOROVOD="1")
    assert again.returncode == 1
    assert missing(again.stderr, "step 5", "Horovod") == []
    assert "make install HOROVOD=0" in again.stderr


@pytest.mark.parametrize("home", [None, "readonly", "own"])
def test_packages_of_a_module_and_a_home_that_is_not_there_disturb_no_install(
    project: Path, home: str | None
) -> None:
    """Python modules of clusters set PYTHONPATH: `pip check` judged their packages, too."""
    executable(project / "bin/g++", "#!/bin/bash\n")
    says = f'echo "<$PYTHONPATH> $XDG_CACHE_HOME" >>{project}/said\n'
    executable(project / ".venv/bin/python", f"#!/bin/bash\n{says}")
    (project / "envs/requirements.txt").write_text("numpy==1\n")
    given = {"PYTHONPATH": "/module/site-packages", "HOROVOD": "0"}
    if home:
        given["HOME"] = str(project / home)
        (project / home).mkdir()
    if home == "readonly":  # also for root
        (project / home / ".cache").touch()
    assert install(project, **given).returncode == 0
    elsewhere = "" if home == "own" else f"{project}/.venv/cache"
    assert {*(project / "said").read_text().splitlines()} == {f"<> {elsewhere}"}


class Project:
    """A project whose path has a space, its lock, and a folder of wheels in the place of an
    index.
    """

    def __init__(self, folder: Path, installer: str) -> None:
        self.installer, self.python = installer, sys.executable
        self.folder, self.wheels, self.site = (
            folder / name for name in ("my project", "wheels", "site")
        )
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
            f"{name}-{version}.dist-info/METADATA": (
                about + (f"Requires-Dist: {needs}\n" if needs else "")
            ),
            f"{name}-{version}.dist-info/WHEEL": (
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            ),
        }
        record = f"{name}-{version}.dist-info/RECORD"
        with zipfile.ZipFile(path, "w") as wheel:
            for file, text in (
                files | {record: "".join(f"{file},,\n" for file in (*files, record))}
            ).items():
                wheel.writestr(file, text)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def install(self, *names: str, **more: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "envs/lock.txt").write_text(
            "# a lock\n" + "".join(f"{line}\n" for line in self.lock)
        )
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PIP_")
        }
        environment |= {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.wheels.as_uri(),
        }
        (self.folder / "allowed.txt").write_text("torch<=2.14.1\n")  # as a site may have it
        environment |= {"INSTALLER": self.installer, "PIP_CONSTRAINT": "allowed.txt"} | more
        target = (
            [f"--target={self.site}"] if self.python == sys.executable else []
        )  # else into its environment
        argv = [self.python, "envs/locked.py", *target, *names]
        return subprocess.run(
            argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100
        )

    @property
    def installed(self) -> set[str]:
        return {path.stem for path in self.site.glob("*.py")} if self.site.exists() else set()


@pytest.fixture(params=["pip", "uv"])
def locked(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    if request.param == "uv" and not Path(sys.executable).with_name("uv").exists():
        pytest.skip("uv is not installed beside this Python: make install")
    made = Project(tmp_path, request.param)
    inner, outer = made.wheel("inner", "1.0"), made.wheel("outer", "2.0", "inner")
    made.wheel("inner", "3.0")  # newer than the lock
    made.lock = [
        f"inner==1.0 --hash=sha256:{'1' * 64} --hash=sha256:{inner}",
        f"outer==2.0 --hash=sha256:{outer}",
    ]
    made.lock.append(f"unused==9 --hash=sha256:{'2' * 64}")
    return made


def test_another_file_of_the_same_version_is_refused(locked: Project) -> None:
    locked.lock[0] = f"inner==1.0 --hash=sha256:{'1' * 64}"
    done = locked.install("outer")
    assert done.returncode == 1
    assert {"pip": "MATCH THE HASHES", "uv": "Hash mismatch"}[locked.installer] in done.stderr
    assert locked.installed == set()


def test_what_the_lock_does_not_name_is_refused(locked: Project) -> None:
    del locked.lock[0]
    done = locked.install("outer")
    assert (done.returncode, locked.installed) == (1, set())
    assert missing(done.stderr, "ERROR", "inner 3.0", "envs/lock.txt") == []


def test_what_a_package_needs_comes_in_the_version_of_the_lock_and_torch_as_pip_has_it(
    locked: Project,
) -> None:
    locked.wheel("torch", "2.13.0+cpu")
    locked.lock.append(f"torch==2.13.0 --hash=sha256:{'3' * 64}")
    done = locked.install("torch", "outer")
    assert (done.returncode, locked.installed) == (0, {"torch", "inner", "outer"}), done.stderr
    assert missing(done.stdout, "note", "torch 2.13.0+cpu", "envs/lock.txt") == []
    assert (locked.site / "inner.py").read_text() == "version = '1.0'\n"


def test_a_label_is_for_torch_alone(locked: Project) -> None:
    locked.wheel("inner", "1.0+better")
    done = locked.install("outer")
    assert (done.returncode, locked.installed) == (1, set())
    assert missing(done.stderr, "ERROR", "inner 1.0+better", "envs/lock.txt") == []


@pytest.mark.more
def test_a_wheelhouse_has_what_is_installed_from_it_without_any_other_place(
    locked: Project, tmp_path: Path
) -> None:
    """Under a path with a space; nothing is installed where it is filled."""
    brought = tmp_path / "my wheelhouse"
    done = locked.install("outer", f"--wheelhouse={brought}")
    assert (done.returncode, locked.installed) == (0, set()), done.stderr
    assert {path.name for path in brought.iterdir()} == {
        "inner-1.0-py3-none-any.whl",
        "outer-2.0-py3-none-any.whl",
    }
    locked.wheels.rename(tmp_path / "gone")
    locked.wheels = brought
    again = locked.install("outer")
    assert (again.returncode, locked.installed) == (0, {"inner", "outer"}), again.stderr


def test_a_file_with_another_digest_is_not_brought(locked: Project, tmp_path: Path) -> None:
    locked.lock[0] = f"inner==1.0 --hash=sha256:{'1' * 64}"
    done = locked.install("outer", f"--wheelhouse={tmp_path / 'brought'}")
    assert done.returncode == 1
    assert "MATCH THE HASHES" in done.stderr


@pytest.mark.more
def test_an_install_from_a_wheelhouse_leaves_all_other_places_aside(project: Path) -> None:
    executable(project / "bin/g++", "#!/bin/bash\n")
    asked = (
        "PIP_FIND_LINKS",
        "PIP_NO_INDEX",
        "PIP_CONFIG_FILE",
        "PIP_EXTRA_INDEX_URL",
        "PIP_INDEX_URL",
        "UV_OFFLINE",
    )
    says = "".join(f'echo "{name}=${{{name}-unset}}"\n' for name in asked)
    executable(project / ".venv/bin/python", f"#!/bin/bash\n({says}) >{project}/said\nexit 1\n")
    (project / "my wheels").mkdir()
    missing = install(project, WHEELHOUSE="nowhere")
    assert (missing.returncode, "WHEELHOUSE=nowhere" in missing.stderr) == (1, True)
    assert not (project / "said").exists()
    install(
        project,
        WHEELHOUSE=str(project / "my wheels"),
        PIP_EXTRA_INDEX_URL="https://example.org",
        PIP_INDEX_URL="x",
    )
    said = dict(line.split("=", 1) for line in (project / "said").read_text().splitlines())
    assert said == {
        "PIP_FIND_LINKS": f"{project.as_uri()}/my%20wheels",
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "unset",
        "PIP_INDEX_URL": "unset",
        "UV_OFFLINE": "1",
    }


def unpacked(project: Project, folder: Path, *names: str) -> Path:
    """These wheels as installed in a folder, as a module of the site has them."""
    for name in names:
        (wheel,) = project.wheels.glob(f"{name}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()
    return folder


@pytest.mark.more  # it makes an environment with a pip of its own
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_sites_pytorch_stays_and_the_rest_comes_as_the_lock_says(
    installer: str, tmp_path: Path
) -> None:
    """Its PyTorch is of another version than the lock's, with a library that it brought; others ask
    for it, too.
    """
    made = Project(tmp_path, installer)
    made.wheel("torch", "2.11.0", "nvidia_fast")
    made.wheel("nvidia_fast", "12.1")
    site = unpacked(made, tmp_path / "module", "torch", "nvidia_fast")
    digests = {
        "inner": made.wheel("inner", "1.0", "torch"),
        "torch": made.wheel("torch", "2.13.0", "nvidia_fast"),
    }
    versions = {"inner": "1.0", "torch": "2.13.0"}
    made.lock = [
        f"{name}=={versions[name]} --hash=sha256:{digest}" for name, digest in digests.items()
    ]
    (made.folder / "needs.txt").write_text("torch==2.13.0   # training\ninner==1.0\n")
    venv.create(tmp_path / "environment", with_pip=True)
    (packages,) = (tmp_path / "environment/lib").glob("python*/site-packages")
    (packages / "site-torch.pth").write_text(f"{site}\n")
    made.python = str(tmp_path / "environment/bin/python")
    if installer == "uv":
        (tmp_path / "environment/bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
    done = made.install("-r", "needs.txt", DDLBENCH_SITE=str(site))
    assert done.returncode == 0, done.stderr
    assert (packages / "inner.py").exists() and not (packages / "torch.py").exists()
    assert (site / "torch.py").read_text() == "version = '2.11.0'\n"


@pytest.mark.parametrize(
    ("release", "names"),
    [(None, ("finds no torch", "PYTHON=")), ("2.10.0", ("2.10.0", "2.11")), ("2.11.1", ())],
)
def test_a_pytorch_that_cannot_be_used_is_named(
    release: str | None, names: tuple[str, ...], tmp_path: Path
) -> None:
    if release:
        for name in ("torch", "torchvision"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").touch()
        (tmp_path / f"torch-{release}.dist-info").mkdir()
        (tmp_path / f"torch-{release}.dist-info/METADATA").write_text(
            f"Name: torch\nVersion: {release}\n"
        )
    argv = [
        sys.executable,
        "-S",
        str(ROOT / "envs/site_torch.py"),
    ]  # without this environment's own packages
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    if not names:
        assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path))
        return
    assert done.returncode == 1
    assert all(name in done.stderr for name in names)


def test_only_the_sites_pytorch_can_be_asked_for(project: Path) -> None:
    executable(project / "bin/g++", "#!/bin/bash\n")
    done = install(project, TORCH="mine")
    assert done.returncode == 1
    assert missing(done.stderr, "TORCH=mine", "site") == []
    assert not (project / ".venv").exists()
