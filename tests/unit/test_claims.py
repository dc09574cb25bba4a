"""Claims of sources, judged by runs made by hand."""

from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis import claim_verdicts, claims
from ddlbench.analysis.claim_verdicts import CONTRADICTED, NOT_TESTABLE, SUPPORTED, UNDECIDED
from ddlbench.settings.config import CONFIG

from tests.builders.tables import repeats, row
from tests.facts import missing

FILE = CONFIG / "references/claims.csv"
HEAD = "id,source,place,claim,quantity,left,right,relation,value,why\n"
MORE = {
    "network_sent_bytes": None,
    "cpu_cores": None,
    "gpu": "NVIDIA A100-SXM4-40GB",
}  # beside what `row` has


def judged(tmp_path: Path, line: str, *runs: dict[str, object]) -> dict[str, object]:
    (tmp_path / "claims.csv").write_text(HEAD + f"c,s,p,words,{line}\n")
    table = pd.DataFrame([MORE | run for run in runs])
    shares = {"communication_percent": 20.0, "computation_percent": 60.0}
    said = claim_verdicts.verdicts(
        claims.read(tmp_path / "claims.csv"), table, table[["run"]].assign(**shares)
    )
    (only,) = said.to_dict("records")
    return only


@pytest.mark.parametrize(("records", "verdict"), [("ours", SUPPORTED), ("mlperf", UNDECIDED)])
def test_files_of_others_make_no_pairs_by_their_numbers(
    tmp_path: Path, records: str, verdict: str
) -> None:
    """Each pair has the ratio 1.1, and each side varies by a third."""
    factors = (0.7, 1.0, 1.3)
    runs = [
        run | {"records": records}
        for name, rate in (("ddp", 110.0), ("horovod", 100.0))
        for run in repeats(rate, *factors, framework=name)
    ]
    said = judged(tmp_path, "throughput,framework=ddp,framework=horovod,ordering,,", *runs)
    assert said["verdict"] == verdict


SPEEDS = ("efficiency", "speed-up", "runtime", "throughput", "variation")
SCALING = [*repeats(100.0, workers=4), *repeats(190.0, workers=8)]


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("throughput,workers=8,,above,150,", "images/s"),
        ("throughput,workers=8,workers=4,factor,1.9,", "1"),
        ("efficiency,workers=8,,above,0.8,", "1"),
        ("top1,workers=16,,above,76,", "%"),  # published, though no run can judge it
        (",,,,,only in words", None),
    ],
)
def test_numbers_have_a_unit(tmp_path: Path, line: str, unit: str | None) -> None:
    assert judged(tmp_path, line, *SCALING)["unit"] == unit
    assert claims.UNITS.keys() < claims.QUANTITIES.keys()


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("throughput,workers=8,,above,150,", SUPPORTED),
        ("throughput,workers=8,,above,250,", CONTRADICTED),
        ("throughput,workers=8,,above,190,", UNDECIDED),
        ("throughput,workers=8,,below,250,", SUPPORTED),
        ("throughput,workers=8,,below,150,", CONTRADICTED),
        ("throughput,workers=8,,about,185,", SUPPORTED),
        ("throughput,workers=8,,about,100,", CONTRADICTED),
        ("throughput,workers=8,,about,172,", UNDECIDED),  # its interval crosses 172 + 10 %
        ("throughput,workers=8,workers=4,ordering,,", SUPPORTED),
        ("throughput,workers=4,workers=8,ordering,,", CONTRADICTED),
        ("throughput,workers=8,workers=4,factor,1.9,", SUPPORTED),
        ("throughput,workers=8,workers=4,factor,5,", CONTRADICTED),
        ("efficiency,workers=8,,above,0.8,", SUPPORTED),
        ("speed-up,workers=8,,below,1.2,", CONTRADICTED),
        ("variation,workers=8,,below,0.05,", SUPPORTED),
        ("variation,workers=8,,below,0.001,", CONTRADICTED),
        ("throughput,workers=16,,above,1,", NOT_TESTABLE),
        ("throughput,workers=8,loader=native,ordering,,", NOT_TESTABLE),
        (",,,,,only in words", NOT_TESTABLE),
    ],
)
def test_verdicts(tmp_path: Path, line: str, verdict: str) -> None:
    said = judged(tmp_path, line, *SCALING)
    assert said["verdict"] == verdict
    if verdict == NOT_TESTABLE:
        assert said["why"] and not said["runs"]
        return
    assert said["n"] == 3 and str(said["runs"]).count(" ") in (2, 5)
    assert said["hardware"] == "here (cuda)"
    assert (said["low"] or 0) <= (said["measured"] or 0) <= (said["high"] or 0)
    assert verdict == UNDECIDED or pd.isna(said["more_repeats"])


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("top1,workers=8,,about,77,", SUPPORTED),
        ("top1,workers=8,,about,74,", CONTRADICTED),  # 77 is within 10 % of it
        ("top1,workers=8,workers=4,factor,1,", CONTRADICTED),
        ("top1,workers=16,workers=8,factor,1,", SUPPORTED),
        ("efficiency,workers=8,,about,0.92,", SUPPORTED),
        ("efficiency,workers=8,,about,0.88,", CONTRADICTED),  # 0.95 is within 10 % of it, too
    ],
)
def test_about_is_closer_for_accuracy_and_efficiency(
    tmp_path: Path, line: str, verdict: str
) -> None:
    tops = {4: 0.74, 8: 0.77, 16: 0.765}
    made = [
        one
        | {
            "final_top1": tops[workers] + (k - 2) / 1e3,
            "full_train_s": 100 * 4 / workers / (0.95 if workers > 4 else 1),
        }
        for workers in tops
        for k, one in enumerate(repeats(100.0, workers=workers), start=1)
    ]
    assert judged(tmp_path, line, *made)["verdict"] == verdict


def test_a_claim_may_ask_for_a_gpu_and_for_a_base(tmp_path: Path) -> None:
    line = "speed-up,gpu={};ref_workers={},,below,4,"
    assert judged(tmp_path, line.format("A100", 4), *SCALING)["verdict"] == SUPPORTED
    said = judged(tmp_path, line.format("H100", 4), *SCALING)
    assert said["verdict"] == NOT_TESTABLE
    assert missing(said["why"], "gpu H100", "NVIDIA A100-SXM4-40GB") == []
    said = judged(tmp_path, line.format("A100", 1), *SCALING)
    assert missing(said["why"], "ref_workers 1", 4) == []


def test_verdicts_for_people(tmp_path: Path) -> None:
    (tmp_path / "claims.csv").write_text(
        HEAD
        + "a,s,p,it scales,throughput,workers=8,,above,250,\nb,s,p,and so on,,,,,,only in words\n"
    )
    table = pd.DataFrame([MORE | run for run in SCALING])
    shares = table[["run"]].assign(communication_percent=1.0, computation_percent=2.0)
    decided, counts = claim_verdicts.lines(
        claim_verdicts.verdicts(claims.read(tmp_path / "claims.csv"), table, shares)
    )
    assert (
        missing(
            decided,
            "contradicted",
            "it scales (s, p)",
            190,
            "187.7 to 192.4",
            "n = 3",
            "here (cuda)",
        )
        == []
    )
    assert (
        missing(
            counts, "2 claims", "1 contradicted", "0 supported", "0 undecided", "1 not testable"
        )
        == []
    )


def test_one_run_decides_nothing(tmp_path: Path) -> None:
    said = judged(tmp_path, "throughput,workers=8,,above,150,", row(190.0, workers=8))
    assert (said["verdict"], said["n"]) == (UNDECIDED, 1)
    assert "needs 3 repeats" in str(said["why"])


def test_all_cells_of_a_claim_must_agree(tmp_path: Path) -> None:
    slow = repeats(100.0, workers=8, framework="horovod")
    said = judged(tmp_path, "throughput,workers=8,,above,150,", *SCALING, *slow)
    assert said["verdict"] == CONTRADICTED
    assert "2 comparisons" in str(said["why"])
    up_to = [*repeats(100.0), *repeats(810.0, framework="horovod"), *repeats(50.0, model="vit"),
             *repeats(55.0, model="vit", framework="horovod")]  # fmt: skip
    line = "throughput,framework=horovod,framework=ddp,factor-up-to,8,"
    assert judged(tmp_path, line, *up_to)["verdict"] == SUPPORTED


def test_a_claim_about_some_settings_needs_one(tmp_path: Path) -> None:
    """Beside eight settings that do not differ significantly, one that is far above decides for
    `some`, and far below against `all`. One that is only just outside of its own interval decides
    nothing: one in nine is so by chance.
    """

    def nine(of_three: list[float]) -> list[dict[str, object]]:
        models = [f"model{n}" for n in range(9)]
        made = [one for m in models for one in repeats(100.0, model=m)]
        ratios = {m: [0.9, 1.0, 1.12] for m in models} | {"model4": of_three}
        for model, three in ratios.items():
            made += [
                row(100.0 * r, repeat=n, model=model, framework="horovod")
                for n, r in enumerate(three, start=1)
            ]
        return made

    some, every = (
        f"throughput,framework=horovod,framework=ddp,{relation},,"
        for relation in claims.ORDERINGS[::-1]
    )
    up, down, just = [1.5, 1.52, 1.51], [0.5, 0.51, 0.505], [1.05, 1.08, 1.11]
    assert [judged(tmp_path, line, *nine(up))["verdict"] for line in (some, every)] == [
        SUPPORTED,
        UNDECIDED,
    ]
    assert [judged(tmp_path, line, *nine(down))["verdict"] for line in (some, every)] == [
        UNDECIDED,
        CONTRADICTED,
    ]
    assert judged(tmp_path, some, *nine(just))["verdict"] == UNDECIDED
    alone = [one for one in nine(just) if one["model"] == "model4"]
    assert judged(tmp_path, some, *alone)["verdict"] == SUPPORTED
    for n in (3, 5, 6, 7):  # whatever the number of repeats
        rising = [1.5 + 0.001 * k for k in range(n)]
        made = [one for m in ("a", "b") for one in repeats(100.0, *[1.0] * n, model=m)]
        made += [
            row(100 * r, repeat=k, model="a", framework="horovod")
            for k, r in enumerate(rising, start=1)
        ]
        made += repeats(100.0, *[1.1, 0.9] * (n // 2), model="b", framework="horovod")
        assert judged(tmp_path, some, *made)["verdict"] == SUPPORTED


def test_comparisons_of_single_runs_neither_decide_nor_hide_those_that_do(tmp_path: Path) -> None:
    """They are no tries of chance: what is just apart alone is so beside eight of them. None is
    shown for it.
    """
    rates = {"ddp": 100.0, "horovod": 300.0}
    single = [
        row(rate, model=f"model{n}", framework=name)
        for n in range(8)
        for name, rate in rates.items()
    ]
    said = []
    for three in ([1.05, 1.08, 1.11], [0.9, 1.0, 1.12]):
        made = [*single, *repeats(100.0, model="vit")]
        made += [
            row(100.0 * r, repeat=n, model="vit", framework="horovod")
            for n, r in enumerate(three, start=1)
        ]
        said.append(
            judged(tmp_path, "throughput,framework=horovod,framework=ddp,ordering-some,,", *made)
        )
    assert [one["verdict"] for one in said] == [SUPPORTED, UNDECIDED]
    assert [one["n"] for one in said] == [3, 3]
    assert "one run" not in str(said[1]["why"])


def five(of_three: list[float]) -> list[dict[str, object]]:
    """Five settings, of which one has these ratios of horovod to ddp, the others 1 within 1 %."""
    made = []
    for model in range(5):
        three = of_three if model == 4 else [0.99, 1.0, 1.01]
        made += [row(100.0, repeat=k, model=f"model{model}") for k in (1, 2, 3)]
        made += [
            row(100 * r, repeat=k, model=f"model{model}", framework="horovod")
            for k, r in enumerate(three, 1)
        ]
    return made


@pytest.mark.parametrize(
    ("relation", "just", "far", "decided"),
    [
        ("factor,1", [1.14, 1.16, 1.18], [2.0, 2.01, 2.02], CONTRADICTED),
        ("factor-up-to,2", [1.9, 1.95, 2.0], [2.4, 2.401, 2.402], SUPPORTED),
    ],
)
def test_a_factor_is_not_decided_by_one_of_many_that_chance_made(
    tmp_path: Path, relation: str, just: list[float], far: list[float], decided: str
) -> None:
    line = f"throughput,framework=horovod,framework=ddp,{relation},"
    alone = five(just)[-6:]
    assert judged(tmp_path, line, *alone)["verdict"] == decided
    assert judged(tmp_path, line, *five(just))["verdict"] == UNDECIDED
    assert judged(tmp_path, line, *five(far))["verdict"] == decided


@pytest.mark.parametrize(
    ("line", "just", "far"),
    [
        ("above,150,", [1.41, 1.43, 1.45], [0.5, 0.501, 0.502]),
        ("below,150,", [1.55, 1.57, 1.59], [3.0, 3.01, 3.02]),
        ("about,150,", [1.27, 1.29, 1.31], [0.5, 0.501, 0.502]),
    ],
)
def test_a_number_is_not_contradicted_by_one_of_many_that_chance_made(
    tmp_path: Path, line: str, just: list[float], far: list[float]
) -> None:
    def others(three: list[float]) -> list[dict[str, object]]:
        rates = {"above": 200.0, "below": 100.0, "about": 150.0}
        made = [
            one
            for n in range(8)
            for one in repeats(rates[line.split(",")[0]], model=f"model{n}", workers=8)
        ]
        return made + [row(100 * r, repeat=k, workers=8) for k, r in enumerate(three, 1)]

    claim = f"throughput,workers=8,,{line}"
    assert judged(tmp_path, claim, *others(just)[-3:])["verdict"] == CONTRADICTED
    assert judged(tmp_path, claim, *others(just))["verdict"] == UNDECIDED
    assert judged(tmp_path, claim, *others(far))["verdict"] == CONTRADICTED


def of_models(first: list[float], others: list[float], count: int = 12) -> list[dict[str, object]]:
    """Ratios of horovod to ddp on so many models; the first has its own."""
    made = []
    for model in range(count):
        made += [row(100.0, repeat=k, model=f"model{model}") for k in (1, 2, 3)]
        ratios = first if model == 0 else others
        made += [
            row(100 * r, repeat=k, model=f"model{model}", framework="horovod")
            for k, r in enumerate(ratios, 1)
        ]
    return made


@pytest.mark.parametrize(
    ("first", "others", "alone", "among_many"),
    [
        (
            [1.02, 1.045, 1.07],
            [0.99, 1.0, 1.01],
            UNDECIDED,
            SUPPORTED,
        ),  # the machine is steadier than these three say
        ([1.03, 1.031, 1.032], [0.94, 1.0, 1.06], SUPPORTED, UNDECIDED),  # they agree by chance
    ],
)
def test_many_cells_say_together_how_unsteady_the_machine_is(
    tmp_path: Path, first: list[float], others: list[float], alone: str, among_many: str
) -> None:
    one = "a,s,p,words,throughput,framework=horovod;model=model0,framework=ddp,ordering,,\n"
    every = "b,s,p,words,throughput,framework=horovod,framework=ddp,factor,1,\n"
    path = tmp_path / "claims.csv"
    verdicts = []
    for asked, count in ((one, 1), (one + every, 12)):
        path.write_text(HEAD + asked)
        table = pd.DataFrame([MORE | run for run in of_models(first, others, count)])
        shares = {"communication_percent": 20.0, "computation_percent": 60.0}
        said = claim_verdicts.verdicts(
            claims.read(path), table, table[["run"]].assign(**shares)
        ).set_index("id")
        verdicts.append(said.loc["a", "verdict"])
    assert verdicts == [alone, among_many]


@pytest.mark.parametrize(
    ("claim", "others", "verdict"),
    [
        # The machine is steadier than these three say: 15 runs on other models tell.
        ("runtime,framework=ddp;model=model0,,about,1000,", [0.99, 1.0, 1.01], SUPPORTED),
        ("runtime,framework=ddp;model=model0,,about,1000,", [0.9, 1.0, 1.1], UNDECIDED),
    ],
)
def test_one_group_is_judged_with_the_spread_of_sides_that_others_compare(
    tmp_path: Path, claim: str, others: list[float], verdict: str
) -> None:
    made = []
    for n in range(6):
        for framework in ("ddp", "horovod"):
            rates = [0.96, 1.0, 1.04] if n == 0 and framework == "ddp" else others
            made += [
                row(100.0 * by, workers=8, repeat=k, model=f"model{n}", framework=framework)
                | {"full_train_s": 1000.0 / by, "nodes": 8}
                for k, by in enumerate(rates, 1)
            ]
    path = tmp_path / "claims.csv"
    one = f"a,s,p,words,{claim}\n"
    compared = "b,s,p,words,throughput,framework=ddp,framework=horovod,factor,1,\n"
    path.write_text(HEAD + one + compared)
    table = pd.DataFrame([MORE | run for run in made])
    shares = {"communication_percent": 20.0, "computation_percent": 60.0}
    said = claim_verdicts.verdicts(claims.read(path), table, table[["run"]].assign(**shares))
    assert said.set_index("id").loc["a", "verdict"] == verdict


@pytest.mark.parametrize(("said", "verdict"), [(19.75, UNDECIDED), (19.5, SUPPORTED)])
def test_accuracies_vary_by_points_whatever_their_level(
    tmp_path: Path, said: float, verdict: str
) -> None:
    """By shares, 0.2 points of 80 counted as 0.05 of 20: 12 of 100 numbers were decided falsely."""
    made = [
        row(100.0, top1=level + by, model=f"model{n}", framework=framework, repeat=k)
        for n in range(6)
        for framework in ("ddp", "horovod")
        for level, spread in [(0.2, 0.001) if (n, framework) == (0, "ddp") else (0.8, 0.002)]
        for k, by in enumerate((-spread, 0.0, spread), 1)
    ]
    path = tmp_path / "claims.csv"
    one = f"a,s,p,words,top1,framework=ddp;model=model0,,above,{said},\n"
    compared = "b,s,p,words,top1,framework=ddp,framework=horovod,factor,1,\n"
    path.write_text(HEAD + one + compared)
    table = pd.DataFrame([MORE | run for run in made])
    shares = {"communication_percent": 20.0, "computation_percent": 60.0}
    verdicts = claim_verdicts.verdicts(claims.read(path), table, table[["run"]].assign(**shares))
    assert verdicts.set_index("id").loc["a", "verdict"] == verdict


@pytest.mark.parametrize(
    ("loud", "verdict"),
    [(1, SUPPORTED), (11, CONTRADICTED)],  # of twelve models whose times vary by a tenth
)
def test_how_much_runs_vary_in_general_is_asked_of_the_middle_of_many_groups(
    tmp_path: Path, loud: int, verdict: str
) -> None:
    quiet, unsteady = [0.99, 1.0, 1.01], [0.9, 1.0, 1.1]
    made = [
        row(100.0 * rate, workers=8, model=f"model{n}", repeat=k)
        for n in range(12)
        for k, rate in enumerate(unsteady if n < loud else quiet, 1)
    ]
    said = judged(tmp_path, "variation,workers=8,,below,0.05,", *made)
    assert (said["verdict"], said["n"]) == (verdict, 12)


def test_few_groups_with_repeats_are_judged_each_beside_many_without(tmp_path: Path) -> None:
    """Ten groups of one run each hid two that vary by a tenth."""
    single = [row(100.0, workers=8, model=f"single{n}") for n in range(10)]
    loud = [
        row(100.0 * by, workers=8, model=f"m{n}", repeat=k)
        for n in range(2)
        for k, by in enumerate([0.8, 1, 1.2], 1)
    ]
    said = judged(tmp_path, "variation,workers=8,,below,0.01,", *single, *loud)
    assert (said["verdict"], said["n"]) == (CONTRADICTED, 3)


def test_sides_differ_in_nothing_but_what_is_compared(tmp_path: Path) -> None:
    ours = repeats(100.0, loader="dali-cpu", form="tfrecord")
    line = "throughput,loader=dali-cpu,loader=native,ordering,,"
    assert (
        judged(tmp_path, line, *ours, *repeats(80.0, loader="native", form="raw"))["verdict"]
        == SUPPORTED
    )
    other = repeats(80.0, loader="native", form="raw", model="vit")
    assert judged(tmp_path, line, *ours, *other)["verdict"] == NOT_TESTABLE


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("speed,workers=8,,above,1,", "speed.*efficiency"),
        ("throughput,workers=8,,over,1,", "over.*above"),
        ("throughput,workers=8,,above,,", "ordering"),
        ("throughput,workers=8,workers=4,ordering,3,", "ordering"),
        ("throughput,workers=8,,ordering,,", "right-hand side"),
        ("throughput,gpus=8,,above,1,", "gpus=8.*columns"),
        (",,,,,", "quantity.*reason"),
    ],
)
def test_a_claim_that_is_none_is_named(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"claims.csv:2.*{says}"):
        judged(tmp_path, line, *SCALING)


def test_claims_of_aach2023_stand_where_its_text_has_them() -> None:
    """It has no Throughput section; its captions of Figures 3 to 7 say how much runs vary."""
    ours = {
        one.id.removeprefix("aach2023-"): one
        for one in claims.read(FILE)
        if one.source == "aach2023"
    }
    places = {one.place.partition(" section")[0] for one in ours.values()}
    assert places == {
        *("Abstract", "Introduction", "Efficiency", "Accuracy", "Conclusion", "Table 2"),
        *("Data loaders and dataset compression", "JUWELS HPC system and software stack"),
        *("Captions of Figures 3 to 7", "Residual neural networks"),
    }
    assert ours["variance-5"].place == "Captions of Figures 3 to 7"
    assert ours.keys() >= {
        *(
            "dali-20-40",
            "sizes",
            "software",
            "top1-77-above-74",
            "resnet152-above-50",
            "native-communicates-more",
        ),
    }
    for batch in (16, 32, 65):
        assert ours[f"drop-{batch}k"].relation == "ordering"
    assert ours["cpu-40"].value == pytest.approx(
        0.4 * 48 / 4
    )  # of a rank, where four share the 48 cores of a node


def test_our_claims() -> None:
    ours = claims.read(FILE)
    assert {one.source for one in ours} == {
        "aach2023", "comparison2022", "deepspeed-article", "liang2022", "liang2023",
    }  # fmt: skip
    assert len(ours) > 80
    # Each is read alone, in the page's answer: none leans on the one before.
    assert len({(one.source, one.claim) for one in ours}) == len(ours)
    leaning = ("the same ", "and ", "at ")
    assert [
        one.claim
        for one in ours
        if one.claim.startswith(leaning) and not one.claim.startswith("at large scale")
    ] == []
    empty = pd.DataFrame([MORE | row(1.0)])
    said = claim_verdicts.verdicts(
        ours, empty, pd.DataFrame(columns=["run", "communication_percent", "computation_percent"])
    )
    assert len(said) == len(ours)
    assert said["why"].str.len().gt(0).all()  # each says why one run is not enough


def test_numbers_of_one_machine_are_asked_of_its_hardware_and_speeds_of_one_schedule() -> None:
    """An efficiency of 0.76 says nothing of another GPU; that one framework scales better does."""
    speeds = [
        one for one in claims.read(FILE) if one.source == "aach2023" and one.quantity in SPEEDS
    ]
    assert len(speeds) > 30
    numbers = [
        one
        for one in speeds
        if one.relation in ("about", "above", "below") and one.quantity != "variation"
    ]
    assert [one.id for one in numbers if one.left.get("gpu") != ["A100"]] == []
    assert [one.id for one in speeds if one.left.get("schedule") != ["step"]] == []
    assert any("gpu" not in one.left for one in speeds)
