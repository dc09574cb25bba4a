"""Result logs that MLCommons publishes: `<org>/results/<system>/<benchmark>/result_N.txt`,
`<org>/systems/*.json`.

Times are those of the clocks in the log. What a log says of its own rate is kept beside (table
`submissions`), and the audit compares both. One accelerator is one worker. A series is the runs of
one submitter on one kind of system: the system's name without the numbers of its nodes and
accelerators. Sources: the mlperf-logging package (format, keys), and the training rules (what is
timed: from `run_start` to `run_stop`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.analysis.refusals import RefusedError
from ddlbench.core import spec
from ddlbench.core.columns import Why
from ddlbench.core.files import cut, printable, read_bytes
from ddlbench.records import _mllog
from ddlbench.records._mllog import Log, plain

if TYPE_CHECKING:
    from ddlbench.analysis.summary import Summary
    from ddlbench.records._times import Times

RESULT = re.compile(r"result_(\d{1,9})\.txt")
MAYBE = re.compile(
    r"result.*|[^.].*\.(txt|log|out)", re.IGNORECASE | re.DOTALL
)  # RESULT among them
# Training samples of an epoch, where the rules fix the data set: some writers log steps, or leave
# them out.
SAMPLES = {"resnet": 1_281_167, "retinanet": 1_170_301, "unet3d": 168}
IN_SAMPLES = {"unet3d"}  # since 3.1 some writers count samples as `epoch_num`
MOST_CELL = 10_000  # characters; csv of Python takes 131 072
NOT_SAID = "an MLPerf log does not say it"
MOST_OF_SYSTEM = 10**6  # nodes, and accelerators on each
NUMBERS = {
    "nodes": r"num(?:ber)?[ _](?:of[ _])?nodes",
    "per_node": r"(?:accelerators[ _]per[ _]node|num_accelerators)",
    "processors": r"host[ _]processors[ _]per[ _]node",
    "cores": r"accelerator[ _]core[ _]count",
}


def find(folder: Path, benchmarks: Sequence[str] = ()) -> list[Path]:
    """Find the logs of a checkout of results, and files that may be logs under another name: `read`
    reports those. `result_N.txt` in other places is ignored.
    """
    logs = [
        path
        for path in folder.glob("*/results/*/*/*")
        if MAYBE.fullmatch(path.name) and not path.is_dir()
    ]
    return sorted(path for path in logs if not benchmarks or path.parent.name in benchmarks)


def read(place: Path, wanted: str | None = None) -> Summary | None:
    """Read one log; `wanted` is not used here.

    Raises RefusedError if the file is not a log, or if the number of accelerators is unknown.
    """
    from ddlbench.records import _published, _sound

    try:
        log = _mllog.read(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusedError(place, f"cannot be read ({error.strerror})") from error
    if not RESULT.fullmatch(place.name):
        if not log.lines:  # it is none
            return None
        fault = "is an MLPerf log with an unexpected file name, so it was not read"
        raise RefusedError(
            place, fault, "name it result_<number>.txt, as MLCommons does; or leave it out"
        )
    if not log.lines:
        raise RefusedError(
            place, "has no MLPerf line (:::MLLOG, or :::MLL of 0.6)", "use a log of MLPerf training"
        )
    benchmark = place.parent.name
    fixed = _samples(log, benchmark)
    _published.check(
        place, log, fixed, is_share=benchmark == "resnet", in_samples=benchmark in IN_SAMPLES
    )
    summary = _summary(place, log)
    _sound.check_summary(place, summary, _published.FIX)
    return summary


def _summary(place: Path, log: Log) -> Summary:
    from ddlbench.records import _times

    benchmark, system = printable(place.parent.name), _system(place, log)
    times = _times.times(log, benchmark, _samples(log, benchmark))
    if times.several:
        fault = "holds more than one training: run_start comes again after run_stop"
        raise RefusedError(place, fault, "make a log of each of them")
    row = _run(place, log, system, times)
    values, why = _values(log, times)
    return {
        "run": row,
        "values": values,
        "why": why,
        "epochs": _times.epochs(log, times, benchmark) if log.status == "success" else {},
        "learning_rates": {},
        **dict.fromkeys(("step_times", "losses", "kernels", "no_kernels")),
        "submissions": [_submission(place, log, system, times, row)],
    }


def _system(place: Path, log: Log) -> System:
    """Return the system that a log is of.

    Raises RefusedError if nothing says how many accelerators it has, or the log's own statements
    contradict this number or its benchmark.
    """
    from ddlbench.records._published import FIX

    file = place.parents[3] / "systems" / f"{place.parents[1].name}.json"
    try:
        system = read_system(file, log)
    except ValueError as error:
        raise RefusedError(place, f"its system file: {error}", FIX) from None
    if not (workers := system.workers):
        lacks = "has no number_of_nodes, accelerators_per_node" if file.exists() else "is missing"
        fault = f"its number of accelerators is unknown: {file} {lacks}"
        raise RefusedError(place, fault, "write both numbers into the system's file")
    if place.parent.name == "resnet":
        if plain(log.keys.get("global_batch_size")) < workers:
            size = log.keys["global_batch_size"]
            fault = f"a batch of {size} is less than one image for each of {workers} accelerators"
            raise RefusedError(place, fault, FIX)
        kind = str(log.keys.get("submission_benchmark", "resnet"))
        if "resnet" not in kind.lower():
            raise RefusedError(
                place, f"submission_benchmark is {kind[:40]!r}: but its name says resnet", FIX
            )
    return system


def _names(place: Path) -> tuple[str, str, str]:
    """Return the submitter of a log, and the names of its system and its benchmark: the folders
    that contain the log.
    """
    org, system, benchmark = (
        printable(path.name) for path in (place.parents[3], place.parents[1], place.parent)
    )
    return org, system, benchmark


def _run(place: Path, log: Log, system: System, times: Times) -> dict[str, Any]:
    """Return the settings of a run, as table `runs` has them; null where the log lacks one."""
    org, name, benchmark = _names(place)
    return dict.fromkeys(spec.COLUMNS) | {
        "run": re.sub(r"[^A-Za-z0-9._-]+", "_", f"{org}-{name}-{benchmark}-{place.stem}"),
        "machine": f"{org} {_family(name, system)}",
        "device": "accelerator",
        "dataset": benchmark,
        "model": benchmark,
        "framework": _text(system.keys.get("framework")) or org,
        "workers": system.workers,
        "workers_per_node": system.per_node or system.processors,
        "nodes": system.nodes,
        "repeat": int(RESULT.fullmatch(place.name)[1]) + 1,  # type: ignore[index]
        "timed": True,
        "profiled": False,
        **_settings(log, system.workers),
        "status": "success" if log.status == "success" else "failed",
        "records": "mlperf",
        "gpu": _text(system.keys.get("accelerator_model_name")),
        "images": times.samples and int(times.samples),
        "extrapolated": False,
    }


def _submission(
    place: Path, log: Log, system: System, times: Times, row: dict[str, Any]
) -> dict[str, Any]:
    """Return the row of table `submissions`: what a log states besides its times."""
    org, name, benchmark = _names(place)
    return {
        "run": row["run"],
        "org": org,
        "division": _text(log.keys.get("submission_division") or system.keys.get("division")),
        "benchmark": benchmark,
        "system": name,
        "accelerator": row["gpu"],
        "framework": row["framework"],
        "file": printable(place),
        "status": log.status,
        "said_images_per_s": times.said_rate,
        "clock_images_per_s": times.clock_rate,
        "clocks": times.clocks,
        "run_images_per_s": times.run_rate,
        "reached": times.best,
        "statuses": cut("; ".join(sorted(log.statuses)), MOST_CELL) or None,
        "said_samples": times.said_samples,
        "samples": times.samples,
        "seen_samples": times.seen_samples,
        "clock_back_s": times.back_s,
        "lines": log.lines,
        "damaged_lines": log.damaged,
    }


def _samples(log: Log, benchmark: str) -> int | None:
    """Return the samples of an epoch where the rules fix them; ssd changed its data set, which its
    steps show.
    """
    steps, batch = plain(log.keys.get("train_samples")), plain(log.keys.get("global_batch_size"))
    open_images = SAMPLES["retinanet"]
    if benchmark == "ssd" and abs(steps * batch / open_images - 1) < 0.02:
        return open_images
    return SAMPLES.get(benchmark)


def _values(log: Log, times: Times) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the run's measures, and why the others are null."""
    from ddlbench.analysis.summary import COLUMNS, MFU

    names = [column.name for column in COLUMNS if column is not MFU]
    if log.status != "success":
        reason = f"run_stop says {log.status}" if log.status else "the log has no run_stop"
        return {}, dict.fromkeys(names, f"the run did not end successfully: {reason}")
    values = {name: value for name, value in times.values().items() if not isinstance(value, Why)}
    why = {name: str(value) for name, value in times.values().items() if isinstance(value, Why)}
    return values, {name: why.get(name, NOT_SAID) for name in names if name not in values}


def _settings(log: Log, workers: int) -> dict[str, Any]:
    """Return the recipe's settings in the log, in our columns. What is no number is left out."""

    def number(*keys: str) -> float | None:
        numbers = [plain(log.keys[key]) for key in keys if key in log.keys]
        return next((value for value in numbers if math.isfinite(value)), None)

    batch, seed = number("global_batch_size"), number("seed")
    return {
        "global_batch": batch and int(batch),
        "batch_per_worker": (batch and int(batch) // workers) or None,
        "seed": None if seed is None or abs(seed) > 2**62 else int(seed),
        "optimizer": _text(log.keys.get("opt_name")),
        "base_lr": number(
            "lars_opt_base_learning_rate", "sgd_opt_base_learning_rate", "opt_base_learning_rate"
        ),
        "warmup_epochs": number(
            "lars_opt_learning_rate_warmup_epochs", "opt_learning_rate_warmup_epochs"
        ),
        "weight_decay": number("lars_opt_weight_decay", "sgd_opt_weight_decay", "opt_weight_decay"),
        "accumulation": number("gradient_accumulation_steps"),
    }


@dataclass(frozen=True)
class System:
    """The description of a system: the keys of its file, and its NUMBERS; None for an unknown
    number.
    """

    keys: Mapping[str, Any]
    nodes: int | None
    per_node: int | None
    processors: int | None
    cores: int | None

    @property
    def workers(self) -> int:
        """Return the number of accelerators, or of processors where a system has no accelerators; 0
        if the number is unknown.
        """
        return (self.nodes or 0) * (self.per_node or self.processors or 0)


def read_system(path: Path, log: Log) -> System:
    """Read the system of a file `<system>.json`, however its name is capitalised, and what the log
    says of it.

    Numbers are looked for in the text, because some files of round 0.6 are log lines. Raises
    ValueError with a readable message at a number that no system has, or where log and file differ.
    """
    files = [
        file
        for file in sorted(path.parent.glob("*.json"))
        if file.stem.lower() == path.stem.lower()
    ]
    text = read_bytes(files[0]).decode("utf-8-sig", "replace") if files else ""
    keys: Any = None
    with suppress(ValueError, RecursionError):
        keys = json.loads(text)
    of_log = [
        f'"{key}": "{log.keys[key]}"'
        for key in ("number_of_nodes", "accelerators_per_node")
        if key in log.keys
    ]
    both = (text, "\n".join([*of_log, str(log.keys.get("submission_entry", ""))]))
    numbers: dict[str, int | None] = {}
    for key, name in NUMBERS.items():
        here, there = (_number(name, part) for part in both)
        if here is not None and there is not None and here != there:
            raise ValueError(
                f"its file says {here} {key.replace('_', ' ')}, but the log says {there}"
            )
        numbers[key] = there if here is None else here
    return System(keys if isinstance(keys, dict) else {}, **numbers)


def _number(name: str, text: str) -> int | None:
    """Return the number after a name; None without one.

    Raises ValueError for a number that no system has.
    """
    match = re.search(
        rf"{name}\W{{1,99}}?(-?\d{{1,3}}(?:,\d{{3}})+(?!\d)|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)", text
    )
    if not match:
        return None
    number = float(match[1].replace(",", ""))  # of any number of digits; 1,024 is one number
    if not (0 <= number <= MOST_OF_SYSTEM and number.is_integer()):
        raise ValueError(f"{match[0][:40]!r} is not a whole number up to {MOST_OF_SYSTEM}")
    return int(number)


def _family(name: str, system: System) -> str:
    """Return a system's name without its size: `dgxa100_n8_ngc22.04` on 8 nodes is a
    `dgxa100_ngc22.04`.
    """
    sizes = {system.nodes, system.per_node, system.workers, system.workers * (system.cores or 1)}

    def without(match: re.Match[str]) -> str:
        return "" if int(match[2]) in sizes else match[0]

    short = re.sub(r"(?<![A-Za-z\d.])(n|x)?(\d+)(x(?![a-z\d]))?(?![\d.]|[A-Z]B)", without, name)
    sizes -= {1}  # a dgx1 is one
    short = re.sub(r"(?<=[A-Za-z])(x)?(\d+)(?=[-_]|x|$)", without, short)
    return re.sub(r"([-_])[-_]+", r"\1", short).strip("-_") or name


def _text(value: Any) -> str | None:
    return cut(printable(value).strip()) or None if isinstance(value, str | int | float) else None
