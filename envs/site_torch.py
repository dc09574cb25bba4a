"""Print the folder in which this Python finds PyTorch: `python3.11 envs/site_torch.py`, for `make
install TORCH=site`.

It ends with one line where there is none that ddlbench can use.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

OLDEST = (2, 11)


def folder() -> str:
    """Return the folder that has torch and torchvision. Raises SystemExit with the reason where
    there is none.
    """
    places = {name: find_spec(name) for name in ("torch", "torchvision")}
    for name, spec in places.items():
        if spec is None or spec.origin is None:
            sys.exit(
                f"TORCH=site: {sys.executable} finds no {name}. Load the module that has it first,"
                " or name its Python: PYTHON=/path/to/python3"
            )
    try:
        found = version("torch")
    except PackageNotFoundError:
        sys.exit(
            "TORCH=site: torch has no metadata (torch-*.dist-info), so pip would install another"
            " one over it"
        )
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        sys.exit(
            f"TORCH=site: torch {found} is too old; supported: {OLDEST[0]}.{OLDEST[1]} and later"
        )
    homes = {Path(str(spec.origin)).parents[1] for spec in places.values() if spec}
    if len(homes) > 1:
        sys.exit(
            "TORCH=site: torch and torchvision lie in different folders:"
            f" {', '.join(map(str, sorted(homes)))}"
        )
    return str(homes.pop())


if __name__ == "__main__":
    print(folder())
