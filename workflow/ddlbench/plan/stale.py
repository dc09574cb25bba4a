"""What is done, and what is to be made again and why: a planned run beside its record.

Compares what Snakemake compares (params, inputs, the rule's command) and names the setting that
differs; `snakemake -n` has the last word: it sees changes of software environments too.
"""

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddlbench.analysis import failures, refusals
from ddlbench.core import files, layout
from ddlbench.core.mllog import recorded_spec
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.seal import sealed
from ddlbench.core.spec import RunSpec, relevant_settings

# The command of rule train. Snakemake compares it with the one that made a record: another text
# makes all stale.
COMMAND = (
    "python -m ddlbench.run --folder results/runs/{wildcards.run} --manifest {input:q} --spec"
    " {params.spec:q} {resources.supervision} -- {resources.launch} > {log} 2>&1"
)
NOTES = Path(".snakemake/metadata")
DONE, STALE, FAILED, STOPPED, MISSING = "done", "stale", "failed", "stopped", "missing"


@dataclass(frozen=True)
class JobMetadata:
    """Snakemake's metadata about the job that made a record: its inputs with their checksums, its
    shell command.
    """

    inputs: tuple[str, ...] | None
    checksums: Mapping[str, str]
    command: str | None


def metadata_of(runs: Iterable[str]) -> dict[str, JobMetadata]:
    """Return Snakemake's metadata about each run that has a record.

    Where there is none, or Snakemake keeps its metadata in another place, a run is judged by its
    record alone.
    """
    if not NOTES.is_dir():
        return {}
    found = {}
    for run in runs:
        log = layout.run_log(run)
        note = read_metadata(log) if Path(log).exists() else None
        if note:
            inputs = note.get("input")
            found[run] = JobMetadata(
                inputs if inputs is None else tuple(inputs),
                note.get("input_checksums") or {},
                note.get("code"),
            )
    return found


def read_metadata(output: str) -> dict[str, Any] | None:
    """Return Snakemake's metadata about the job that made an output; None if there is none that can
    be read.
    """
    name = urlsafe_b64encode(
        output.encode()
    ).decode()  # in pieces that a file's name may have (Snakemake 9.27)
    try:
        longest = os.pathconf(NOTES, "PC_NAME_MAX") - 1
        *folders, last = [name[start : start + longest] for start in range(0, len(name), longest)]
        text = NOTES.joinpath(*(f"@{part}" for part in folders), last).read_text(encoding="utf-8")
        note = json.loads(text)
    except (OSError, ValueError):  # none, or one that is being written
        return None
    return note if isinstance(note, dict) else None


def state(
    folder: Path,
    spec: RunSpec,
    recorded: Mapping[str, Any] | None,
    manifest: str | None,
    metadata: JobMetadata | None = None,
    command: str | None = None,
) -> tuple[str, str]:
    """Return (DONE, STALE, FAILED, STOPPED or MISSING; why) of a run's folder.

    `recorded` is the spec in its record, None if the record is of an incomplete run; `command` is
    rule train's today. A record that tables refuse by its seal is done: it is made again only on
    request.
    """
    outputs = [folder / MLLOG, folder / STEPS]
    missing = [path.name for path in outputs if not path.exists()]
    if missing:
        return unfinished(
            folder, "" if len(missing) == len(outputs) else f"its {missing[0]} is missing"
        )
    if recorded is None:
        why = refusals.of_seal(folder / MLLOG)
        return (DONE, why) if why else (STALE, "its record is incomplete")
    reasons = changes(recorded, json.loads(spec.to_json()))
    if (
        metadata
        and metadata.inputs is not None
        and list(metadata.inputs) != [manifest] * (manifest is not None)
    ):
        reasons.append(
            f"reads {manifest or 'nothing'}, read {', '.join(metadata.inputs) or 'nothing'}"
        )
    elif manifest:
        reasons += _data_changes(
            Path(manifest), min(path.stat().st_mtime for path in outputs), metadata
        )
    if metadata and command is not None and metadata.command not in (None, command):
        reasons.append("rule train has a changed command")
    # What a changed log says of its settings is no reason to make the run again: a person removes
    # it, or finds out why.
    why = refusals.of_seal(folder / MLLOG)
    return (STALE, "; ".join(reasons)) if reasons and not why else (DONE, why)


def unfinished(folder: Path, missing: str = "") -> tuple[str, str]:
    """Return (FAILED, STOPPED or MISSING; why) of the folder of a job without a record."""
    if failures.has_failed(folder):
        return FAILED, "its last attempt failed"
    if (folder / failures.PARTIAL).is_dir():
        return STOPPED, "is running, or was stopped"
    return MISSING, missing


def is_of_other_settings(log: Path, spec: RunSpec) -> bool:
    """Return whether a sealed record exists and belongs to another run.

    Snakemake's metadata cannot show this: it holds no run that a SLURM job finished after its
    Snakemake was killed, and none at all once `.snakemake` is gone. The first lines of the record
    name its run. A record that was changed since is refused, and not made again.
    """
    try:
        recorded = recorded_spec(log)
    except (
        Exception
    ):  # no log, or a log with unexpected contents: `collect` refuses it and reports why
        return False
    if isinstance(recorded, Mapping) and not changes(recorded, json.loads(spec.to_json())):
        return False
    return not refusals.of_seal(log)


def was_timed(spec: RunSpec) -> bool:
    """Return whether there is a record of this run that is timed: another study wanted its speed."""
    log = Path(layout.run_log(spec.id))
    if spec.timed or not log.exists():
        return spec.timed
    try:
        recorded = recorded_spec(log)
    except Exception:  # whatever stands in the log
        return False
    timed = json.loads(replace(spec, timed=True).to_json())
    return isinstance(recorded, Mapping) and not changes(recorded, timed)


def has_other_steps(folder: Path) -> bool:
    """Return whether a record's steps differ from those that its log was sealed with, or cannot be
    compared.
    """
    try:
        return (sealed(folder / MLLOG) or {}).get(STEPS) != files.sha256(folder / STEPS)
    except Exception:  # whatever stands in the log
        return True


# Digests, which mean nothing to people.
SOURCES = {"digest": "files of the program", "model_sha256": "the source of the model"}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return each setting that differs, as `recipe.base_lr 0.1 -> 0.2`, by name.

    What a run does not use is left out.
    """
    return [] if before == now else _differences(relevant_settings(before), relevant_settings(now))


def is_same_run(before: str, now: str) -> bool:
    """Tell whether two texts of settings, as rules have them as `params.spec`, are of the same
    training, or of the same job that uses one.
    """
    try:
        return not changes(json.loads(before), json.loads(now))
    except (ValueError, AttributeError):  # Snakemake's metadata, in which anything may stand
        return False


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], under: str = "") -> list[str]:
    differ = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            differ += _differences(old, new, f"{under}{key}.")
        elif key in before and key in now and old == new:
            continue
        elif key in SOURCES:
            differ.append(f"{SOURCES[key]} changed")
        else:
            shown = [json.dumps(side[key]) if key in side else "not set" for side in (before, now)]
            differ.append(f"{under}{key} {' -> '.join(shown)}")
    return differ


def _data_changes(manifest: Path, since: float, metadata: JobMetadata | None) -> list[str]:
    """Return a line if the data set was prepared as another one since (contents count, as they do
    for Snakemake). Data that are gone, as old files on scratch file systems are, say nothing
    against a run that is done.
    """
    if not manifest.exists() or manifest.stat().st_mtime <= since:
        return []
    before = metadata.checksums.get(str(manifest)) if metadata else None
    now = files.sha256(manifest)
    return (
        [] if before and before.removeprefix("sha256:") == now else [f"{manifest} was made again"]
    )
