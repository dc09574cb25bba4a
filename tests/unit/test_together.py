"""Which runs belong together is said in one file: what it says, and the faults that were.

What stands on records of programs: numbers per sample, settings that are no repeats, and words that
fit.
"""

import json
from dataclasses import fields, replace

import pandas as pd
import pytest
from ddlbench.analysis import claims, comparisons, together
from ddlbench.analysis.price import Tariff
from ddlbench.analysis.scaling import scaling
from ddlbench.answers import Choice, Given, choose, wording
from ddlbench.answers.questions import workers
from ddlbench.audit import Material
from ddlbench.audit.check import audit
from ddlbench.core import kinds, spec
from ddlbench.core.program import Program
from ddlbench.core.spec import ROLES, RunSpec, of_program
from ddlbench.outlook import predictions
from ddlbench.outlook.series import all_series
from ddlbench.settings.machine import load_machine
from ddlbench.show.figures import Options, _scaling
from ddlbench.show.page import about, rows

from tests.facts import missing
from tests.unit.test_scaling import runs_table, sized


def one_killed() -> pd.DataFrame:
    """Two repeats of a series, whose rates double; one that was killed is far off."""
    rows = [(sized(w, 64 * w, repeat=r), 100.0 * w) for w in (1, 2, 4) for r in (1, 2)]
    rows += [(sized(4, 256, interrupt_steps=3), 2.0)]
    table = runs_table(*rows)
    return table.assign(
        full_train_s=2 * table["epoch_s"], train_s=table["epoch_s"], run_s=1.0, energy_j=1.0
    )


def test_every_column_of_a_run_has_a_role() -> None:
    assert {"run", *ROLES} == {*spec.COLUMNS}
    declared = {f.name for f in fields(RunSpec)} - {"program"} | {"settings"}  # of a program
    assert declared <= ROLES.keys()
    assert all(ROLES[name].means for name in declared)
    assert all(other in ROLES for role in ROLES.values() for other in role.follows)


def test_only_comparable_runs_are_usable() -> None:
    runs = one_killed()
    assert len(together.usable(runs)) == len(runs) - 1
    assert len(together.successful(runs)) == len(runs)
    assert together.usable(runs.assign(status="failed")).empty
    assert len(together.timed(runs.assign(throughput_images_per_s=None))) == 0


@pytest.mark.parametrize(("value", "count"), [("raw", 1), (None, 2)])
def test_null_is_like_null(value: str | None, count: int) -> None:
    table = pd.DataFrame({"form": ["raw", None, None], "workers": 2})
    assert (
        len(together.rows_like(table, {"form": value, "workers": 2}, ["form", "workers"])) == count
    )


def test_what_differs_with_something_else() -> None:
    assert together.differing_with("loader") == {"loader", "form", "augmentation"}
    assert together.differing_with("framework") == {"framework", "options"}
    assert {"workers", "global_batch", "batch_per_worker"} <= together.differing_with("workers")
    assert {"exponential_start", "cosine_moves"} <= together.differing_with("schedule")
    assert not {"repeat", "timed", "loader_threads"} & {*together.SAME}


def test_words() -> None:
    names = [
        "model",
        "workers",
        "of_epochs",
        "global_batch",
        "bandwidth_mbit",
        "interrupt_steps",
        "form",
    ]
    told = together.words(names, ["lenet", 1, 90.0, 64, 1000.0, 3, None])
    assert told.split(", ") == [
        "lenet",
        "1 worker",
        "90 epochs",
        "batch 64",
        "1000 Mbit/s",
        "killed after 3 steps",
    ]
    assert [together.title(n, v) for n, v in (("global_batch", 64), ("form", None), ("x", 3))] == [
        "batch size 64",
        "no data read",
        "3",
    ]


class TestFaultsOfBefore:
    """Killed runs counted in what they are no part of."""

    def test_a_sentence_names_the_runs_that_its_interval_rests_on(self) -> None:
        runs = one_killed()
        row = scaling(runs, "run").iloc[-1].to_dict()
        told = workers.answer(Given({"runs": runs.assign(final_top1=None)}), Choice())
        assert row["repeats"] == 2
        assert told and len(told.runs) == 6

    def test_predictions(self) -> None:
        row, *_ = predictions.rows(all_series(one_killed(), 4), load_machine("local"))
        assert len(row["runs"].split()) == 6
        assert "interrupt" not in row["runs"]

    def test_series(self) -> None:
        runs = one_killed()
        runs.loc[6:, "epoch_s"] = 1e9
        (found,) = all_series(runs, 4)
        assert found.images == pytest.approx(1200)

    @pytest.mark.parametrize(
        ("machine", "profile"),
        [
            ("local", "local"),
            ("juwels-booster", "juwels"),
            ("slurm", "slurm"),
            ("jurecadc", "slurm"),
        ],
    )
    def test_a_page_says_the_profile_of_its_machine(self, machine: str, profile: str) -> None:
        known = load_machine("juwels-booster" if machine == "jurecadc" else machine)
        assert about.profile(replace(known, name=machine)) == f"profiles/{profile}"


RATE = {
    ("bf16", "ddp"): 2000.0,
    ("bf16", "fsdp"): 1000.0,
    ("fp32", "ddp"): 900.0,
    ("fp32", "fsdp"): 1000.0,
}
SPREAD = (1.0, 0.99, 1.01)


def runs(*workers: int, settings: str = "precision") -> pd.DataFrame:
    """Runs of a program that makes 100 steps, however many workers: it scales without loss."""
    made = []
    for (precision, framework), rate in RATE.items():
        program = Program(
            name="mine",
            command="train",
            sample="tokens",
            settings=((settings, precision), ("framework", framework)),
        )
        for count in workers:
            for repeat, factor in enumerate(SPREAD, 1):
                spec = of_program(
                    program, machine="local", device="cpu", workers=count, workers_per_node=min(2, count),
                    global_batch=64 * count, repeat=repeat,
                )  # fmt: skip
                images, speed = 6400 * count, rate * factor * count
                values = {"images": images, "throughput_images_per_s": speed, "final_top1": 0.7}
                values |= dict.fromkeys(("energy_j", "full_energy_j"))
                values |= dict.fromkeys(
                    ("epoch_s", "full_train_s", "train_s", "run_s"), images / speed
                )
                values |= {
                    "status": "success",
                    "control": False,
                    "command": "train",
                    "cpu": "EPYC",
                    "hosts": "a",
                }
                values |= dict.fromkeys(
                    ("peak_device_memory_bytes", "peak_resident_bytes", "restart_s", "mfu")
                )
                made.append(spec.columns() | values)
    return pd.DataFrame(made)


RUNS = runs(1, 2, 4)


def test_twice_the_samples_in_as_much_time_is_a_speed_up_of_two() -> None:
    for basis in ("steps", "run"):
        table = scaling(RUNS, basis)
        assert len(table) == 12  # settings are series of their own
        assert table["efficiency"].tolist() == pytest.approx([1.0] * 12)
        drawn = _scaling.data({"runs": RUNS}, Options("", "cpu", "", basis=basis), "speed_up")
        further = drawn[drawn["workers"] > drawn["ref_workers"]]
        assert (
            further["each"].map(lambda dots: sorted(json.loads(dots))[1]).tolist()
            == further["speed_up"].tolist()
        )
    shares = ["communication_percent", "computation_percent"]
    columns = {"gpu", *claims.QUANTITIES.values(), *(column.name for column in claims.STATE)} - {
        *RUNS,
        *shares,
    }
    known = RUNS.assign(**dict.fromkeys(columns))
    speed_ups = claims.quantities(known, pd.DataFrame(columns=["run", *shares]))
    assert speed_ups[speed_ups["workers"] == 4]["speed_up"].tolist() == pytest.approx([4.0] * 12)


def test_sides_of_a_comparison_share_their_settings() -> None:
    made = pd.DataFrame(comparisons.rows(RUNS))
    ratios = made[made["workers"] == 2].set_index("settings")["ratio"].to_dict()
    assert ratios == {"precision=bf16": pytest.approx(2.0), "precision=fp32": pytest.approx(0.9)}
    assert set(made["n"]) == {3}


def said_by_the_page(found: pd.DataFrame = RUNS) -> list[str]:
    nothing = {
        name: pd.DataFrame() for name in ("reached", *(rule.table for rule in kinds.non_training()))
    }
    screen = choose.first(
        nothing | {"runs": found}, (), tariff=Tariff(1.0, "EUR", 2), sample="tokens"
    )
    told = [wording.told(answer, wording.Nouns("worker", "tokens")) for answer in screen.answers]
    said = [text for words in told for text in (words.words, *words.others)]
    return [*said, *(head for head, _ in rows.runs(RUNS, load_machine("local").data, {}).columns)]


@pytest.mark.parametrize("sample", ["images", "tokens"])
def test_headings_have_the_word_of_what_is_counted(sample: str) -> None:
    table = pd.DataFrame({"images": [8], "throughput_images_per_s": [2.0], "batch": [4]})
    columns = {"images": "So many. [images]", "throughput_images_per_s": "Their rate. [images/s]"}
    columns |= {"batch": "Of images."}
    made = rows.plain("t", "T", "", table, columns, set(), sample=sample)
    assert [head for head, _ in made.columns] == [sample, f"throughput [{sample}/s]", "batch"]
    assert [means.split(". ")[-1] for _, means in made.columns] == [
        *(f"[{sample}]", f"[{sample}/s]", "Of images.")
    ]


def said_by_predictions() -> list[str]:
    return predictions.lines(predictions.rows(all_series(RUNS, 2), load_machine("local")), "tokens")


@pytest.mark.parametrize(
    ("said", "holds"),
    [
        (said_by_the_page, ("ddp 8,000 tokens/s", "fsdp 4,000")),
        (said_by_the_page, ("precision=bf16", "ddp", 2, "fsdp", 0.9)),
        (said_by_the_page, ("4 workers", 4, 1, "ddp")),
        (said_by_the_page, ("mine", "6,400 tokens")),
        (said_by_predictions, ("mine, ddp, precision=bf16", "batch 64", "1 2 4 workers")),
    ],
)
def test_sentences_fit_programs(said: object, holds: tuple[object, ...]) -> None:
    lines = said()  # type: ignore[operator]
    assert any(missing(line, *holds) == [] for line in lines), "\n".join(lines)
    for line in lines:
        words = line.replace("by own runs", "").replace("no runs of its own", "")
        assert not any(
            wrong in words for wrong in ("image", "{", " own", "loader", "schedule", "recipe")
        ), line


def test_rules_that_need_what_programs_do_not_say_are_told_what_to_add() -> None:
    epochs = RUNS[["run"]].assign(epoch=1, lr=None)
    found = {
        row["rule"]: row
        for row in audit(Material({"runs": RUNS.assign(data_sha256=None), "epochs": epochs}))
    }
    assert missing(found["same-learning-rates"]["evidence"], "rec.step(lr=...)", "group lr") == []
    assert "same-data" not in found  # no program can say it
    assert "no-upper-bound" not in found
    assert "torch_version" not in found.get("origin-recorded", {"evidence": ""})["evidence"]


def test_a_repeat_that_ended_early_is_found_and_more_workers_are_none() -> None:
    assert audit(Material({"runs": RUNS}), ["same-samples"]) == []
    (row,) = audit(
        Material({"runs": RUNS.assign(images=RUNS["images"].where(RUNS.index != 4, 100))}),
        ["same-samples"],
    )
    assert row["runs"].startswith(RUNS["run"][4]) and "100 in 1 run" in row["evidence"]


def test_a_programs_name_stands_once_where_a_study_has_two() -> None:
    other = RUNS.assign(model="other", run="other-" + RUNS["run"])
    said = said_by_the_page(pd.concat([RUNS, other], ignore_index=True))
    facts = ("mine", "batch 256", "4 workers", "precision=bf16", "ddp", "8,000 tokens/s")
    assert any(missing(line, *facts) == [] for line in said), said
