"""What people get wrong: each mistake is one line with the file, the key, the value and what is allowed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.core import registry
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError, names_in
from ddlbench.settings.study import load_study

from tests.unit.spoiled import CLUSTER, MACHINE, Files, write_machine


def test_the_good_files_are_good(files: Files) -> None:
    files.load()


@pytest.mark.parametrize("machine", names_in(CONFIG / "machines", ".yaml"))
@pytest.mark.parametrize("recipe", names_in(CONFIG / "recipes", ".yaml"))
def test_what_we_ship_is_good(files: Files, machine: str, recipe: str) -> None:
    files.machine(machine)
    files.spoil("study", "recipe: demo", f"recipe: {recipe}")
    load_study("mine", files.folder / "studies")


# kind, right, wrong, then parts of the message behind "<file>: ": the key with its value, what is allowed
UNKNOWN_NAMES = [
    ("study", "[ddp]", "[dpp]", 'runs.scaling.frameworks: "dpp"', "allowed: ddp,", "did you mean ddp?"),
    ("study", "[native]", "[dali_cpu]", 'runs.scaling.loaders: "dali_cpu"', "dali-cpu", "did you mean dali-cpu?"),
    ("study", "[lenet]", "[lenett]", 'models: "lenett"', "names, such as lenet", "did you mean lenet?"),
    (
        "study",
        "[cosine]",
        "[cosin]",
        'schedules: "cosin"',
        "cosine, exponential, polynomial, step",
        "did you mean cosine?",
    ),
    ("study", "mnist5k", "minst5k", 'dataset: "minst5k"', "mnist5k", "did you mean mnist5k?"),
    ("study", "recipe: demo", "recipe: dmeo", 'recipe: "dmeo"', "aach2023", "did you mean demo?"),
    ("study", "plot: eff", "plot: ef", 'figures.efficiency.plot: "eficiency"', "throughput", "mean efficiency?"),
    ("study", "runs: [scaling]", "runs: [scalin]", 'efficiency.runs: "scalin"', "batch-size", "mean scaling?"),
    ("study", ": aach2023", ": aach2022", 'efficiency.reference: "aach2022"', "aach2023", "mean aach2023?"),
    ("study", "{loader:", "{loaders:", "select.loaders: unknown column", "such as loader", "did you mean loader?"),
    ("machine", "launcher: local", "launcher: slrum", 'launcher: "slrum"', "local, namespaces, slurm", "mean slurm?"),
    ("machine", "device: cpu", "device: gpu", 'device: "gpu"', "cpu, cuda"),
]

MISSPELT_KEYS = [
    ("study", "epochs:", "epoch:", "epoch: unknown key", "epochs", "did you mean epochs?"),
    ("study", "    frameworks:", "    framework:", "runs.scaling.framework: unknown key", "mean frameworks?"),
    ("study", "    plot:", "    plto:", "figures.efficiency.plto: unknown key", "plot, reference", "mean plot?"),
    ("machine", "nodes:", "node:", "node: unknown key", "did you mean nodes?"),
    ("cluster", "max_nodes:", "maxnodes:", "partitions.0.maxnodes: unknown key", "name", "mean max_nodes?"),
    ("recipe", "base_lr:", "baselr:", "baselr: unknown key", "did you mean base_lr?"),
    (
        "config",
        "study:",
        "studdy:",
        "studdy: unknown key",
        "account, checkpoint, data, machine, max_gpu_hours, study",
        "did you mean study?",
    ),
    ("config", "study:", "1:", "1: unknown key", "study"),
]

COUNTS = [
    ("study", "[1, 2]", "[0]", "runs.scaling.workers.0: 0", "at least 1"),
    ("study", "[1, 2]", "[1, -2]", "runs.scaling.workers.1: -2", "at least 1"),
    ("study", "[1, 2]", "[2, 2]", "runs.scaling.workers: [2, 2]", "allowed: each item once"),
    ("study", "[1, 2]", "[4]", "runs.scaling.workers: 4", "allowed: at most 2, what machine mine has"),
    ("study", "[128]", "[129]", "runs.batch-size.global_batch: 129", "multiples of its 2 workers"),
    ("study", "[64]", "[0]", "batch_per_worker.0: 0", "at least 1"),
    ("study", "epochs: 2", "epochs: 0", "epochs: 0", "at least 1"),
    ("study", "repeats: 1", "repeats: -1", "repeats: -1", "at least 1"),
    ("machine", "nodes: 1", "nodes: 0", "nodes: 0", "at least 1"),
    ("machine", "nodes: 1", "nodes: 2", "nodes: 2", "allowed: 1, because launcher is local"),
    ("machine", "1000", "0", "images_per_s.lenet: 0", "more than 0"),
    ("cluster", "nodes: 2", "nodes: 3", "nodes: 3", "allowed: at most 2", "partitions"),
    ("recipe", "warmup_epochs: 1", "warmup_epochs: -1", "warmup_epochs: -1", "at least 0"),
    ("recipe", "0.1", "0", "base_lr: 0", "more than 0"),
    ("recipe", "0.1", ".inf", "base_lr: Infinity", "allowed: a number"),
    ("recipe", "0.1", ".nan", "base_lr: NaN", "allowed: a number"),
    ("recipe", "momentum: 0.9", "momentum: 5", "momentum: 5", "less than 1"),
    ("recipe", "nesterov: false", "power: 0", "power: 0", "more than 0"),
    ("recipe", "nesterov: false", "decay_epochs: 0", "decay_epochs: 0", "more than 0"),
    ("recipe", "nesterov: false", "clip_norm: 0", "clip_norm: 0", "more than 0"),
    ("recipe", "nesterov: false", "beta2: 1", "beta2: 1", "less than 1"),
    ("recipe", "nesterov: false", "accumulation: 0", "accumulation: 0", "at least 1"),
]

OF_RECIPES = [
    ("recipe", "nesterov: false", "optimizer: lasr", 'optimizer: "lasr"', "adamw, lamb, lars, sgd", "mean lars?"),
    ("recipe", "nesterov: false", "lr_scaling: square", 'lr_scaling: "square"', "linear, none, sqrt"),
    ("recipe", "nesterov: false", "precision: tf32", 'precision: "tf32"', "machine mine has device cpu", "fp32, bf16"),
    (
        "recipe",
        "nesterov: false",
        "by_batch: [{global_batch: 96, base_lr: 1}, {global_batch: 120, base_lr: 2}]",
        "by_batch: 64 is not",
        "allowed: batch sizes from 96 to 120",
    ),
    (
        "recipe",
        "nesterov: false",
        "by_batch: [{global_batch: 128, base_lr: 1}, {global_batch: 64, base_lr: 2}]",
        "by_batch: [128, 64]",
        "allowed: ascending batch sizes",
    ),
    (
        "recipe",
        "nesterov: false",
        "by_batch: [{global_batch: 64, base_lr: 1}, {global_batch: 64, base_lr: 2}]",
        "by_batch: [64, 64]",
        "allowed: ascending batch sizes",
    ),
    (
        "recipe",
        "nesterov: false",
        "by_batch: [{global_batch: 64, base_lr: 1}, {global_batch: 128, base_lr: 2, momentum: 0.9}]",
        'by_batch.1: ["global_batch", "base_lr", "momentum"]',
        "the keys of the first row: global_batch, base_lr",
    ),
    ("recipe", "nesterov: false", "by_batch: [{global_batch: 64}]", "by_batch.0.base_lr: is missing"),
]

WRONG_TYPES = [
    ("study", "epochs: 2", "epochs: '2'", 'epochs: "2"', "allowed: a whole number"),
    ("study", "epochs: 2", "epochs: true", "epochs: true", "allowed: a whole number"),
    ("study", "epochs: 2", "epochs: 2.0", "epochs: 2.0", "allowed: a whole number"),
    ("study", "[1, 2]", "2", "runs.scaling.workers: 2", "allowed: a list", "write it as [2]"),
    ("study", "[1, 2]", "[1, true]", "runs.scaling.workers.1: true", "allowed: a whole number"),
    ("study", "[ddp]", "ddp", 'runs.scaling.frameworks: "ddp"', "allowed: a list", "write it as [ddp]"),
    ("study", "[ddp]", "[1]", "runs.scaling.frameworks.0: 1", "allowed: text"),
    ("study", "title: A study", "title: [a]", 'title: ["a"]', "allowed: text"),
    ("study", "{loader: native}", "{loader: {a: b}}", 'select.loader: {"a": "b"}', "a list"),
    ("machine", "{A: b}", "{A: true}", "environment.A: true", "a whole number, or text"),
    ("machine", "workers_per_node: 2", "workers_per_node: two", 'node: "two"', "at least 1, or null"),
    ("recipe", "false", "0", "nesterov: 0", "allowed: true or false"),
    ("recipe", "[1, 2]", "[one]", 'step_epochs.0: "one"', "allowed: a number"),
    ("config", "study: mine", "study: 7", "study: 7", "allowed: text"),
]

NOTHING = [
    ("study", "[1, 2]", "[]", "runs.scaling.workers: []", "at least 1 item"),
    ("study", "[ddp]", "[]", "runs.scaling.frameworks: []", "at least 1 item"),
    ("study", "{loader: native}", "{loader: []}", "select.loader: []", "at least 1 item"),
    ("study", "[1, 2]", "", "runs.scaling.workers: null", "allowed: a list"),
    ("study", "mnist5k", "null", "dataset: null", "allowed: text"),
    ("study", "epochs: 2", "epochs:", "epochs: null", "allowed: a whole number"),
    ("study", "epochs: 2\n", "", "runs.scaling: epochs or measure is missing", "top level"),
    ("study", "title: A study\n", "", "title: is missing", "what the study asks"),
    ("study", "    plot: efficiency\n", "", "figures.efficiency.plot: is missing", "which figure"),
    (
        "study",
        "    batch_per_worker: [64]\n",
        "",
        "runs.scaling: batch_per_worker or global_batch is missing",
        "top level",
    ),
    ("study", "[64]", "[64]\n    global_batch: [64]", "runs.scaling: [", "exactly one of"),
    ("machine", "device: cpu\n", "", "device: is missing", "computes on"),
    ("machine", "CPU core", "", "device_name: null", "allowed: text"),
    ("machine", "results/data", "''", 'data: ""', "at least 1 character"),
    ("machine", "results/data", "results/{x}", 'data: "results/{x}"', "allowed: a path without braces"),
    ("cluster", "workers_per_node: 4\n", "", "workers_per_node: is missing", "launcher slurm"),
    ("recipe", "base_batch: 256\n", "", "base_batch: is missing", "global batch size"),
    ("config", "machine: mine\n", "", "machine: is missing", "config/machines"),
]

NAMES_IN_PATHS = [
    ("study", "recipe: demo", "recipe: ../recipes/demo", 'recipe: "../recipes/demo"', "allowed: letters, digits"),
    ("study", "[lenet]", "['$(touch x)']", 'models.0: "$(touch x)"', "allowed: letters, digits"),
    ("study", "  efficiency:", "  ../efficiency:", 'figures: "../efficiency"', "allowed: letters, digits"),
    ("study", "  scaling:", "  sca ling:", 'runs: "sca ling"', "allowed: letters, digits"),
    ("config", "study: mine", "study: ../mine", 'study: "../mine"', "allowed: letters, digits"),
    ("config", "account: null", "account: a b", 'account: "a b"', "allowed: letters, digits"),
    ("machine", "{A: b}", "{'A B': c}", 'environment: "A B"', "text matching"),
    ("machine", "{A: b}", "{A: b}\nmodules: [a; b]", 'modules.0: "a; b"', "text matching"),
    ("cluster", "name: gpu", "name: '-x'", 'partitions.0.name: "-x"', "allowed: letters, digits"),
]


NOT_TOGETHER = [
    (
        "study",
        "[native]",
        "[dali-gpu]",
        'runs.scaling.loaders: "dali-gpu"',
        "needs device cuda; machine mine has device cpu",
    ),
    (
        "study",
        "repeats: 1",
        "repeats: 1\nform: tfrecord",
        'runs.scaling.form: "tfrecord"',
        "allowed: raw, webdataset, what loader native",
    ),
    ("study", "repeats: 1", "repeats: 1\nform: tfrecords", ': form: "tfrecords"', "did you mean tfrecord?"),
    (
        "study",
        "[native]",
        "[nativ]",
        'runs.scaling.loaders: "nativ"',
        f"allowed: {', '.join(registry.members('loaders'))} (did you",
    ),
    ("machine", "lenet: 1000", "lenett: 1000", ": images_per_s.lenett: unknown model; ", "did you mean lenet?"),
]


@pytest.mark.parametrize(
    "row",
    UNKNOWN_NAMES + MISSPELT_KEYS + COUNTS + OF_RECIPES + WRONG_TYPES + NOTHING + NAMES_IN_PATHS + NOT_TOGETHER,
    ids=lambda row: f"{row[0]}: {row[3]}",
)
def test_a_mistake_is_one_line(files: Files, row: tuple[str, ...]) -> None:
    kind, right, wrong, *says = row
    if kind == "recipe":
        files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil(kind, right, wrong)
    message = files.complaint()
    assert message.startswith(f"{files.path[kind]}: ")
    for part in says:
        assert part in message


def test_published_numbers_that_no_figure_can_draw(files: Files) -> None:
    files.spoil("study", "reference: aach2023", "reference: mlperf-rcp-resnet50")
    message = files.complaint()
    assert f"{files.path['study']}: figures.efficiency.reference: " in message
    assert '"mlperf-rcp-resnet50" is not allowed; plot efficiency can draw nothing of it: ' in message
    assert "it can draw efficiency, the file has base_lr, " in message
    files.spoil("study", "reference: mlperf-rcp-resnet50", "reference: aach2023")
    files.spoil("study", "plot: efficiency", "plot: step-times")
    assert "it draws no published numbers, the file has efficiency, runtime, speed-up, top1" in files.complaint()


def test_a_setting_of_other_figures(files: Files) -> None:
    files.spoil("study", "    reference: aach2023", "    basis: run")
    files.load()
    files.spoil("study", "basis: run", "basis: epochs")
    assert 'figures.efficiency.basis: "epochs" is not allowed; allowed: run, steps' in files.complaint()
    files.spoil("study", "basis: epochs", "basis: run")
    files.spoil("study", "plot: efficiency", "plot: throughput")
    assert "figures.efficiency.basis: plot throughput has no such setting; leave it out" in files.complaint()


def test_a_fault_of_the_top_level_is_told_as_such(files: Files) -> None:
    files.spoil("study", "models: [lenet]", "models: [lenet]\nframeworks: [dpp]")
    files.spoil("study", "    frameworks: [ddp]\n", "")
    assert f'{files.path["study"]}: frameworks: "dpp"' in files.complaint()


def test_micro_batches_divide_a_workers_share(files: Files) -> None:
    files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil("recipe", "nesterov: false", "accumulation: 3")
    message = files.complaint()
    assert message.startswith(f"{files.path['study']}: runs.scaling.batch_per_worker: 64 is not allowed; ")
    assert "multiples of 1 workers x accumulation 3 of its recipe" in message


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_norms_of_layers_need_layers(files: Files, optimizer: str) -> None:
    """DeepSpeed's ZeRO shards flat memory, of which nobody knows the layers."""
    files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil("recipe", "nesterov: false", f"optimizer: {optimizer}")
    files.spoil("study", "[ddp]", "[zero]")
    files.spoil("study", "runs:", "variants:\n  zero: {framework: deepspeed, zero_stage: 1}\nruns:")
    message = files.complaint()
    assert message.startswith(f'{files.path["study"]}: runs.scaling.frameworks: "zero" is not allowed; ')
    assert f"zero_stage: 1 lays layers end to end, and {optimizer} needs each" in message
    files.spoil("study", "zero_stage: 1", "zero_stage: 0")
    files.spoil("recipe", f"optimizer: {optimizer}", f"optimizer: {optimizer}\nlr_scaling: none")
    files.load()


def test_warmup_does_not_fall(files: Files) -> None:
    files.spoil("study", "recipe: demo", "recipe: mine")
    message = files.complaint()
    assert message.startswith(f'{files.path["study"]}: runs.scaling.schedules: "cosine" is not allowed; ')
    assert "warm-up would fall from 0.1 to 0.025, the rate of recipe mine at 64 images a step" in message
    assert "allowed: a warmup_lr of at most 0.025" in message


def test_workers_beyond_a_node_fill_nodes(files: Files) -> None:
    files.spoil("study", "[1, 2]", "[4, 6]")
    message = files.complaint(lambda: make_plan(load_study("mine", files.folder / "studies"), files.machine("cluster")))
    assert "runs.scaling.workers: 6 is not allowed; allowed: multiples of 4" in message


def test_a_cluster_needs_a_partition(files: Files) -> None:
    text = CLUSTER.split("partitions:")[0]
    files.path["cluster"].write_text(text, encoding="utf-8")
    assert f"{files.path['cluster']}: partitions: is missing" in files.complaint()


def test_without_timm_the_job_checks_models(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    registry.models.cache_clear()
    files.spoil("study", "[lenet]", "[resnet50]")
    try:
        files.load()
    finally:
        registry.models.cache_clear()


@pytest.mark.parametrize("size", ["", "x", "-32", "0", "3.2", "\uff13\uff12", "032"])
def test_a_rate_is_of_a_size_in_pixels(files: Files, size: str) -> None:
    files.spoil("machine", "lenet: 1000", f'"lenet@{size}": 1000')
    message = files.complaint()
    assert message.startswith(f"{files.path['machine']}: images_per_s.lenet@{size}: ")
    assert message.endswith("allowed after @: the pixels of a side, as 32")


EFLOP = {"budget_unit": "EFLOP"}


# a machine that we ship, or `mine`; the keys that it says otherwise, null for those that may be left out; the message
@pytest.mark.parametrize(
    ("shipped", "changes", "says"),
    [
        ("slurm", {"preflight": {"nodes": "most"}}, r'preflight\.nodes: "most" .* a whole number, at least 1, or all'),
        ("slurm", {"preflight": {"nodes": 0}}, r"preflight\.nodes: 0 .* at least 1"),
        ("slurm", {"preflight": {"nodes": 999}}, r"preflight\.nodes: 999 .* allowed: all, null, or a number up to \d"),
        ("slurm", {"preflight": {"node": 1}}, r"preflight\.node: unknown key; allowed: nodes"),
        ("slurm", {"exclude_nodes": ["a b"]}, r'exclude_nodes\.0: "a b" is not allowed'),
        ("slurm", {"exclude_nodes": "node3"}, r'exclude_nodes: "node3" .* a list, .*write it as \[node3\]'),
        ("mine", {"exclude_nodes": ["node3"]}, "exclude_nodes.* allowed: none, because launcher is local"),
        ("mine", {"data_gres": "gpu:1"}, "data_gres.* allowed: none, because launcher is local"),
        ("mine", {"node_hours_between_interruptions": 10}, "interruptions_source: null is not allowed"),
        ("mine", {"node_hours_between_interruptions": 0}, "node_hours_between_interruptions: 0 .* more than 0"),
        ("mine", {"node_hours_between_interruptions": "often"}, 'interruptions: "often" .* a number'),
        ("juwels-booster", EFLOP | {"budget_tflops_per_worker": None}, 'budget_unit: "EFLOP" .*name budget_tflops_per'),
        ("slurm", {"budget_unit": "core hours"}, 'budget_unit: "core hours" .*name cores_per_node_billed'),
        ("mine", {"currency": "EUR"}, 'currency: "EUR" .* allowed: one with price_per_gpu_hour, none without'),
        ("local-netem", {"nodes": 3}, "nodes: 3 is not allowed; allowed: 2, because launcher is namespaces"),
        ("local-netem", {"workers_per_node": 2}, "workers_per_node: 2 is not allowed; allowed: 1"),
        ("local-netem", {"device": "cuda"}, 'device: "cuda" is not allowed; allowed: cpu'),
        ("local-netem", {"environment": {"GLOO_SOCKET_IFNAME": "e0"}}, r"environment\.GLOO_SOCKET_IFNAME"),
        ("local-netem", {"slurm_flags": ["--x"]}, "slurm_flags.* allowed: none, because launcher is namespaces"),
    ],
)
def test_keys_of_a_machine_that_do_not_go_together(
    tmp_path: Path, shipped: str, changes: dict[str, Any], says: str
) -> None:
    given = yaml.safe_load(MACHINE) if shipped == "mine" else shipped
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(tmp_path))}/mine\.yaml: .*{says}"):
        write_machine(tmp_path, given, **changes)


def test_a_budget_in_eflop_has_its_peak(tmp_path: Path) -> None:
    assert write_machine(tmp_path, "juwels-booster", **EFLOP).budget_unit == "EFLOP"
