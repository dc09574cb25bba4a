"""Each question that a study's axes ask has a sentence with its interval, of runs that differ in nothing else."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.analysis import together
from ddlbench.analysis.tables import frame
from ddlbench.show.page import answer, asked
from ddlbench.show.page.words import Sentence

from tests.unit.drawings import row
from tests.unit.test_page import NOTHING

NOISE = (-0.001, 0.0, 0.001)


def runs(*rows: dict[str, object]) -> pd.DataFrame:
    return together.usable(frame("runs", [*rows]))


def trained(top1: float, repeats: int = 3, **changes: object) -> list[dict[str, object]]:
    """Repeats of a training of three epochs on 4 workers, with this top-1."""
    given = {"workers": 4, "workers_per_node": 4} | changes
    return [row(100.0 * (1 + by), top1=top1 + by, repeat=n, **given) for n, by in enumerate(NOISE[:repeats], start=1)]


def only(found: list[Sentence | str]) -> Sentence:
    (one,) = found
    assert isinstance(one, Sentence)
    return one


def test_a_study_over_batches_and_schedules_says_what_large_batches_cost() -> None:
    tops = {("step", 256): 0.77, ("step", 8192): 0.74, ("step", 65536): 0.41, ("cosine", 256): 0.775}
    tops |= {("cosine", 8192): 0.74, ("cosine", 65536): 0.31}
    table = runs(*(one for (s, size), top in tops.items() for one in trained(top, schedule=s, global_batch=size)))
    said = only([*asked.batches(table)])
    assert said.words == (
        "resnet50: from batch 256 to 65536, top-1 changes by -47 to -46 points with cosine, by -36 points with step. "
        "More than a point is surely lost from batch 8192 on."
    )
    assert said.sure == "95 % intervals, 3 runs each"
    assert len(said.runs) == 18
    said = only([*asked.schedules(table)])
    assert said.words == (
        "resnet50: at batch 256, cosine is 0.5 points above step; at batch 65536, step is 10 points above cosine."
    )


def test_batches_that_change_nothing_are_said_to_lose_nothing() -> None:
    table = runs(*trained(0.77, global_batch=256), *trained(0.77, global_batch=512))
    said = only([*asked.batches(table)])
    assert re.search(r"top-1 changes by 0 points with step\. More than a point is surely lost at no batch", said.words)


def test_numbers_of_workers_alone_are_no_question_about_batches() -> None:
    """Two numbers of workers have two batches, because workers grow; three and more are a series over batches."""
    two = [one for n in (4, 8) for one in trained(0.7, workers=n, global_batch=64 * n)]
    assert [*asked.batches(runs(*two))] == []
    three = [*two, *trained(0.6, workers=16, global_batch=1024)]
    assert "from batch 256 to 1024" in only([*asked.batches(runs(*three))]).words


def test_single_runs_make_no_sentence() -> None:
    table = runs(*trained(0.77, repeats=1, global_batch=256), *trained(0.6, repeats=1, global_batch=512))
    assert [*asked.batches(table)] == [f"1 series of resnet50 over batches have {asked.WITHOUT}."]
    table = runs(*trained(0.7, repeats=1), *trained(0.6, repeats=1, schedule="cosine"))
    assert [*asked.schedules(table)] == [f"Schedules of resnet50 have {asked.WITHOUT}."]
    table = runs(*trained(0.7, repeats=1), *trained(0.7, repeats=1, framework="horovod"))
    assert [*asked.memory(table, "GPUs")] == [f"The memory of resnet50 under its frameworks: {asked.WITHOUT}."]
    assert [*asked.cost(table, "GPUs", None)] == [f"Costs of resnet50: {asked.WITHOUT}."]


def test_memory_is_said_of_the_most_workers_that_all_frameworks_had() -> None:
    def held(framework: str, workers: int, size: float) -> list[dict[str, object]]:
        of = trained(0.7, framework=framework, workers=workers, global_batch=64 * workers)
        return [one | {"peak_device_memory_bytes": round(size * (1 + by))} for one, by in zip(of, NOISE, strict=True)]

    table = runs(*held("ddp", 4, 9e9), *held("zero-1", 4, 6e9), *held("ddp", 8, 8e9), *held("zero-1", 8, 4e9),
                 *held("ddp", 16, 1e9))  # fmt: skip
    assert only([*asked.memory(table, "GPUs")]).words == (
        "resnet50 with dali-cpu on 8 GPUs: a worker takes the least GPU memory with zero-1, 4 GB; ddp 2 times that."
    )


def test_costs_are_said_of_the_cheapest_and_the_fastest() -> None:
    def took(seconds: float, workers: int) -> list[dict[str, object]]:
        of = trained(0.7, workers=workers, global_batch=64 * workers)
        return [one | {"full_train_s": seconds * (1 + by)} for one, by in zip(of, NOISE, strict=True)]

    table = runs(*took(7200.0, 4), *took(5400.0, 8))
    assert only([*asked.cost(table, "GPUs", (10.0, "EUR"))]).words == (
        "resnet50, 3 epochs: cheapest is ddp, dali-cpu on 4 GPUs, 2 node hours (20 EUR) in 2 h; "
        "fastest is ddp, dali-cpu on 8 GPUs, 3 node hours (30 EUR) in 1.5 h."
    )
    costs = pd.DataFrame([{"run": "a", "node_hours": 4.0, "cost": 40.0, "currency": "EUR"}])
    assert asked.price(costs) == (10.0, "EUR")
    assert asked.price(costs.assign(cost=None)) is None


def test_what_was_killed_or_is_a_control_is_in_no_sentence() -> None:
    control = trained(0.7, global_batch=512)
    table = runs(
        *trained(0.7, global_batch=256),
        *(one | {"repeat": 1000 + int(str(one["repeat"]))} for one in control),
        *trained(0.7, framework="horovod", interrupt_steps=60),
    )
    assert len(table) == 3
    assert [*asked.batches(table)] == [] and [*asked.memory(table, "GPUs")] == []


@pytest.mark.parametrize("unit", ["workers", "GPUs"])
def test_the_answer_has_one_first_sentence_per_question(unit: str) -> None:
    table = frame("runs", [*trained(0.77, global_batch=256), *trained(0.6, global_batch=512, schedule="step")])
    found = answer.answer(NOTHING | {"runs": table, "comparisons": frame("comparisons", [])}, (), unit)
    assert [*found.questions] == ["Batch size", "Cost"]
    broken = replace(found.said[0], unfair=("same-data",))
    assert (broken.words, broken.question) == (found.said[0].words, "Batch size")
