"""Does a run fit the machine, and do its parts fit each other? If not: ConfigError, with the key
that says so.

`runs.py` asks, once per run. Whether the software is there, `reads.py` asks.
"""

from ddlbench.core import registry
from ddlbench.core.schedule import warm_up_fault
from ddlbench.core.spec import RunSpec, smallest_share, steps_per_epoch
from ddlbench.data import datasets
from ddlbench.settings.config import complain, names_in
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study

LONGEST_ID = 240  # bytes: a file name may have 255; temporary names are a little longer


def check_workers(
    study: Study, key: str, machine: Machine, workers: int, smaller: str = ""
) -> None:
    """Raise ConfigError if there are not so many workers, or they fill parts of nodes.

    `smaller`: what may be done instead.
    """
    if workers > machine.workers:
        allowed = f"allowed: at most {machine.workers}, what machine {machine.name} has{smaller}"
        raise complain(study.path, key, workers, allowed)
    if workers > machine.workers_per_node and workers % machine.workers_per_node:
        allowed = (
            f"allowed: multiples of {machine.workers_per_node}, a node of machine {machine.name}"
        )
        raise complain(study.path, key, workers, allowed)


def check_axes(
    study: Study, block: Block, machine: Machine, loader: str, workers: int, batch: int
) -> None:
    """Check what can be checked before there is a RunSpec. Raises ConfigError."""
    where, smaller = f"runs.{block.name}", "; fit: true leaves out larger numbers"
    twin = f"{study.name.removesuffix('-short')}-small"
    if workers > machine.workers and twin in names_in(study.path.parent, ".yaml"):
        smaller = f"; study {twin} is for small machines"
    check_workers(study, f"{where}.workers", machine, workers, smaller)
    nodes = -(-workers // machine.workers_per_node)
    if machine.launcher == "slurm" and machine.partition(nodes) is None:
        allowed = (
            f"allowed: at most the nodes of one partition of machine {machine.name}; none has"
            f" {nodes} nodes"
        )
        raise complain(study.path, f"{where}.workers", workers, allowed)
    if block.global_batch and batch % workers:
        raise complain(
            study.path,
            f"{where}.global_batch",
            batch,
            f"allowed: multiples of its {workers} workers",
        )
    member = registry.member("loaders", loader)
    # One that reads nothing takes part in a comparison of loaders, whatever the form.
    if member.FORMS and block.form is not None and block.form not in member.FORMS:
        allowed = f"allowed: {', '.join(member.FORMS)}, what loader {loader} reads"
        raise complain(study.path, f"{where}.form", block.form, allowed)
    if member.DEVICE not in (None, machine.device):
        needs = (
            f"it needs device {member.DEVICE}; machine {machine.name} has device {machine.device}"
        )
        raise complain(study.path, f"{where}.loaders", loader, needs)


def check_id(study: Study, block: Block, spec: RunSpec) -> None:
    """Raise ConfigError if the run's id is too long for a file name."""
    if len(spec.id) > LONGEST_ID:
        allowed = (
            f"allowed: ids of at most {LONGEST_ID} characters; shorten names of machine, recipe or"
            " variant"
        )
        raise complain(study.path, f"runs.{block.name}", spec.id, allowed)


def check_run(study: Study, block: Block, machine: Machine, spec: RunSpec) -> None:
    """Check all settings of a run. Raises ConfigError."""
    where, recipe = f"runs.{block.name}", spec.recipe
    if spec.global_batch % (spec.workers * recipe.accumulation):
        key, batch = "global_batch", spec.global_batch
        if not block.global_batch:
            key, batch = "batch_per_worker", spec.batch_per_worker
        allowed = (
            f"allowed: multiples of {spec.workers} workers x accumulation {recipe.accumulation} of"
            " its recipe"
        )
        raise complain(study.path, f"{where}.{key}", batch, allowed)
    if spec.bandwidth_mbit and machine.launcher != "namespaces":
        allowed = f"machine {machine.name} has launcher {machine.launcher}; allowed there: left out"
        raise complain(study.path, f"{where}.bandwidths_mbit", spec.bandwidth_mbit, allowed)
    if spec.bandwidth_mbit and spec.nodes == 1:
        allowed = "allowed: left out with 1 worker, which has no cable to a second worker"
        raise complain(study.path, f"{where}.bandwidths_mbit", spec.bandwidth_mbit, allowed)
    if recipe.precision == "tf32" and machine.device != "cuda":
        allowed = (
            f"machine {machine.name} has device {machine.device}; allowed there: fp32, bf16, fp16"
        )
        raise complain(block.recipe_file.path, "precision", recipe.precision, allowed)
    if recipe.sync_batch_norm and machine.device != "cuda":
        needs = (
            f"synchronised batch norm needs GPUs; machine {machine.name} has device"
            f" {machine.device}"
        )
        raise complain(
            block.recipe_file.path, "sync_batch_norm", True, f"{needs}; allowed there: false"
        )
    able = registry.models_with_zero_init_last()
    if recipe.zero_init_last is not None and able and spec.model not in able:
        allowed = f"model {spec.model} has no residual blocks that can choose; allowed for it: null"
        raise complain(block.recipe_file.path, "zero_init_last", recipe.zero_init_last, allowed)
    check_id(study, block, spec)
    shipped = spec.dataset in registry.members(
        "datasets"
    )  # of a set of the user's, its manifest knows
    images = datasets.get(spec.dataset).IMAGES["train"] if shipped else 0
    least = smallest_share(images, spec.global_batch, spec.workers)
    if recipe.sync_batch_norm and shipped and spec.workers > 1 and least < recipe.accumulation:
        last = (
            f"in an epoch's last step a worker has {least} images for accumulation"
            f" {recipe.accumulation}"
        )
        allowed = (
            "allowed with sync_batch_norm: batches whose last step has images for each worker;"
            f" {last}"
        )
        raise complain(study.path, f"{where}.global_batch", spec.global_batch, allowed)
    steps = spec.epochs * steps_per_epoch(images, spec.global_batch)
    if spec.interrupt_steps is not None and shipped and spec.interrupt_steps >= steps:
        allowed = f"allowed: less than its {steps} steps with a global batch of {spec.global_batch}"
        raise complain(study.path, f"{where}.interrupt.steps", spec.interrupt_steps, allowed)
    reason = registry.member("frameworks", spec.adapter).refuses(spec)
    if reason:
        raise complain(study.path, f"{where}.frameworks", spec.framework, reason)
    fault = warm_up_fault(spec)
    if fault:
        raise complain(study.path, f"{where}.schedules", spec.schedule, fault)
