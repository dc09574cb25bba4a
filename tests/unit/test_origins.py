"""Jobs leave out packages of another Python; the preflight tells of those, and of an NCCL that was written over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.commands.snakefile import shell_prefix
from ddlbench.preflight import origins

from tests.specs import JUWELS


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """What a module puts into PYTHONPATH: packages numpy and nvidia of another Python."""
    for name in ("numpy/__init__.py", "nvidia/__init__.py"):
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).touch()
    return tmp_path / "bundle"


def test_a_job_takes_its_clones_package_and_nothing_of_a_modules_bundle(tmp_path: Path, bundle: Path) -> None:
    clone = tmp_path / "a clone"
    (clone / "ddlbench").mkdir(parents=True)
    (clone / "ddlbench/__init__.py").touch()
    ask = "import ddlbench, numpy; print(ddlbench.__file__); print(numpy.__file__)"
    shell = f"{shell_prefix(JUWELS, clone)}python -c {ask!r}"
    environment = os.environ | {"PYTHONPATH": str(bundle)}
    done = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True, check=True)
    package, numpy = done.stdout.splitlines()
    assert package == str(clone / "ddlbench/__init__.py")
    assert Path(numpy).is_relative_to(sys.prefix)


def test_a_package_from_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch, bundle: Path) -> None:
    assert origins.elsewhere() == []
    monkeypatch.syspath_prepend(bundle)
    for name in ("numpy", "nvidia"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    said = origins.elsewhere(("torch", "numpy", "nvidia", "no_such_package"))
    assert [line.split(", which")[0] for line in said] == [
        f"numpy would be imported from {bundle}/numpy",
        f"nvidia would be imported from {bundle}/nvidia",
    ]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed NCCL for CUDA 13, 40 bytes large, and one that is a module's."""
    path, about = tmp_path / "nvidia/nccl/lib/libnccl.so.2", tmp_path / "nvidia_nccl_cu13-2.29.3.dist-info"
    for folder in (path.parent, about):
        folder.mkdir(parents=True)
    path.write_bytes(bytes(40))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 2.29.3\n")
    (about / "RECORD").write_text("nvidia/nccl/lib/libnccl.so.2,sha256=x,40\n")
    monkeypatch.syspath_prepend(tmp_path)
    return path


def test_the_nccl_in_use_is_the_one_that_was_installed(library: Path, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    line = "7f0000000000-7f0000001000 r-xp 00000000 08:01 42                         {}\n"
    maps.write_text(line.format(library) * 2)
    assert origins.nccl("13.0", maps) is None
    assert origins.nccl("12.6", maps) is None  # no such package: torch has its own
    library.write_bytes(bytes(41))
    assert "another package has written over it; pip install" in str(origins.nccl("13.0", maps))
    assert str(origins.nccl("13.0", maps)).endswith("nvidia-nccl-cu13==2.29.3")
    maps.write_text(line.format("/opt/nccl/lib/libnccl.so.2.26.2"))
    assert origins.nccl("13.0", maps) == (
        "NCCL in use is /opt/nccl/lib/libnccl.so.2.26.2, not that of package nvidia-nccl-cu13"
    )
    maps.write_text("")
    assert origins.nccl("13.0", maps) is None
