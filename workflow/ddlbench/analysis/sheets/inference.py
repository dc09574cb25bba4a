"""Records of inference to table `inference`: latency and throughput, one row per job and batch
size.

Warm-up is cut as from the steps of training (`analysis/warm_up.py`). What a job is:
`train/inference/__init__.py`.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.sheets import Rows, Sheet
from ddlbench.analysis.warm_up import warm_up
from ddlbench.core.columns import Column
from ddlbench.core.files import read_bytes
from ddlbench.train.inference import InferSpec
from ddlbench.train.inference_record import FORMAT, RECORD

COLUMNS = (
    Column("run", "str", "The job's id, which is also its folder in `results/inference`."),
    Column("machine", "str", "The machine file."),
    Column("device", "str", "`cpu` or `cuda`."),
    Column("cpu", "str", "The processor."),
    Column("gpu", "str", "The GPU; null without one."),
    Column("dataset", "str", "The data set whose validation pictures are sent."),
    Column("model", "str", "The model."),
    Column("recipe", "str", "The recipe by which it was trained."),
    Column(
        "precision",
        "str",
        "The recipe's, in which the plain model computes; with bf16 its weights are bf16, too.",
    ),
    Column(
        "weights",
        "str",
        "`trained`: those at the end of `trained_run`; `initial`: those with which it began.",
    ),
    Column("trained_run", "str", "The run whose model serves."),
    Column("member", "str", "The way to serve: a member of `workflow/ddlbench/train/inference`."),
    Column("version", "str", "Version of the package that serves."),
    Column("workers", "Int64", "Ranks that serve together, one device each."),
    Column("repeat", "Int64", "The repeat: another process that does the same."),
    Column("batch", "Int64", "Pictures in one request.", "images"),
    Column("reason", "str", "Why nothing was measured; then all that follows is null."),
    Column(
        "first_s", "float64", "The first request of this size, which may compile something.", "s"
    ),
    Column("requests", "Int64", "Requests that count, after the warm-up."),
    Column(
        "warm_up_requests", "Int64", "Requests at the beginning that are cut (docs/statistics.md)."
    ),
    Column("steady", "boolean", "Whether latencies became steady."),
    Column(
        "latency_p50_s",
        "float64",
        "Half of the requests took at most this time, sent one at a time.",
        "s",
    ),
    Column("latency_p95_s", "float64", "95 % of the requests took at most this time.", "s"),
    Column(
        "throughput_images_per_s", "float64", "Pictures by the time of their requests.", "images/s"
    ),
    Column("weights_bytes", "Int64", "Parameters and buffers that one worker holds.", "bytes"),
    Column("plain_weights_bytes", "Int64", "Those of the plain model.", "bytes"),
    Column(
        "images",
        "Int64",
        "Validation pictures that were sent for the next columns, all of the split.",
        "images",
    ),
    Column("top1", "float64", "Share of right answers."),
    Column(
        "top1_change",
        "float64",
        "That share less the plain model's, by the same process on the same pictures.",
    ),
    Column(
        "other_answers",
        "Int64",
        "Pictures whose response differs from the plain model's.",
        "images",
    ),
    Column(
        "largest_difference",
        "float64",
        "Of a score to the plain model's, over the first batch of these pictures.",
    ),
)


def rows(folders: Iterable[Path], specs: Iterable[InferSpec]) -> Rows:
    """Return the rows of these jobs, in their order.

    Raises RefusedError for a record that cannot be true, or be read.
    """
    return [
        row
        for folder, spec in zip(folders, specs, strict=True)
        for row in of_job(folder / RECORD, spec)
    ]


def of_job(path: Path, spec: InferSpec) -> Rows:
    """Return the rows of one job, one per batch size. Raises RefusedError."""
    again = "remove it, and start the workflow again"
    try:
        record = json.loads(read_bytes(path))
        if record["format"] != FORMAT:
            raise RefusedError(
                path, f"has format {record['format']}; this version reads {FORMAT}", again
            )
        if InferSpec.from_json(json.dumps(record["spec"])) != spec:
            raise RefusedError(path, "has other settings than the study's", again)
        return list(_rows(path, record, spec))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, RefusedError):
            raise
        raise RefusedError(path, f"cannot be read: {error!r}", again) from None


def _rows(path: Path, record: dict[str, Any], spec: InferSpec) -> Iterable[dict[str, Any]]:
    facts, run = record["facts"], spec.run
    job = {"run": spec.id} | {
        name: getattr(run, name) for name in ("machine", "device", "dataset", "model")
    }
    job |= {
        "cpu": facts["cpu"],
        "gpu": facts["gpu"],
        "version": facts["versions"].get(facts["package"]),
    }
    job |= {"recipe": run.recipe.name, "precision": run.recipe.precision, "trained_run": run.id}
    job |= {"weights": "trained" if spec.trained else "initial", "reason": record["reason"]}
    job |= {name: getattr(spec, name) for name in ("member", "workers", "repeat")}
    if record["reason"]:
        nothing = {column.name: None for column in COLUMNS}
        yield from ({**nothing, **job, "batch": batch} for batch in spec.batches)
        return
    images = record["images"]
    if not all(
        0 <= record[count] <= images for count in ("correct", "plain_correct", "other_answers")
    ):
        raise RefusedError(path, f"has more answers than pictures ({images})")
    job |= {
        name: record[name]
        for name in ("weights_bytes", "plain_weights_bytes", "images", "other_answers")
    }
    job |= {"top1": record["correct"] / images, "largest_difference": record["largest_difference"]}
    job |= {"top1_change": (record["correct"] - record["plain_correct"]) / images}
    for asked in record["batches"]:
        yield {**job, "batch": asked["batch"], "first_s": asked["first_s"], **times(path, asked)}


def times(path: Path, measured: dict[str, Any]) -> dict[str, Any]:
    """Summarise the latencies of a batch size. Raises RefusedError for impossible times."""
    taken: Sequence[float] = measured["latencies_s"]
    if not taken or not all(
        isinstance(s, float) and math.isfinite(s) and s > 0 for s in (*taken, measured["first_s"])
    ):
        raise RefusedError(path, f"has impossible times at batch {measured['batch']}")
    cut, steady = warm_up(taken)
    kept = np.asarray(taken[cut:])
    return {
        "requests": len(kept),
        "warm_up_requests": cut,
        "steady": steady,
        "latency_p50_s": float(np.quantile(kept, 0.5)),
        "latency_p95_s": float(np.quantile(kept, 0.95)),
        "throughput_images_per_s": measured["batch"] * len(kept) / float(kept.sum()),
    }


SHEET = Sheet(
    "One row per job of inference and batch size (rule `infer`).", COLUMNS, place=110, of_job=of_job
)
