"""Formulas of scaling, and series of runs over worker counts."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.analysis.scaling import efficiency, scaling, speed_up, throughput
from ddlbench.core.spec import RunSpec

from tests.unit.records import SPEC


def test_formulas() -> None:
    assert throughput(1_281_167.0, 100.0) == pytest.approx(12_811.67)
    assert speed_up(3600.0, 200.0) == 18
    assert efficiency(1.0, 4, 4) == 1  # the paper's base is one node of 4 GPUs
    assert efficiency(194.56, 4, 1024) == pytest.approx(0.76)


def runs_table(*rows: tuple[RunSpec, float]) -> pd.DataFrame:
    """Finished runs of 1200 images with a throughput each."""
    return pd.DataFrame(
        [
            spec.columns() | {"status": "success", "throughput_images_per_s": rate, "epoch_s": 1200 / rate}
            for spec, rate in rows
        ]
    )


def sized(workers: int, batch: int, **changes: object) -> RunSpec:
    return replace(SPEC, workers=workers, workers_per_node=min(4, workers), global_batch=batch, **changes)


def test_weak_scaling_over_repeats() -> None:
    table = scaling(
        runs_table(
            (sized(8, 512, repeat=1), 150.0),
            (sized(8, 512, repeat=2), 200.0),
            (sized(4, 256, repeat=1), 100.0),
            (sized(4, 256, repeat=2), 100.0),
        )
    )
    assert list(table["workers"]) == [4, 8]
    assert list(table["repeats"]) == [2, 2]
    assert set(table["batch_per_worker"]) == {64}
    assert table["global_batch"].isna().all()
    assert list(table["ref_workers"]) == [4, 4]
    base, row = table.iloc[0], table.iloc[1]
    assert (base["speed_up"], base["efficiency"]) == (1, 1)
    # Two repeats: the median is the geometric mean. T_4 = 12 s; T_8 = 8 s and 6 s, pair by pair.
    assert row["throughput_images_per_s"] == pytest.approx(math.sqrt(150 * 200))
    assert row["speed_up"] == pytest.approx(math.sqrt(12 / 8 * 12 / 6))
    width = 1.12 * 12.7062 * math.log(8 / 6) / 2  # t of one degree of freedom; two logarithms differ by so much
    assert row["speed_up_low"] == pytest.approx(row["speed_up"] * math.exp(-width), rel=1e-4)
    assert row["speed_up_high"] == pytest.approx(row["speed_up"] * math.exp(width), rel=1e-4)
    for end in ("", "_low", "_high"):
        assert row[f"efficiency{end}"] == pytest.approx(row[f"speed_up{end}"] / 2)
    assert base[["speed_up_low", "speed_up_high"]].isna().all()  # by itself


def test_the_middle_of_repeats_is_no_mean() -> None:
    rates = {1: (100.0, 100.0, 100.0), 2: (190.0, 195.0, 50.0)}
    table = scaling(runs_table(*((sized(w, 64 * w, repeat=r), x) for w, xs in rates.items() for r, x in enumerate(xs))))
    assert table["throughput_images_per_s"].tolist() == pytest.approx([100, 190])
    assert table["speed_up"].tolist() == pytest.approx([1, 1.9])
    assert table["repeats"].tolist() == [3, 3]


def test_of_one_run_there_is_no_interval_but_the_spread_of_its_steps() -> None:
    runs = runs_table(*((sized(w, 64 * w), 90.0 * w) for w in (1, 2)))
    table = scaling(runs.assign(step_p5_s=0.08, step_median_s=0.1, step_p95_s=0.2))
    assert table[["speed_up_low", "efficiency_high", "throughput_images_per_s_low"]].isna().all(axis=None)
    assert table["spread_low"].tolist() == pytest.approx([0.5, 0.5])
    assert table["spread_high"].tolist() == pytest.approx([1.25, 1.25])
    several = pd.concat([runs, runs.assign(repeat=2)]).assign(step_p5_s=0.08, step_median_s=0.1, step_p95_s=0.2)
    assert scaling(several)["spread_low"].isna().all()


def test_equal_global_batches_are_strong_scaling() -> None:
    table = scaling(
        runs_table(*((sized(w, batch), 100.0 * w) for w in (1, 2, 4) for batch in (256, 512) if (w, batch) != (2, 512)))
    )
    assert table["batch_per_worker"].isna().all()
    assert list(zip(table["global_batch"], table["workers"], strict=True)) == [
        (256, 1), (256, 2), (256, 4), (512, 1), (512, 4),
    ]  # fmt: skip
    assert list(table["efficiency"]) == pytest.approx([1, 1, 1, 1, 1])


def test_a_weak_and_a_strong_series_share_a_point() -> None:
    """The point is in both, whichever of the two has more of the others, and whichever ones failed."""
    weak, strong = [sized(w, 64 * w) for w in (1, 2, 4)], [sized(w, 256) for w in (1, 2, 8)]
    runs = runs_table(*((spec, 100.0 * spec.workers) for spec in (*weak, *strong)))
    said = ["weak", "weak", None, "strong", "strong", "strong"]
    table = scaling(runs.assign(scaling=said))
    of = table.groupby("batch_per_worker", dropna=False)["workers"].agg(list)
    assert of.tolist() == [[1, 2, 4], [1, 2, 4, 8]]
    assert table["global_batch"].dropna().unique().tolist() == [256]
    assert table["efficiency"].tolist() == pytest.approx([1] * 7)
    # A batch of which no block says anything is kept as gives fewer series.
    more = pd.concat([runs.assign(scaling=said), runs_table((sized(4, 512), 350.0))], ignore_index=True)
    assert scaling(more)["batch_per_worker"].dropna().unique().tolist() == [64, 128]


def test_runs_that_read_nothing_scale_as_others_do() -> None:
    """Their form is null."""
    runs = runs_table(*((sized(w, 64 * w, loader="synthetic"), 90.0 * w) for w in (1, 2)))
    assert runs["form"].isna().all()
    table = scaling(runs)
    assert list(table["ref_workers"]) == [1, 1]
    assert list(table["speed_up"]) == pytest.approx([1, 2])


def test_series_have_bases_of_their_own_and_only_timed_successful_runs() -> None:
    runs = runs_table(
        (sized(1, 64), 100.0),
        (sized(2, 128), 150.0),
        (sized(2, 128, framework="horovod"), 100.0),
        (sized(4, 256, framework="horovod"), 190.0),
        (sized(1, 64, loader="synthetic"), 400.0),
    )
    runs.loc[4, "status"] = "failed"
    runs = pd.concat([runs, runs_table((sized(4, 256, timed=False), float("nan")))], ignore_index=True)
    table = scaling(runs)
    assert list(table["framework"]) == ["ddp", "ddp", "horovod", "horovod"]
    assert list(table["ref_workers"]) == [1, 1, 2, 2]
    assert list(table["efficiency"]) == pytest.approx([1, 0.75, 1, 0.95])
    assert scaling(runs.iloc[4:5]).empty


def test_control_runs_are_no_repeats() -> None:
    table = runs_table((sized(4, 256, repeat=1), 100.0), (sized(4, 256, repeat=1001), 50.0))
    (row,) = scaling(table).to_dict("records")
    assert (row["repeats"], row["throughput_images_per_s"]) == (1, 100.0)


def test_runs_that_were_killed_on_purpose_are_no_series() -> None:
    left_alone, killed = sized(4, 256), sized(4, 256, interrupt_steps=24)
    assert scaling(runs_table((left_alone, 80.0), (killed, 60.0)))["throughput_images_per_s"].tolist() == [80.0]
