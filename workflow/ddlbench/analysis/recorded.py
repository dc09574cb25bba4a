"""What the record says as it is: where, with what and how a run was made, counts, what an
interruption took.

And what ranks said of memory, CPU, energy and network (`train/measure.py`), joined to columns of
their run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddlbench.core import registry
from ddlbench.core.columns import OVER_RANKS, PROFILER, SHARING, UNKNOWN, Column, Values, Why
from ddlbench.core.mllog import began_s, begin_and_end_s, train_s
from ddlbench.train.measure import COLUMNS as MEASURED

if TYPE_CHECKING:  # the plan reads logs without pandas
    from ddlbench.analysis.record import Record

ORIGIN = (
    Column("hosts", "str", "The computers that the ranks ran on, separated by commas."),
    Column("framework_version", "str", "Version of the package that the framework names."),
    Column("loader_version", "str", "Version of the package that the loader names."),
    Column("torch_version", "str", "Version of PyTorch."),
    Column(
        "torch_from",
        "str",
        "Whose PyTorch it is: `environment`, which `make install` made, or the folder of the"
        " site's.",
    ),
    Column("python_version", "str", "Version of Python."),
    Column("container", "str", "SHA-256 of the image of the ranks' container; null without one."),
    Column("nccl_version", "str", "Version of NCCL that PyTorch has; null on CPUs."),
    Column(
        "environment",
        "str",
        "Variables of the ranks' environment that change speed or arithmetic: of NCCL, Gloo, UCX,"
        " TF32, threads and memory (`train/assignment.py`).",
    ),
    Column("cpu", "str", "The processor of the computer that started the ranks."),
    Column(
        "gpu",
        "str",
        "The first GPU of the computer that started the ranks; null without NVIDIA's driver.",
    ),
    Column("driver", "str", "NVIDIA's driver on the computer that started the ranks."),
    Column("kernel", "str", "Release of the Linux kernel on the computer that started the ranks."),
    Column(
        "data_sha256",
        "str",
        "SHA-256 of the data's manifest, which has each part's; null where nothing is read.",
    ),
    Column(
        "validation",
        "str",
        "Where the pictures for validation are from: `its own`, or how they were cut from those for"
        " training. Null where nothing is read.",
    ),
    Column("commit", "str", "The commit of ddlbench that made the run."),
    Column(
        "uncommitted_changes", "boolean", "Whether files of ddlbench differed from that commit."
    ),
    Column("command", "str", "The command that started the ranks."),
    Column(
        "reading",
        "str",
        "Of a program: what confirms the steps that were read from its output, or `read, not"
        " proved`. Our own trainings count their steps themselves.",
    ),
    Column(
        "reading_proved",
        "boolean",
        "Whether steps and samples of the run are counted or confirmed, not just read.",
    ),
    Column(
        "ranks_together",
        "str",
        "Of a program: whether its ranks trained together: `yes`, `no`, or `unconfirmed` where"
        " nothing shows it. Our own do.",
    ),
    Column(
        "stopped_after",
        "str",
        "Of a program: the steps or minutes after which its runs are ended (key stop_after).",
    ),
    Column("ranks_evidence", "str", "What shows whether the ranks trained together."),
    Column(
        "confirmed",
        "boolean",
        "Whether the run's output is confirmed: its reading is proved, its pauses are known, its"
        " ranks trained together, and no rate that it prints contradicts the clock. An answer that"
        " rests on other runs is never sure.",
    ),
    Column(
        "initial_weights_sha256",
        "str",
        "SHA-256 of the weights before the first step; equal runs begin alike.",
    ),
)
INTERRUPTION = (
    Column(
        "checkpoint_s",
        "float64",
        "How long training stood still for the checkpoint that an interrupted run went on from.",
        "s",
        spoiled_by=(SHARING, PROFILER),
    ),
    Column(
        "lost_steps",
        "Int64",
        "Steps that an interrupted run had made after its checkpoint, and made again.",
    ),
    Column(
        "restart_s",
        "float64",
        "From the death of an interrupted run's ranks to training again on all of them. Its nodes"
        " were still allocated: waiting for another node is not included.",
        "s",
        spoiled_by=(SHARING, PROFILER),
    ),
)
COLUMNS = (
    Column(
        "flops_per_image",
        "Int64",
        "Operations of a forward and a backward pass on one image.",
        "operations",
    ),
    Column("skipped_steps", "Int64", "Steps whose update was left out because fp16 overflowed."),
    Column("steps", "Int64", "Steps that were trained."),
    Column("images_seen", "Int64", "Images that were trained on, over all ranks and epochs."),
    Column("evaluations", "Int64", "Validations that gave an accuracy."),
    Column("validation_images", "Int64", "Images of the validation split."),
    Column(
        "validated_images",
        "Int64",
        "Images that an accuracy rests on; the fewest of any validation.",
    ),
    Column("begun_s", "float64", "When the run's first process began: seconds since 1970.", "s"),
    Column("started_s", "float64", "When training began: seconds since 1970.", "s"),
    Column(
        "run_s",
        "float64",
        "The whole run, from its first process to its last event, without interruptions: `train_s`,"
        " and what the run needed to begin and to end. It is what the plan counts.",
        "s",
    ),
    Column(
        "pauses_s",
        "float64",
        "Of a program: time between its first and last step that was no training, such as"
        " validations and checkpoints. It is in `train_s` and in no rate.",
        "s",
    ),
    Column(
        "with_pauses_per_s",
        "float64",
        "Of a program that pauses: its rate with the pauses in it, warm-up included.",
        "samples/s",
    ),
    Column(
        "pauses_known",
        "boolean",
        "Of a program: whether it is known what of its time was training. It is not where more than"
        " 5 % is in outliers of which nothing but their length says whether they are pauses.",
    ),
    Column(
        "printed_samples_per_s",
        "float64",
        "Of a program: the rate of all ranks that it prints, by key rate_of of its file; the median"
        " of its lines.",
        "samples/s",
    ),
    Column(
        "clock_samples_per_s",
        "float64",
        "Of a program that prints a rate: the rate by the times of its lines, without pauses,"
        " warm-up included.",
        "samples/s",
    ),
    Column(
        "printed_rate_agrees",
        "boolean",
        "Of a program that prints a rate: whether it agrees with the times of its lines within 20"
        " %, with or without pauses.",
    ),
    Column(
        "data_before_clock_s",
        "float64",
        "Time from the first request to the loaders for images to the start of the clock.",
        "s",
    ),
    Column(
        "clock_resolution_s",
        "float64",
        "Resolution of the clock that times the steps.",
        "s",
    ),
    Column(
        "data_cached_share",
        "float64",
        "Share of the data that was in the memory of the computer that started the ranks, before"
        " the run; from a sample of files. Null where the system does not tell.",
    ),
    Column(
        "cores_per_rank",
        "float64",
        "Hardware threads that the run was given on the computer that started the ranks, by the"
        " ranks there.",
    ),
    Column("resumes", "Int64", "How often the run went on from a checkpoint."),
    *INTERRUPTION,
)
# The engine of each rank reports this about its model (`Engine.state_bytes`).
STATE = (
    Column(
        "parameters_bytes", "Int64", "Parameters that the rank holds.", "bytes", over_ranks="max"
    ),
    Column(
        "gradients_bytes",
        "Int64",
        "Gradients that the rank keeps for its update: computed, not measured, by the formula of"
        " the ZeRO paper (`core/zero.py`), without buffers that they are sent from. Of a program:"
        " what it says that it holds.",
        "bytes",
        over_ranks="max",
    ),
    Column(
        "optimizer_bytes",
        "Int64",
        "State of the optimizer that the rank holds.",
        "bytes",
        over_ranks="max",
    ),
)
ENERGY = Column(
    "energy_j",
    "float64",
    "Energy of devices and hosts together; on CPUs the host is the device. Null where either is"
    " missing.",
    "J",
    spoiled_by=(SHARING, PROFILER),
)
OTHERS = Column(
    "others_cores",
    "float64",
    "CPU cores that other processes kept busy while the run trained, on the node where they took"
    " most. The ranks' launcher is included, and what other guests of the node's host took.",
    spoiled_by=(SHARING, PROFILER),
)
OF_RANKS = (*MEASURED, *STATE)
RESOURCES = (*OF_RANKS, ENERGY, OTHERS)
# What runs of one program share whose batches differ.
SAME_PROGRAM = ("machine", "model", "framework", "settings")
LEAST_STEPS, APART, NEAR = (
    20,
    1.5,
    0.03,
)  # steps of each; batches by at least this factor; samples by this share
PRINTED = {
    "printed_samples_per_s": "printed_per_s",
    "clock_samples_per_s": "by_clock_per_s",
    "printed_rate_agrees": "agrees",
}
NO_RATE = "the program prints no rate that was read: group samples_per_s"
PAUSES = ("pauses_s", "with_pauses_per_s", "pauses_known")
NO_PAUSES = "no pauses were found"
OURS_VALIDATE = "our own trainings time their validations: validation_s"
OURS_COUNT = "our own trainings count their steps themselves"
ONE_NODE = "all ranks ran on one node: their traffic does not pass its network"


def origin(record: Record) -> dict[str, Any]:
    """Return ORIGIN, as far as the record says it; None where it does not."""
    facts = record.value("ddlbench_facts", {})
    ranks, versions = record.value("ddlbench_ranks", [facts]), facts.get("versions", {})
    # A member names the package whose version says most about it; what none names is in the log.
    framework = registry.member("frameworks", record.spec.versioned).DISTRIBUTION
    loader = registry.member("loaders", record.spec.loader).DISTRIBUTION
    values = {
        "hosts": ",".join(sorted({rank["host"] for rank in ranks if "host" in rank})),
        "framework_version": versions.get(framework),
        "loader_version": versions.get(loader),
        "torch_version": versions.get("torch"),
        "python_version": facts.get("python"),
        "initial_weights_sha256": record.value("ddlbench_initial_weights_sha256"),
    }
    if record.spec.program:
        said = record.value("ddlbench_reading", {})
        together = said.get("together", {})
        values |= {"reading": said.get("reading"), "reading_proved": said.get("proved")}
        values |= {"ranks_together": together.get("ranks"), "ranks_evidence": together.get("by")}
        values["confirmed"] = _confirmed(said)
    else:
        values["confirmed"] = True
        values |= {"reading": "counted by the training loop", "reading_proved": True}
        values |= {
            "ranks_together": "yes",
            "ranks_evidence": "the training loop averages their gradients",
        }
    return {column.name: values.get(column.name, facts.get(column.name)) for column in ORIGIN}


def _confirmed(said: Mapping[str, Any]) -> bool | None:
    """Tell whether a program's run is what its output says; None for a record that does not
    tell.
    """
    if "proved" not in said or "together" not in said:
        return None
    agrees = said.get("printed_rate", {}).get("agrees", True)
    known = "gaps" not in said
    return bool(said["proved"] and said["together"]["ranks"] == "yes" and agrees and known)


def prove_by_other_batches(runs: Sequence[dict[str, Any]]) -> None:
    """Test readings of a program by its runs at another batch: as many samples must come in fewer
    steps.

    What are no steps, such as epochs, do not become fewer with a larger batch, and a batch that
    does not reach the program changes nothing. Runs that were ended on purpose are left out.
    """
    open_to_proof = [
        run
        for run in runs
        if run.get("reading_proved") is not None and not run.get("stopped_after")
    ]
    for run in open_to_proof:
        if run["reading_proved"]:
            continue
        alike = [
            one
            for one in open_to_proof
            if all(one.get(name) == run.get(name) for name in SAME_PROGRAM)
        ]
        other = next((one for one in alike if _as_many_samples(run, one)), None)
        if other is not None:
            run["reading"] = (
                f"proved by its run at a batch of {other['global_batch']}: as many samples"
            )
            denied = [run.get(name) is False for name in ("printed_rate_agrees", "pauses_known")]
            confirmed = run["ranks_together"] == "yes" and not any(denied)
            run |= {"reading_proved": True, "confirmed": confirmed}


def _as_many_samples(run: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two runs with other batches took so many steps that they saw about as many
    samples.
    """
    steps = [int(one.get("steps") or 0) for one in (run, other)]
    if min(steps) < LEAST_STEPS:
        return False
    batches = [int(one["global_batch"]) for one in (run, other)]
    if max(batches) < APART * min(batches):
        return False
    samples = [count * batch for count, batch in zip(steps, batches, strict=True)]
    return max(samples) - min(samples) <= NEAR * max(samples) + 2 * max(batches)


def measures(record: Record) -> Values:
    """Return COLUMNS of a successful run."""
    values: Values = {"resumes": sum(event.key == "ddlbench_resumed" for event in record.events)}
    if (
        record.spec.program
    ):  # whose output lacks it: the supervisor knows when the program was started
        values["resumes"] = max(len(record.value("ddlbench_reading", {}).get("began_s", [])) - 1, 0)
    for name in ("flops_per_image", "skipped_steps"):
        value = record.value(f"ddlbench_{name}")
        values[name] = Why(UNKNOWN) if value is None else value
    values |= {
        "steps": int(record.steps["step"].nunique()),
        "images_seen": int(record.steps["images"].sum()),
    }
    stats = [event.value or {} for event in record.events if event.key == "tracked_stats"]
    seen = [of_epoch["seen"] for of_epoch in stats if of_epoch.get("correct") is not None]
    values["evaluations"] = sum(event.key == "eval_accuracy" for event in record.events)
    values["validated_images"] = int(min(seen)) if seen else None
    values["validation_images"] = record.value("eval_samples")
    values["begun_s"] = began_s(record.last, record.events[0].time_s)
    values["started_s"] = record.last["run_start"].time_s
    values["run_s"] = train_s(record.last) + begin_and_end_s(record.last, record.events[0].time_s)
    for name in ("data_before_clock_s", "clock_resolution_s"):
        values[name] = record.value(f"ddlbench_{name}")
    said = record.value("ddlbench_reading", {})
    pauses = said.get("pauses", {})
    values["pauses_s"] = pauses.get("seconds", 0.0)
    values["with_pauses_per_s"] = pauses.get("with_pauses_per_s", Why(NO_PAUSES))
    values["pauses_known"] = "gaps" not in said
    if not record.spec.program:
        values |= dict.fromkeys(PAUSES, Why(OURS_VALIDATE))
    printed = said.get("printed_rate")
    for name, key in PRINTED.items():
        values[name] = (
            printed[key] if printed else Why(NO_RATE if record.spec.program else OURS_COUNT)
        )
    values["data_cached_share"] = record.value("ddlbench_facts", {}).get("data_cached_share")
    values["cores_per_rank"] = _cores_per_rank(record)
    if record.spec.reads is None:
        values["data_cached_share"] = Why(f"loader {record.spec.loader} reads nothing")
    return values | interruption(record)


def _cores_per_rank(record: Record) -> float | None:
    """Return the cores that the computer which started the ranks gave each of those on it; None
    where the record does not say.
    """
    facts = record.value("ddlbench_facts", {})
    cores = facts.get("cores")
    here = sum(rank.get("host") == facts.get("host") for rank in record.value("ddlbench_ranks", []))
    return cores / here if here and isinstance(cores, int) else None


def resources(
    ranks: Sequence[Mapping[str, Any]], device: str, unmeasured: Mapping[str, str], only: str = ""
) -> Values:
    """Return RESOURCES from what ranks left (`ddlbench_ranks`); null where a rank lacks a value.

    With `only`, return those alone whose names end with it, such as `energy_j`.

    `unmeasured` are the run's reasons (`ddlbench_not_measured`); a rank's own reason, in its
    `not_measured`, comes first.
    """
    values: Values = {}
    for column in (column for column in OF_RANKS if column.name.endswith(only)):
        name = column.in_record
        asked = [rank for rank in ranks if not column.once_a_node or rank.get("local_rank") == 0]
        of_ranks = [rank[name] for rank in asked if rank.get(name) is not None]
        if asked and len(of_ranks) == len(asked):
            values[column.name] = OVER_RANKS[column.over_ranks](of_ranks)
        else:
            reasons = (rank.get("not_measured", {}).get(name) for rank in asked)
            values[column.name] = Why(next(filter(None, reasons), unmeasured.get(name, UNKNOWN)))
    # Nodes that are namespaces of one host have a first rank each, and a network between them.
    firsts = sum(rank.get("local_rank") == 0 for rank in ranks)
    if ranks and len({rank.get("host") for rank in ranks}) == 1 and firsts <= 1:
        values |= {"network_sent_bytes": Why(ONE_NODE), "network_received_bytes": Why(ONE_NODE)}
    parts = ["device_energy_j", "host_energy_j"] if device == "cuda" else ["host_energy_j"]
    missing = [part for part in parts if isinstance(values[part], Why)]
    if missing:
        values["energy_j"] = Why(f"no {missing[0]}: {values[missing[0]]}")
    else:
        values["energy_j"] = sum(values[part] for part in parts)
    if not only:
        values[OTHERS.name] = _others_cores(ranks)
    return values


def _others_cores(ranks: Sequence[Mapping[str, Any]]) -> float | Why:
    """Return OTHERS, from the CPU time of each node and that of the ranks on it."""
    of_nodes = []
    for host in {str(rank.get("host")) for rank in ranks}:
        here = [rank for rank in ranks if str(rank.get("host")) == host]
        # Nodes that are namespaces of one host: each one counts the complete host.
        whole = [
            rank
            for rank in here
            if _is_time(rank.get("node_cpu_s")) and _is_time(rank.get("wall_s"))
        ]
        if not whole or not all(_is_time(rank.get("cpu_s")) for rank in here):
            return Why(UNKNOWN)
        others_s = max(rank["node_cpu_s"] for rank in whole) - sum(rank["cpu_s"] for rank in here)
        of_nodes.append(max(0.0, others_s / max(rank["wall_s"] for rank in whole)))
    return max(of_nodes, default=Why(UNKNOWN))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < float("inf")


def interruption(record: Record) -> Values:
    """Return INTERRUPTION of a successful run: the cost of being killed on purpose
    (`train/interruption.py`).
    """
    if record.spec.interrupt_steps is None:
        return {column.name: Why("the run was not interrupted") for column in INTERRUPTION}
    note = record.value("ddlbench_interrupted")
    if note is None:
        return {
            column.name: Why("the run ended before it was to be interrupted")
            for column in INTERRUPTION
        }
    later = [
        event
        for event in record.events
        if event.key == "ddlbench_resumed" and event.time_s > note["time_s"]
    ]
    went_on = later[0] if later else record.last["run_start"]  # without a checkpoint it began anew
    step = int(went_on.value["step"]) if later else 0
    took = note["checkpoint_s"]
    return {
        "checkpoint_s": (
            Why("the run was killed before it had written a checkpoint") if took is None else took
        ),
        "lost_steps": note["step"] - step,
        "restart_s": went_on.time_s - note["time_s"],
    }


def variables(command: str) -> dict[str, str]:
    """Return the environment variables that ranks were given: those that `env` gets at the
    beginning of their command.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # written by others
        return {}
    values: dict[str, str] = {}
    for word in words[1:] if words[:1] == ["env"] else []:
        name, equals, value = word.partition("=")
        if not equals:
            break
        values[name] = value
    return values
