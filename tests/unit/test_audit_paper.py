"""The audit finds the faults of Aach et al. 2023 in its published numbers."""

from pathlib import Path

import pandas as pd
from ddlbench.audit import Material, _findings
from ddlbench.audit._audit import audit
from ddlbench.audit._material import published

from tests.conftest import ROOT


def of_paper(*rows: dict[str, object]) -> list[dict[str, str]]:
    given = pd.DataFrame(
        [{"model": "resnet50", "relation": "approx", "source": "A: x", "unit": "1", **r} for r in rows]
    )
    return audit(Material({"numbers": given.assign(row=[f"row {n}" for n in range(len(rows))])}))


def errors(rows: list[dict[str, str]], rule: str) -> list[str]:
    return [row["evidence"] for row in rows if row["rule"] == rule and row["severity"] != _findings.NOT_CHECKED]


def test_the_paper_an_efficiency_without_its_base() -> None:
    rows = of_paper({"quantity": "efficiency", "workers": 1024, "value": 0.76})
    assert errors(rows, "base-is-named") == ["efficiency 0.76 at 1024 workers names no base"]


def test_the_paper_234_times_beside_an_efficiency_of_0_76() -> None:
    rows = of_paper(
        {"quantity": "speed-up", "workers": 1024, "value": 234.0, "ref_workers": 4},
        {"quantity": "efficiency", "workers": 1024, "value": 0.76, "ref_workers": 4},
    )
    assert errors(rows, "efficiency-from-speed-up") == [
        "speed-up 234 at 1024 workers, base 4, is efficiency 0.91; said is 0.76"
    ]


def test_the_paper_two_numbers_for_the_native_loader_at_512() -> None:
    native = {"quantity": "efficiency", "workers": 512, "loader": "native", "framework": "any"}
    rows = of_paper(
        native | {"relation": "below", "value": 0.24, "source": "A: Efficiency section"},
        native | {"value": 0.45, "source": "A: Conclusion"},
    )
    assert errors(rows, "contradicting-numbers") == ["efficiency is less than 0.24, and 0.45"]


def test_the_paper_a_base_at_a_quarter_of_what_the_hardware_gives() -> None:
    rows = of_paper(
        {"quantity": "efficiency", "workers": 1024, "value": 0.76, "ref_workers": 4}
        | {"base_images_per_s": 2467.0, "ceiling_images_per_s": 10_916.0}
    )
    assert errors(rows, "slow-base") == ["the base makes 2467 images/s, the ceiling 10916: a share of 0.23"]


def test_the_paper_runtimes_that_contradict_efficiencies() -> None:
    rows = audit(published([ROOT / "config/references/aach2023.csv"]))
    assert "13 h on 4 and 200 s on 1024 workers are efficiency 0.91; said is 0.76" in errors(
        rows, "efficiency-from-runtimes"
    )
    assert errors(rows, "base-is-named")
    assert errors(rows, "published-accuracy-range") == errors(rows, "mixed-scaling") == []


def test_the_paper_table_2() -> None:
    rows = audit(published([ROOT / "config/references/aach2023-kernels.csv"]))
    assert errors(rows, "repeated-cells") == ["io_percent 11.87 and cudnn_percent 24.45 stand in 2 rows"]
    ratios = errors(rows, "multiple-columns")
    assert [said.split(" in ")[0] for said in ratios] == [
        "io_percent is 0.506 of cudnn_percent",
        "io_percent is 0.679 of cudnn_percent",
    ]
    assert errors(rows, "shares-add-up") == []


def test_the_paper_accuracy_of_the_last_batch(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("run,validated_images,validation_images\nx,64,50000\n")
    rows = audit(published([tmp_path / "a.csv"]))
    assert errors(rows, "whole-validation-set") == ["accuracy of 64 images; the validation split has 50000"]


def test_the_paper_words_against_its_own_numbers() -> None:
    names = ("claims.csv", "aach2023.csv")
    rows = audit(published([ROOT / "config/references" / name for name in names]), ["claims-against-tables"])
    said = errors(rows, "claims-against-tables")
    assert said == [
        "efficiency is said to be less than 0.24, the table has 0.45",
        "efficiency is said to be 0.45, the table has less than 0.24",
    ]
