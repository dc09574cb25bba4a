"""What `ddlbench.run` tells every rank of a run, in `job.json` of the run's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench import registry
from ddlbench.data.manifest import Manifest
from ddlbench.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Assignment:
    """The run; where its data lies (None: its loader reads none); when to write checkpoints (None: never)."""

    folder: Path  # the record goes here
    spec: RunSpec
    data: Path | None
    facts: dict[str, Any]  # where and with what the run is made, for the log
    checkpoint_epochs: int | None
    checkpoint_minutes: float | None

    @classmethod
    def read(cls, folder: Path) -> Assignment:
        """From `folder/job.json`. Raises OSError, and KeyError if something is missing there."""
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        return cls(
            folder=folder,
            spec=RunSpec.from_json(json.dumps(job["spec"])),
            data=Path(job["data"]) if job["data"] else None,
            facts=job["facts"],
            checkpoint_epochs=job["checkpoint_epochs"],
            checkpoint_minutes=job["checkpoint_minutes"],
        )

    def sizes(self) -> tuple[dict[str, int], int]:
        """Images by split, and the number of classes: the manifest's, or the data set's own where nothing is read."""
        if self.data is None:
            dataset = registry.member("datasets", self.spec.dataset)
            return dict(dataset.IMAGES), int(dataset.NUM_CLASSES)
        manifest = Manifest.read(self.data)
        return {name: split.images for name, split in manifest.splits.items()}, len(manifest.classes)
