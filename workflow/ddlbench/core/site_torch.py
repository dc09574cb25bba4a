"""Whose PyTorch this environment uses: its own, or that of the site (`make install TORCH=site`)."""

import sys
from importlib.util import find_spec
from pathlib import Path

OWN = "environment"
NOTE = ".torch-site"  # in an environment that uses the site's: names the folder that has it


def folder(environment: Path | None = None) -> Path | None:
    """Return the folder of the site's PyTorch; None in an environment that has its own."""
    try:
        text = Path(environment or sys.prefix, NOTE).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return Path(text).resolve() if text else None


def origin() -> str | None:
    """Return `environment`, or the folder outside of it from which `import torch` would take
    PyTorch; None without it.

    It is not imported.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).resolve().parents[1]
    return OWN if found.is_relative_to(Path(sys.prefix).resolve()) else str(found)
