"""What `ddlbench.run` tells every rank of a run, in `assignment.json` of the folder where the
record is made.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ddlbench.core import heartbeats, registry
from ddlbench.core.files import write_json
from ddlbench.core.spec import RunSpec
from ddlbench.data import datasets
from ddlbench.data.manifest import Manifest

FILE = "assignment.json"
# Beginnings of the variables that records name, beside TF32's. What launchers set for each run anew
# is none of them.
RELEVANT = (
    *("NCCL_", "GLOO_", "UCX_", "OMP_", "MKL_", "OPENBLAS_", "CUBLAS_", "CUDA_LAUNCH_BLOCKING"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "MALLOC_", "LD_PRELOAD"),
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of a run's ranks: the run; where its data lies (None: its loader reads none);
    when to write checkpoints (None: never).
    """

    folder: Path  # the record goes here
    spec: RunSpec
    data: Path | None
    facts: dict[str, Any]  # where and with what the run is made, for the log
    checkpoint_epochs: int | None
    checkpoint_minutes: float | None
    silent_s: float = heartbeats.SILENT_S  # after which a rank has stopped answering
    interrupt_steps: int | None = (
        None  # after which all ranks are to die; None: they are not, or did already
    )
    keep_weights: bool = False  # at the end of training

    @classmethod
    def read(cls, folder: Path) -> Assignment:
        """Read what `write` left there.

        Raises OSError if there is nothing; ValueError, KeyError or TypeError if it is incomplete or
        another version's.
        """
        values = json.loads((folder / FILE).read_text(encoding="utf-8"))
        spec, data = RunSpec.from_json(json.dumps(values["spec"])), values["data"]
        return cls(folder, **values | {"spec": spec, "data": Path(data) if data else None})

    def write(self) -> None:
        """Write it into its folder, for the ranks."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "folder"
        }
        as_text = {
            "spec": json.loads(self.spec.to_json()),
            "data": str(self.data) if self.data else None,
        }
        write_json(self.folder / FILE, values | as_text)

    def sizes(self) -> tuple[dict[str, int], int]:
        """Return the images by split and the number of classes: the manifest's, or the data set's
        own where nothing is read.
        """
        if self.data is None:
            dataset = datasets.get(self.spec.dataset)
            return dict(dataset.IMAGES), dataset.NUM_CLASSES
        manifest = Manifest.read(self.data)
        return {name: split.images for name, split in manifest.splits.items()}, len(
            manifest.classes
        )


def seen_here(facts: dict[str, Any], device: str) -> dict[str, Any]:
    """Return the facts with versions and variables as this rank finds them.

    In a container they differ from the supervisor's, and launchers set some.
    """
    versions = {
        name: registry.release(name) or version
        for name, version in facts.get("versions", {}).items()
    }
    here = {
        "python": platform.python_version(),
        "versions": versions,
        "environment": relevant_variables(os.environ),
    }
    return facts | here | {"nccl_version": _nccl_version() if device == "cuda" else None}


def relevant_variables(environment: Mapping[str, str]) -> str:
    """Return the variables that change speed or arithmetic, as a shell takes them."""
    names = sorted(name for name in environment if name.startswith(RELEVANT) or "TF32" in name)
    return shlex.join(f"{name}={environment[name]}" for name in names)


def _nccl_version() -> str | None:
    """Return the version of the NCCL that PyTorch has; None without one."""
    import torch

    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
