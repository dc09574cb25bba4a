"""ResNet-50 on pictures that lie on the device, in the ways that studies use, against published rates of such GPUs.

Judged by what others published (`config/references/resnet50-one-gpu.csv`) are only runs that are made as the published
one was: the same kind of GPU, precision, and layout of memory. Of the first run also the power is judged. Then each
loader reads made-up pictures, beside that first run as the ceiling.
"""

from collections.abc import Iterator
from typing import Any

from ddlbench.analysis.record import Record
from ddlbench.commands.gpucheck import MEASURED, SKIPPED, Outcome, judged
from ddlbench.commands.gpucheck._bench import Bench, each, images_per_s
from ddlbench.core import registry
from ddlbench.core.files import read_csv
from ddlbench.core.spec import RunSpec
from ddlbench.settings.config import CONFIG

LIMIT_S = 900
FILE = CONFIG / "references" / "resnet50-one-gpu.csv"
# Ours needs this share of what is judged against. The published rates are those of GPUs with faster memory (A100 with
# 80 GB: 2.0 TB/s, with 40 GB: 1.6 TB/s), and most steps of ResNet-50 wait for memory.
ENOUGH = 0.75
# Of the power limit. The counter is of millijoules, and the limit holds on the mean over some seconds; an idle A100
# takes an eighth of its limit.
POWER_LEAST, POWER_MOST = 0.2, 1.1
# Of the ceiling: what two runs of one kind may differ by; slower than the least is no loader, but something that hangs.
CEILING, LEAST, MOST = "ddp, bf16", 0.02, 1.05
LAST = {"channels_last": True}


def runs(bench: Bench) -> dict[str, RunSpec]:
    """The runs, by what a row calls them."""
    ways: dict[str, tuple[str, str, dict[str, Any]]] = {
        CEILING: ("ddp", "bf16", {}),
        "ddp, bf16, channels last": ("ddp", "bf16", LAST),
        "ddp, bf16, channels last, cudnn_benchmark": ("ddp", "bf16", LAST | {"cudnn_benchmark": True}),
        "ddp, bf16, channels last, compiled": ("ddp", "bf16", LAST | {"compile": True}),
        "ddp, fp16, channels last": ("ddp", "fp16", LAST),
        "ddp, tf32": ("ddp", "tf32", {}),
        "horovod, bf16": ("horovod", "bf16", {}),
        "fsdp, bf16": ("fsdp", "bf16", {}),
        "deepspeed, bf16": ("deepspeed", "bf16", {}),
        **{f"deepspeed, ZeRO {n}, bf16": ("deepspeed", "bf16", {"zero_stage": n}) for n in (1, 2, 3)},
    }
    specs = {what: bench.spec(name, precision, options=options) for what, (name, precision, options) in ways.items()}
    return specs | {"ddp, bf16, 64 images a step": bench.spec(global_batch=64)}  # the host has the least time for each


def loaders(bench: Bench) -> dict[str, RunSpec]:
    """Each loader in each form that it reads."""
    forms = {name: registry.member("loaders", name).FORMS for name in registry.members("loaders")}
    return {
        f"{name}, {form}": bench.spec(loader=name, form=form if form in read[1:] else None)
        for name, read in forms.items()
        for form in read
    }


def check(bench: Bench) -> Iterator[Outcome]:
    """One row per run; after those on pictures of the device the powers of the first one that was made."""
    gpu = None
    if bench.device == "cuda":
        import torch

        gpu = str(torch.cuda.get_device_name())
    records: dict[str, Record] = {}

    def ways(what: str, spec: RunSpec) -> Outcome:
        records[what] = bench.train(spec)
        return compare(what, images_per_s(records[what]), gpu, spec)

    def reading(what: str, spec: RunSpec) -> Outcome:
        rate = images_per_s(bench.train(spec, bench.pictures(spec.reads or "raw")))
        if CEILING not in records:
            return Outcome(what, MEASURED, f"no ceiling: the run {CEILING} failed", rate, "images/s")
        share = rate / images_per_s(records[CEILING])
        compared = f"{share:.0%} of the ceiling; expected: {LEAST:.0%} to {MOST:.0%}"
        return Outcome(what, judged(LEAST <= share <= MOST), compared, rate, "images/s")

    yield from each(bench, runs(bench), ways)
    for record in list(records.values())[:1]:
        yield power(record, "device_energy_j", "power of GPU")
        yield power(record, "host_energy_j", "power of CPUs and memory")
    yield from each(bench, loaders(bench), reading)


def power(record: Record, column: str, what: str) -> Outcome:
    """Energy over time. Plausible is a busy GPU's, by its limit; nobody says what a host's is."""
    rank = record.value("ddlbench_ranks")[0]
    if rank.get(column) is None:
        return Outcome(what, SKIPPED, str(record.value("ddlbench_not_measured", {}).get(column, "not measured")))
    power_w, limit_w = rank[column] / rank["wall_s"], rank.get("device_power_limit_w")
    if column != "device_energy_j" or limit_w is None:
        return Outcome(what, MEASURED, "energy over time, validation in it", power_w, "W")
    compared = f"expected: {POWER_LEAST:.0%} to {POWER_MOST:.0%} of its limit, {limit_w:.0f} W (NVML)"
    return Outcome(what, judged(POWER_LEAST * limit_w <= power_w <= POWER_MOST * limit_w), compared, power_w, "W")


def compare(what: str, rate: float, gpu: str | None, spec: RunSpec) -> Outcome:
    """Our rate [images/s] beside those published for this kind of GPU and precision."""
    if gpu is None:
        return Outcome(what, MEASURED, "a CPU; published are rates of GPUs", rate, "images/s")
    rows = [row for row in read_csv(FILE) if row["gpu"] in gpu]
    kind = [row for row in rows if row["precision"] == spec.recipe.precision]
    if not kind:
        return Outcome(
            what, MEASURED, f"no rate in {spec.recipe.precision} is published here for {gpu}", rate, "images/s"
        )
    beside = ", ".join(
        f"{rate / float(row['images_per_s']):.0%} of {row['images_per_s']} ({row['of']})" for row in kind
    )
    layout = "channels last" if spec.option("channels_last") else "contiguous"
    yardsticks = [float(row["images_per_s"]) for row in kind if row["judged"] == layout]
    if not yardsticks:
        return Outcome(what, MEASURED, beside, rate, "images/s")
    return Outcome(what, judged(rate >= ENOUGH * max(yardsticks)), f"{beside}; enough: {ENOUGH:.0%}", rate, "images/s")
