"""What is done, and what is to be made again and why: a planned run beside its record.

Compares what Snakemake compares (params, inputs, the rule's command) and names the setting that differs; `snakemake -n`
has the last word: it sees changes of software environments too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core import files, layout
from ddlbench.core.record import MLLOG, STEPS, events
from ddlbench.core.spec import RunSpec, complete

DONE, STALE, FAILED, STOPPED, MISSING = "done", "stale", "failed", "stopped", "missing"


@dataclass(frozen=True)
class Memory:
    """What Snakemake remembers of the job that made a record: its inputs with their checksums, its shell command."""

    inputs: tuple[str, ...] | None
    checksums: Mapping[str, str]
    command: str | None


def memories(persistence: Any, runs: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """The fields of a Memory, by run that has a record, from the memory of the Snakemake that runs this."""
    from snakemake.io import IOFile

    made = {}
    for run in runs:
        log = layout.run_log(run)
        if Path(log).exists() and (job := persistence.metadata(IOFile(log))):
            inputs = None if job.input is None else tuple(job.input)
            made[run] = (inputs, dict(job.input_checksums or {}), job.code)
    return made


def state(
    folder: Path,
    spec: RunSpec,
    recorded: Mapping[str, Any] | None,
    manifest: str | None,
    memory: Memory | None = None,
    command: str | None = None,
) -> tuple[str, str]:
    """(DONE, STALE, FAILED, STOPPED or MISSING; why) of a run's folder.

    `recorded` is the spec in its record, None if that is not of a whole run; `command` is rule train's today.
    """
    outputs = [folder / MLLOG, folder / STEPS]
    missing = [path.name for path in outputs if not path.exists()]
    if missing:
        if (folder / ".partial").is_dir():
            return STOPPED, "is running, or was stopped"
        if (folder / "failed").is_dir():
            return FAILED, "its last try failed"
        return MISSING, "" if len(missing) == len(outputs) else f"its {missing[0]} is missing"
    if recorded is None:
        return STALE, "its record is not whole"
    reasons = changes(complete(recorded), complete(json.loads(spec.to_json())))
    if memory and memory.inputs is not None and list(memory.inputs) != [manifest] * (manifest is not None):
        reasons.append(f"reads {manifest or 'nothing'}, read {', '.join(memory.inputs) or 'nothing'}")
    elif manifest:
        reasons += _of_data(Path(manifest), min(path.stat().st_mtime for path in outputs), memory)
    if memory and command is not None and memory.command not in (None, command):
        reasons.append("rule train has another command")
    return (STALE, "; ".join(reasons)) if reasons else (DONE, "")


def is_of_other_settings(log: Path, spec: RunSpec) -> bool:
    """Whether a record is there and is not of this very run.

    Snakemake's memory cannot tell: it holds no run that a SLURM job finished after its Snakemake was killed, and none
    at all once `.snakemake` is gone. The record itself says what it is of, in its first lines.
    """
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            said = next((event.value for event in events(lines) if event.key == "ddlbench_spec"), None)
    except Exception:  # no log, or one in which anything may stand: `collect` refuses it and says why
        return False
    return not isinstance(said, Mapping) or bool(changes(complete(said), complete(json.loads(spec.to_json()))))


def changes(before: Mapping[str, Any], now: Mapping[str, Any], under: str = "") -> list[str]:
    """Each setting that differs, as `recipe.base_lr 0.1 -> 0.2`, by name."""
    differ = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            differ += changes(old, new, f"{under}{key}.")
        elif key not in before:
            differ.append(f"{under}{key} is new: {json.dumps(new)}")
        elif key not in now:
            differ.append(f"{under}{key} is no setting any more")
        elif old != new:
            differ.append(f"{under}{key} {json.dumps(old)} -> {json.dumps(new)}")
    return differ


def _of_data(manifest: Path, made: float, memory: Memory | None) -> list[str]:
    """Whether the data set was prepared as another one since (contents count, as they do for Snakemake). Data that are
    gone, as old files on scratch file systems are, say nothing against a run that is done."""
    if not manifest.exists() or manifest.stat().st_mtime <= made:
        return []
    known = memory.checksums.get(str(manifest)) if memory else None
    now = files.sha256(manifest)
    return [] if known and known.removeprefix("sha256:") == now else [f"{manifest} was made anew"]
