"""Pairs of frameworks and of loaders, and the verdicts on them."""

from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import comparisons, tables

from tests.unit.drawings import row

SPREAD = (0.99, 1.0, 1.01)


def compare(*runs: dict[str, Any], **price: Any) -> list[dict[str, Any]]:
    made = comparisons.rows(pd.DataFrame([{"run_s": 3600.0, **run} for run in runs]), **price)
    assert len(tables.frame("comparisons", made)) == len(made)
    return made


def repeats(rate: float, *by: float, **changes: object) -> list[dict[str, Any]]:
    return [row(rate * factor, repeat=n, **changes) for n, factor in enumerate(by or SPREAD, start=1)]


def test_a_pair_of_frameworks_has_a_verdict() -> None:
    (one,) = compare(*repeats(120.0), *repeats(100.0, framework="horovod"))
    assert (one["compared"], one["left"], one["right"], one["with"]) == ("framework", "ddp", "horovod", "dali-cpu")
    assert (one["n"], one["verdict"], one["more_repeats"]) == (3, "faster", None)
    assert one["ratio"] == pytest.approx(1.2)
    assert one["runs"].count(" ") == 5


def test_what_more_repeats_cost_is_said_where_runs_cannot_tell() -> None:
    (one,) = compare(*repeats(101.0, 0.97, 1.0, 1.02), *repeats(100.0, 1.01, 0.99, 1.0, framework="horovod"))
    assert one["verdict"] == "cannot tell"
    assert one["more_repeats"] > 0
    assert one["more_worker_hours"] == pytest.approx(one["more_repeats"] * 2 * 4)  # two sides, 4 workers, an hour
    assert one["more_price"] is one["currency"] is None
    sides = [*repeats(101.0, 0.97, 1.0, 1.02), *repeats(100.0, 1.01, 0.99, 1.0, framework="horovod")]
    (sold,) = compare(*sides, price_per_hour=2.5, currency="EUR")
    assert (sold["more_price"], sold["currency"]) == (pytest.approx(2.5 * one["more_worker_hours"]), "EUR")
    (alone,) = compare(row(120.0), row(100.0, framework="horovod"))
    assert (alone["n"], alone["verdict"], alone["low"], alone["more_repeats"]) == (1, "cannot tell", None, None)


def test_only_like_is_compared() -> None:
    other = [row(100.0, framework="horovod", workers=8), row(100.0, framework="horovod", model="vit")]
    assert compare(row(120.0), *other, row(9.0, framework="fsdp") | {"status": "failed"}) == []
    (one,) = compare(row(120.0, form="tfrecord"), row(100.0, loader="native", form="raw"))
    assert (one["compared"], one["left"], one["right"], one["with"]) == ("loader", "dali-cpu", "native", "ddp")


def test_forms_are_not_repeats_of_one_loader() -> None:
    """Native reads raw and webdataset, DALI tfrecord and webdataset: each of the four is a side of its own."""
    sides = [("native", "raw", 100.0), ("native", "webdataset", 110.0), ("dali-cpu", "tfrecord", 120.0)]
    sides += [("dali-cpu", "webdataset", 130.0), ("synthetic", None, 200.0)]
    made = compare(*(one for loader, form, rate in sides for one in repeats(rate, loader=loader, form=form)))
    pairs = {(one["compared"], one["left"], one["right"], one["with"]): one["ratio"] for one in made}
    assert pairs == {
        ("form", "raw", "webdataset", "ddp and native"): pytest.approx(100 / 110),
        ("form", "tfrecord", "webdataset", "ddp and dali-cpu"): pytest.approx(120 / 130),
        ("loader", "dali-cpu (tfrecord)", "native (raw)", "ddp"): pytest.approx(1.2),  # neither reads the other's form
        ("loader", "dali-cpu (webdataset)", "native (webdataset)", "ddp"): pytest.approx(130 / 110),
        ("loader", "dali-cpu (tfrecord)", "synthetic", "ddp"): pytest.approx(0.6),
        ("loader", "dali-cpu (webdataset)", "synthetic", "ddp"): pytest.approx(0.65),
        ("loader", "native (raw)", "synthetic", "ddp"): pytest.approx(0.5),
        ("loader", "native (webdataset)", "synthetic", "ddp"): pytest.approx(0.55),
    }
    assert {one["n"] for one in made} == {3} and {one["runs"].count(" ") for one in made} == {5}
    frameworks = compare(*repeats(120.0, form="raw"), *repeats(130.0), *repeats(100.0, framework="fsdp", form="raw"))
    assert [one["with"] for one in frameworks if one["compared"] == "framework"] == ["dali-cpu (raw)"]


def test_control_runs_are_on_no_side() -> None:
    controls = [row(60.0, repeat=1000 + n) for n in (1, 2, 3)]
    (one,) = compare(*repeats(120.0), *repeats(100.0, framework="horovod"), *controls)
    assert one["ratio"] == pytest.approx(1.2) and one["runs"].count(" ") == 5
    assert compare(*controls, *repeats(100.0, framework="horovod")) == []
