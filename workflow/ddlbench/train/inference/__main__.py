"""The process of one rank: `python -m ddlbench.train.inference <folder>`, which a launcher starts
(`plan/launch.py`).

`ddlbench.run.infer` has left `assignment.json` there, and watches. Rank 0 writes the record,
`inference.json`, when all is done. The process ends with 0, or with 1 and a note that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddlbench.core import heartbeats, notes, registry
from ddlbench.core.files import write_json
from ddlbench.data.manifest import Manifest
from ddlbench.train.assignment import seen_here
from ddlbench.train.inference import InferSpec, Way
from ddlbench.train.inference_record import ASSIGNMENT, FORMAT, RECORD
from ddlbench.train.loaders import PictureSet

if TYPE_CHECKING:
    from ddlbench.train.loaders import Loader


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddlbench.train.inference", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="where ddlbench.run.infer left assignment.json; for the record"
    )
    folder: Path = parser.parse_args().folder
    from ddlbench.train import process

    signal.signal(
        signal.SIGUSR1, signal.SIG_IGN
    )  # SLURM's warning: there is no checkpoint to write
    process.run(folder, lambda: serve_rank(folder))


def serve_rank(folder: Path) -> None:
    """Do this rank's part of the job in a folder."""
    assignment = json.loads((folder / ASSIGNMENT).read_text(encoding="utf-8"))
    spec = InferSpec.from_json(json.dumps(assignment["spec"]))
    weights = Path(assignment["weights"]) if assignment["weights"] else None
    if spec.workers > 1:
        signal.signal(signal.SIGTERM, _end)
    rank, measured = serve(
        spec, Path(assignment["data"]), weights, Watched(folder, float(assignment["silent_s"]))
    )
    if rank == 0:
        origin = seen_here(assignment["facts"], spec.run.device)
        record = {"format": FORMAT, "spec": assignment["spec"], "facts": origin, **measured}
        write_json(folder / RECORD, record)


class Watched(NamedTuple):
    """The folder where a rank shows its supervisor that it lives, and the heartbeat timeout [s]."""

    folder: Path
    silent_s: float


def serve(
    spec: InferSpec, data: Path, weights: Path | None, watched: Watched
) -> tuple[int, dict[str, Any]]:
    """Measure, and return (this process's rank, what it measured).

    All ranks call it; `weights` is what the run left, if the model is trained.

    Raises WorldError if the launcher started another number of ranks.
    """
    import torch

    from ddlbench.train import models, place, precision
    from ddlbench.train.inference import _measure
    from ddlbench.train.setup import weights_sha256

    who = place.own_rank(spec.workers)
    notes.introduce(watched.folder, who.rank, who.local_rank)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    way: Way = registry.member("inference", spec.member)
    device = spec.run.device
    if reason := way.lacks(device):
        return who.rank, {"reason": reason}
    if device == "cuda":
        place.take_device(who.local_rank)
    manifest = Manifest.read(data)
    loader = pictures(spec, data, manifest)  # before there are threads: loaders fork
    heartbeats.keep_beating(watched.folder, who.rank, who.local_rank, spec.nodes, watched.silent_s)
    if way.SPLITS:
        registry.member("frameworks", way.FRAMEWORK).start(device)
    precision.set_precision(spec.run)
    torch.manual_seed(spec.run.seed)
    recipe, source = spec.run.recipe, spec.run.model_sha256
    model = models.build(
        spec.run.model, len(manifest.classes), recipe.image_size, recipe.zero_init_last, source
    )
    if weights:
        _measure.load(model, weights)
    digest = weights_sha256(model)
    model.to(device).eval()
    kind = _measure.take_precision(model, spec.run.recipe.precision)
    plain_bytes = _measure.weights_bytes(model)
    plain = _measure.responses(model, loader.epoch(0), kind)
    if len(plain.images) < max(spec.batches):
        raise RuntimeError(
            f"{data} has {len(plain.images)} validation pictures, too few for batches of"
            f" {max(spec.batches)}"
        )
    served = way.ready(model)
    rows = []
    for (
        batch
    ) in spec.batches:  # while the loader rests; and first, so that first requests are the first
        request = plain.images[:batch].to(kind, copy=True)
        first_s, taken_s = _measure.latencies(served, request, _agreed if way.SPLITS else int)
        rows.append({"batch": batch, "first_s": first_s, "latencies_s": taken_s})
        print(f"batches of {batch}: {len(taken_s)} requests", flush=True)
    responses = _measure.responses(served, loader.epoch(1), kind)
    if not torch.equal(responses.labels, plain.labels):
        raise RuntimeError(
            f"loader {spec.run.loader} gave other pictures, or another order, in the second pass"
        )
    if way.SPLITS:
        registry.member("frameworks", way.FRAMEWORK).close()
    return who.rank, {
        "reason": None,
        "weights_sha256": digest,
        "weights_bytes": _measure.weights_bytes(served),
        "plain_weights_bytes": plain_bytes,
        "images": len(responses.labels),
        "correct": int((responses.classes == responses.labels).sum()),
        "plain_correct": int((plain.classes == plain.labels).sum()),
        "other_answers": int((responses.classes != plain.classes).sum()),
        "largest_difference": float((responses.scores - plain.scores).abs().max()),
        "batches": rows,
    }


def _end(number: int, frame: object) -> None:
    """Exit with a note on SIGTERM, which a launcher sends when another rank is gone.

    Without a note this rank could be blamed.
    """
    raise SystemExit("ended by its launcher (SIGTERM)")


def pictures(spec: InferSpec, data: Path, manifest: Manifest) -> Loader:
    """Return the validation pictures, all of them for each rank, from the loader that the run
    has.
    """
    run = replace(spec.run, workers=1, workers_per_node=1, global_batch=max(spec.batches))
    source = PictureSet(data, "val", manifest.splits["val"].images, len(manifest.classes))
    loader: Loader = registry.member("loaders", run.loader).Loader(source, run, 0)
    return loader


def _agreed(number: int) -> int:
    """Return rank 0's number, on all ranks."""
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    shared = torch.tensor([number], device=device)
    dist.broadcast(shared, 0)
    return int(shared.item())


if __name__ == "__main__":
    main()
