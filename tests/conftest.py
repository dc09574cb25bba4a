"""What all tiers share: the project's root, and a copy of it to play with."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def copy_project(target: Path) -> Path:
    """The project as git sees it (tracked and new files, nothing ignored) in a folder of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A fresh copy of the project."""
    return copy_project(tmp_path / "project")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tiers first."""
    order = ["unit", "contract", "workflow", "slurm", "gpu"]
    items.sort(key=lambda item: order.index(Path(item.fspath).relative_to(ROOT / "tests").parts[0]))
