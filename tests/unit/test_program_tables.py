"""What stands on records of programs: numbers per sample, settings that are no repeats, and words that fit."""

from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.analysis import claims, comparisons
from ddlbench.analysis.prediction import _priors, _table
from ddlbench.analysis.scaling import scaling
from ddlbench.audit import Material
from ddlbench.audit._audit import audit
from ddlbench.core import kinds
from ddlbench.core.program import Program
from ddlbench.core.spec import of_program
from ddlbench.outlook import what_if
from ddlbench.outlook.application import Paragraph, Table
from ddlbench.outlook.application._content import Given, blocks
from ddlbench.outlook.changed_rates import series
from ddlbench.outlook.recommendation import make as recommendation
from ddlbench.settings.machine import load_machine
from ddlbench.show.page import answer, rows
from ddlbench.show.page.about import Study

RATE = {("bf16", "ddp"): 2000.0, ("bf16", "fsdp"): 1000.0, ("fp32", "ddp"): 900.0, ("fp32", "fsdp"): 1000.0}
SPREAD = (1.0, 0.99, 1.01)


def runs(*workers: int, settings: str = "precision") -> pd.DataFrame:
    """Runs of a program that makes 100 steps, however many workers: it scales without loss."""
    made = []
    for (precision, framework), rate in RATE.items():
        program = Program(
            name="mine", command="train", sample="tokens", settings=((settings, precision), ("framework", framework))
        )
        for count in workers:
            for repeat, factor in enumerate(SPREAD, 1):
                spec = of_program(
                    program, machine="local", device="cpu", workers=count, workers_per_node=min(2, count),
                    global_batch=64 * count, repeat=repeat,
                )  # fmt: skip
                images, speed = 6400 * count, rate * factor * count
                values = {
                    "images": images,
                    "throughput_images_per_s": speed,
                    "final_top1": 0.7,
                    "energy_j": None,
                    "full_energy_j": None,
                }
                values |= dict.fromkeys(("epoch_s", "full_train_s", "train_s", "run_s"), images / speed)
                values |= {"status": "success", "control": False, "command": "train", "cpu": "EPYC", "hosts": "a"}
                values |= dict.fromkeys(("peak_device_memory_bytes", "peak_resident_bytes", "restart_s", "mfu"))
                made.append(spec.columns() | values)
    return pd.DataFrame(made)


RUNS = runs(1, 2, 4)


def test_twice_the_samples_in_as_much_time_is_a_speed_up_of_two() -> None:
    for basis in ("steps", "run"):
        table = scaling(RUNS, basis)
        assert len(table) == 12  # settings are series of their own
        assert table["efficiency"].tolist() == pytest.approx([1.0] * 12)
    shares = ["communication_percent", "computation_percent"]
    columns = {"gpu", *claims.QUANTITIES.values(), *(column.name for column in claims.STATE)} - {*RUNS, *shares}
    known = RUNS.assign(**dict.fromkeys(columns))
    speed_ups = claims._quantities(known, pd.DataFrame(columns=["run", *shares]))
    assert speed_ups[speed_ups["workers"] == 4]["speed_up"].tolist() == pytest.approx([4.0] * 12)


def test_sides_of_a_comparison_share_their_settings() -> None:
    made = pd.DataFrame(comparisons.rows(RUNS))
    ratios = made[made["workers"] == 2].set_index("settings")["ratio"].to_dict()
    assert ratios == {"precision=bf16": pytest.approx(2.0), "precision=fp32": pytest.approx(0.9)}
    assert set(made["n"]) == {3}


def said_by_the_page() -> list[str]:
    study = Study("mine", "Mine", "local", "cpu", "core", "", (), (), {}, sample="tokens")
    costs = pd.DataFrame({"cost": [1.0], "node_hours": [1.0], "currency": ["EUR"]})
    nothing = {name: pd.DataFrame() for name in ("reached", *(kind.TABLE for kind in kinds.beside()))}
    tables = nothing | {"runs": RUNS, "comparisons": pd.DataFrame(comparisons.rows(RUNS)), "costs": costs}
    said = [text for one in answer.first(study, tables, ()).answers for text in (*one.words, *one.others)]
    return [*said, *(head for head, _ in rows.runs(RUNS, load_machine("local").data, {}).columns)]


def said_by_the_application() -> list[str]:
    compared = pd.DataFrame(comparisons.rows(RUNS))
    section = blocks(Given("Mine", load_machine("local"), RUNS, compared, [], [], {}, {}))
    tables = [block for block in section if isinstance(block, Table)]
    words = [block.text for block in section if isinstance(block, Paragraph)]
    return [*words, *(text for table in tables for text in (*table.header, *(row[0] for row in table.rows)))]


def said_by_predictions() -> list[str]:
    return _table.lines(_table.rows(RUNS, 2), "tokens")


def said_by_what_if() -> list[str]:
    changes, workers = what_if.asked({"workers": 8})
    made = what_if.rows(series(RUNS, 2), changes, workers, load_machine("local"), _priors.read())
    return what_if.lines(made, "tokens")


def said_by_the_recommendation() -> list[str]:
    epochs = RUNS[["run"]].assign(epoch=1, top1=0.7)
    machine = replace(load_machine("local"), workers_per_node=2)
    return recommendation.text(recommendation.rows(RUNS, epochs, 0.6, machine), 0.6, machine)


@pytest.mark.parametrize(
    ("said", "holds"),
    [
        (said_by_the_page, "On 4 workers, with mine, precision=bf16, ddp trains 8,000 and fsdp 4,000 tokens/s."),
        (said_by_the_page, "With ddp, precision=bf16, 4 workers are 4 times as fast as 1, 100 % of the ideal 4."),
        (said_by_the_page, "The cheapest training (mine, 6,400 tokens) is ddp, 1 worker: "),
        (said_by_the_page, "tokens/s"),
        (said_by_the_application, "mine, precision=bf16, ddp, batch 64 per worker"),
        (said_by_the_application, "tokens/s"),
        (said_by_predictions, "mine precision=bf16 ddp, batch 64 per worker (measured: 1 2 4 workers): 8 workers: "),
        (said_by_what_if, "computed, not measured: tokens/s"),
        (said_by_the_recommendation, "mine, precision=bf16 to top-1 0.6, 6 candidates:"),
        (
            said_by_the_recommendation,
            "    throughput: 2,000 tokens/s, measured (n = 3); epochs: 1 in all runs, by own runs",
        ),
        (said_by_the_recommendation, "  the least time: ddp, 1 worker, batch 64: "),
    ],
)
def test_sentences_fit_programs(said: object, holds: str) -> None:
    lines = said()  # type: ignore[operator]
    assert any(holds in line for line in lines), "\n".join(lines)
    for line in lines:
        words = line.replace("by own runs", "").replace("no runs of its own", "")
        assert not any(wrong in words for wrong in ("image", "{", " own", "loader", "schedule", "recipe")), line


def test_rules_that_need_what_programs_do_not_say_are_told_what_to_add() -> None:
    epochs = RUNS[["run"]].assign(epoch=1, lr=None)
    found = {row["rule"]: row for row in audit(Material({"runs": RUNS.assign(data_sha256=None), "epochs": epochs}))}
    assert found["same-learning-rates"]["evidence"].endswith("a program says it with rec.step(lr=...), or group lr")
    assert found["same-data"]["evidence"].endswith("; no program can say it")
    assert "no-upper-bound" not in found
    assert "torch_version" not in found.get("origin-recorded", {"evidence": ""})["evidence"]
