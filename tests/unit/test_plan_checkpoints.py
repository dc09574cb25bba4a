"""The plan's room for checkpoints, against checkpoints that are written, and against the models themselves."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ddlbench.core import plural
from ddlbench.plan import bill, checkpoints, reads
from ddlbench.plan import table as plan_table
from ddlbench.plan.measured import Measured
from ddlbench.plan.runs import Plan
from ddlbench.settings.config import CONFIG
from ddlbench.settings.study import load_study
from ddlbench.train import checkpoint, models, optimizers

from tests.specs import pick
from tests.unit.test_checkpoint import save


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw", "lamb"])
def test_room_is_what_checkpoints_take(paper: Plan, tmp_path: Path, optimizer: str) -> None:
    """Three ranks of a replicated model, with batch norm's statistics, random states and losses of their own."""
    spec = pick(paper, model="resnet50", framework="ddp", workers=1024, loader="dali-cpu-only")
    recipe = replace(spec.recipe, optimizer=optimizer, image_size=32)
    spec = replace(spec, model="resnet8_half", workers=3, recipe=recipe)
    model = models.build(spec.model, 1000, 32)
    engine = optimizers.build(recipe, model)
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    engine.step()
    losses, part = [0.1 + n for n in range(1252)], []
    for rank in range(spec.workers):
        own = {name: value + rank if "running" in name else value for name, value in model.state_dict().items()}
        state = {"model": own, "optimizer": engine.state_dict()}
        random = {"cpu": checkpoint.random_state()["cpu"] + torch.tensor(rank, dtype=torch.uint8)}
        part.append({"engine": state, "random": random, "losses": losses})
    written = sum(save(tmp_path, part))
    room = checkpoints.room(spec)
    assert room is not None
    written *= checkpoints.AT_ONCE
    assert written < room.bytes < written + 1_000_000  # of a small model, what is around its tensors is a large part
    assert room.inodes == checkpoints.AT_ONCE * len([tmp_path, *(tmp_path / checkpoint.FOLDER).glob("*/*")])


def test_replicated_once_whatever_the_workers_and_sharded_with_its_masters(paper: Plan) -> None:
    """ResNet-50 at 1024 ranks took 209 GB each time when every rank saved all of it."""
    spec = pick(paper, model="resnet50", framework="ddp", workers=1024, loader="dali-cpu-only")
    of = {}
    for stage in (0, 1, 2, 3):
        options = (("framework", "deepspeed"), ("zero_stage", stage))
        of[stage] = checkpoints.room(replace(spec, framework="zero", options=options))
    of["ddp"] = checkpoints.room(spec)
    gb = {key: round(room.bytes / 1e9, 2) for key, room in of.items() if room}
    assert gb == {0: 0.97, 1: 1.17, 2: 1.17, 3: 0.97, "ddp": 0.97}


def test_a_model_that_is_in_no_table_is_as_large_as_a_record_says(paper: Plan) -> None:
    spec = replace(pick(paper, model="resnet50", framework="ddp", workers=8, loader="dali-cpu-only"), model="resnet26")
    assert checkpoints.room(spec) is None
    told = {"model": "resnet26", "recipe": {"image_size": spec.recipe.image_size}}
    one = Measured(told, 1, 1.0, 0.0, 1.0, None, None, 8e6)
    shard, other = replace(one, held_bytes=1e6), replace(one, spec={"model": "other"}, held_bytes=1e9)
    room = checkpoints.room(spec, [shard, one, other])
    assert room is not None
    assert room.bytes == pytest.approx(2 * (2 * 8e6 + 8 * checkpoints.RANK_BYTES + checkpoints.FIRST_RANK_BYTES))


def test_the_plan_counts_them(paper: Plan, tmp_path: Path) -> None:
    table = bill.rows(paper, {"imagenet": 1281167}, tmp_path)
    most = max(row.checkpoint_bytes or 0 for row in table)
    assert 1.5e9 < most < 2.5e9  # ResNet-152 on 1024 workers
    text = "\n".join(plan_table.lines(paper, table, reads.forms(paper, {})))
    assert f"Checkpoints: at most {plural.amount(most / 1e9)} GB for a run while it trains" in text
    table = [replace(row, model="own", checkpoint_bytes=None, checkpoint_inodes=None) for row in table[:1]]
    text = "\n".join(plan_table.lines(paper, table, []))
    assert "Checkpoints of own are not counted: nobody knows how large before there is a record." in text


def test_models_of_all_studies_are_counted() -> None:
    known = set()
    shows_others_records = {"mlperf"}  # it has no runs, and is refused where its records are not
    for path in (CONFIG / "studies").glob("*.yaml"):
        if path.stem in shows_others_records:
            continue
        for block in load_study(path.stem).blocks:
            known |= {(model, block.recipe_file.image_size) for model in block.models or ()}
    assert len(known) > 10
    assert [key for key in known if key not in checkpoints.sizes() and (key[0], None) not in checkpoints.sizes()] == []


@pytest.mark.slow
def test_sizes_are_the_models() -> None:
    for (name, image_size), size in checkpoints.sizes().items():
        with torch.device("meta"):
            model = models.build(name, 1000, image_size or 224)
        assert size.parameters == sum(p.numel() for p in model.parameters()), name
        assert size.buffers == sum(b.numel() for b in model.buffers()), name
