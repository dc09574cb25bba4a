"""Python runs this at its start, in users' programs that use ddlbench's own environment
(`run/rank.py`).

A program imports torchvision as it always does; where its compiled part does not fit torch, that
would fail. Our patch comes before that import, and before no other. A file of this name that the
system has is run after this one.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
from contextlib import suppress
from pathlib import Path


class BeforeTorchvision(importlib.abc.MetaPathFinder):
    """A finder of modules that finds nothing, and patches torchvision when it is looked for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            with suppress(ImportError):
                from ddlbench.patches import torchvision_operators

                torchvision_operators.apply()


sys.meta_path.insert(0, BeforeTorchvision())
_here = Path(__file__).resolve().parent
_others = [path for path in sys.path if Path(path or ".").resolve() != _here]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.origin:
    runpy.run_path(_next.origin)
