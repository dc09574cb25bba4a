"""What people get wrong: each mistake is one line with the file, the key, the value and what is
allowed.
"""

from pathlib import Path

import pytest
import yaml
from ddlbench.core import registry
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError, names_in
from ddlbench.settings.study import load_study

from tests.builders.machines import MACHINE, write_machine
from tests.facts import missing, refuses
from tests.unit.spoiled import Files, bad_input


def test_the_good_files_are_good(files: Files) -> None:
    files.load()


@pytest.mark.parametrize("machine", names_in(CONFIG / "machines", ".yaml"))
@pytest.mark.parametrize("recipe", names_in(CONFIG / "recipes", ".yaml"))
def test_what_we_ship_is_good(files: Files, machine: str, recipe: str) -> None:
    files.machine(machine)
    files.spoil("study", "recipe: demo", f"recipe: {recipe}")
    load_study("mine", files.folder / "studies")


@pytest.mark.parametrize(("kind", "right", "wrong", "facts"), bad_input("mistakes", 3))
def test_a_mistake_is_one_line(
    files: Files, kind: str, right: str, wrong: str, facts: tuple[str, ...]
) -> None:
    if kind == "recipe":
        files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil(kind, right, wrong)
    message = files.complaint()
    assert message.startswith(f"{files.path[kind]}: ")
    assert missing(message, *facts) == []


def test_all_loaders_are_offered(files: Files) -> None:
    files.spoil("study", "[native]", "[nativ]")
    said, loaders = files.complaint(), ", ".join(registry.members("loaders"))
    assert missing(said, 'loaders: "nativ"', "native?", loaders) == []


def test_micro_batches_divide_a_workers_share(files: Files) -> None:
    files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil("recipe", "nesterov: false", "accumulation: 3")
    message = files.complaint()
    assert message.startswith(f"{files.path['study']}: runs.scaling.batch_per_worker: 64 ")
    assert missing(message, "multiples of 1", "accumulation 3") == []


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_norms_of_layers_need_layers(files: Files, optimizer: str) -> None:
    """DeepSpeed's ZeRO shards flat memory, of which nobody knows the layers."""
    files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil("recipe", "nesterov: false", f"optimizer: {optimizer}")
    files.spoil("study", "[ddp]", "[zero]")
    files.spoil("study", "runs:", "variants:\n  zero: {framework: deepspeed, zero_stage: 1}\nruns:")
    message = files.complaint()
    assert message.startswith(f'{files.path["study"]}: runs.scaling.frameworks: "zero" ')
    assert missing(message, "zero_stage: 1", optimizer) == []
    files.spoil("study", "zero_stage: 1", "zero_stage: 0")
    files.spoil("recipe", f"optimizer: {optimizer}", f"optimizer: {optimizer}\nlr_scaling: none")
    files.load()


def test_workers_beyond_a_node_fill_nodes(files: Files) -> None:
    files.spoil("study", "[1, 2]", "[4, 6]")
    message = files.complaint(
        lambda: make_plan(load_study("mine", files.folder / "studies"), files.machine("cluster"))
    )
    assert missing(message, "runs.scaling.workers: 6 ", "multiples of 4") == []


def test_without_timm_the_job_checks_models(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    registry.models.cache_clear()
    files.spoil("study", "[lenet]", "[resnet50]")
    try:
        files.load()
    finally:
        registry.models.cache_clear()


@pytest.mark.parametrize(("shipped", "changes", "facts"), bad_input("machines", 2))
def test_keys_of_a_machine_that_do_not_go_together(
    tmp_path: Path, shipped: str, changes: str, facts: tuple[str, ...]
) -> None:
    with refuses(ConfigError, f"{tmp_path}/mine.yaml: ", *facts):
        write_machine(
            tmp_path,
            yaml.safe_load(MACHINE) if shipped == "mine" else shipped,
            **yaml.safe_load(changes),
        )


def test_a_budget_in_eflop_has_its_peak(tmp_path: Path) -> None:
    assert write_machine(tmp_path, "juwels-booster", budget_unit="EFLOP").budget_unit == "EFLOP"
