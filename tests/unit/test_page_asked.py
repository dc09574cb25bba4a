"""The first screen answers what a study's axes ask: what to take, what is told apart, what would decide."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.analysis import claims, comparisons, scaling, together
from ddlbench.analysis.price import Tariff
from ddlbench.analysis.tables import frame
from ddlbench.audit import _findings
from ddlbench.core.plural import around, four_digits, told_apart
from ddlbench.core.registry import OWN
from ddlbench.settings.config import CONFIG, read_yaml
from ddlbench.show.page import about, answer, asked, ranked, shown
from ddlbench.show.page.sections import sources
from ddlbench.show.page.shown import Answer, Standing

from tests.unit.drawings import row

STUDY = about.PageStudy("test", "T", "local", "cuda", "A100", "snakemake", (), (), {})
NOISE = (0.0, 0.01, -0.01)
Rows = list[dict[str, object]]


def ran(rate: float, noise: tuple[float, ...] = NOISE, top1: float = 0.75, **changes: object) -> Rows:
    """Repeats of a run at this rate, each of a minute on two workers."""
    given = {"workers": 2, "workers_per_node": 4, "run_s": 60.0} | changes
    return [
        row(rate * (1 + by), top1=top1 + by / 10, repeat=n, **{k: v for k, v in given.items() if k not in LATER})
        | {name: given[name] for name in LATER if name in given}
        for n, by in enumerate(noise, start=1)
    ]


LATER = ("run_s", "full_energy_j", "full_train_s", "peak_device_memory_bytes", "status", "interrupt_steps")


def first(
    rows: Rows, study: about.PageStudy = STUDY, audit: tuple[Mapping[str, str], ...] = (), **more: pd.DataFrame
) -> answer.First:
    runs = frame("runs", rows)
    tables = {"runs": runs, "comparisons": frame("comparisons", comparisons.rows(runs)), "losses": pd.DataFrame()}
    tables |= {"costs": frame("costs", []), "reached": pd.DataFrame(), "inference": pd.DataFrame()}
    return answer.first(study, tables | more, audit)


def only(rows: Rows, question: str, **more: pd.DataFrame) -> Answer:
    (one,) = [one for one in first(rows, **more).answers if one.question == question]
    return one


WIDE = (0.0, 0.3, -0.3)


@pytest.mark.parametrize(
    ("rates", "noise", "take", "standing", "words"),
    [
        (
            {"deepspeed": 2200.0, "ddp": 1900.0, "horovod": 979.0},
            {"ddp": WIDE},
            "ddp",
            Standing.DEFAULT,
            "On 2 GPUs with dali-cpu, deepspeed reaches 2,200 images/s, ddp 1,900 and horovod 979 (3 runs each). "
            "deepspeed is surely faster than horovod (1.1 to 4.5 times). Beside ddp, which comes with PyTorch, "
            "deepspeed is 0.57 to 2.5 times as fast. To settle it: about 70 more repeats of each (2.3 h of runs, 4.67 "
            "GPU hours).",
        ),
        (
            {"horovod": 1000.0, "ddp": 500.0, "deepspeed": 400.0},
            {},
            "horovod",
            Standing.SURE,
            "On 2 GPUs with dali-cpu, horovod reaches 1,000 images/s, ddp 500 and deepspeed 400 (3 runs each). horovod "
            "is surely faster than all others (2 times ddp).",
        ),
        (
            {"horovod": 1000.0, "ddp": 995.0},
            {"ddp": (0.0, 0.02, -0.02)},
            "ddp",
            Standing.TIE,
            "On 2 GPUs with dali-cpu, horovod reaches 1,000 images/s and ddp 995 (3 runs each). Beside ddp, which "
            "comes with PyTorch, horovod is 0.98 to 1.03 times as fast: take either.",
        ),
        (
            {"horovod": 1000.0, "ddp": 900.0},
            {"ddp": (0.0,), "horovod": (0.0,)},
            "ddp",
            Standing.DEFAULT,
            "On 2 GPUs with dali-cpu, horovod reaches 1,000 images/s and ddp 900. ddp comes with PyTorch. One run each "
            "shows nothing surely. To settle it: `repeats: 3` (4 min of runs).",
        ),
    ],
)  # fmt: skip
def test_frameworks_are_ranked_and_one_is_taken(
    rates: dict[str, float], noise: dict[str, tuple[float, ...]], take: str, standing: Standing, words: str
) -> None:
    rows = [one for name, rate in rates.items() for one in ran(rate, noise.get(name, NOISE), framework=name)]
    found = only(rows, ranked.FRAMEWORK)
    assert " ".join(found.words) == words
    assert (found.take, found.standing) == (take, standing)
    # The figure beside it has the same sides, in the same unit and order.
    assert found.measure == "images/s on 2 GPUs with dali-cpu"
    assert [(one.name, round(one.interval.middle)) for one in found.points] == [*rates.items()]
    assert [one.name for one in found.points if one.taken] == [take]


@pytest.mark.parametrize(("repeats", "how"), [(3, "-10.0 to -10.0"), (2, "2 runs each"), (1, "1 run each")])
def test_what_is_fast_at_a_loss_of_accuracy_is_said_with_its_loss(repeats: int, how: str) -> None:
    rows = [*ran(500.0, NOISE[:repeats], framework="ddp"), *ran(490.0, NOISE[:repeats], top1=0.748, framework="fsdp")]
    assert "top-1" not in " ".join(only(rows, ranked.FRAMEWORK).words)
    rows += ran(900.0, NOISE[:repeats], top1=0.65, framework="powersgd", workers=2)
    said = f"Mind the accuracy, in points of top-1: powersgd -10.0 ({how}) beside ddp. What loses is not taken."
    found = only(rows, ranked.FRAMEWORK)
    assert said in found.words and found.take == "ddp"
    # Told from all that keep it: the fastest of those is taken, though it does not come with PyTorch.
    fast = only([*rows, *ran(700.0, NOISE[:repeats], framework="horovod")], ranked.FRAMEWORK)
    assert (fast.take, fast.sure) == ("horovod", repeats > 2)
    # The other settings' lines say it, too.
    assert said in only([*rows, *({**one, "workers": 1} for one in rows)], ranked.FRAMEWORK).others[0]


def test_a_loader_that_loads_nothing_is_the_ceiling_and_is_never_taken() -> None:
    rates = {"synthetic": 1000.0, "dali-cpu": 800.0, "native": 500.0}
    found = only([one for name, rate in rates.items() for one in ran(rate, loader=name)], ranked.LOADER)
    assert found.words[0].endswith(" 500 (3 runs each; dali-cpu at 80 % of synthetic, which loads nothing).")
    assert found.take == "dali-cpu" and found.sure
    assert [one.note for one in found.points] == ["the ceiling", "", ""]


def test_a_figure_of_many_sides_has_the_fastest_and_the_one_taken() -> None:
    found = only([one for n in range(64) for one in ran(100.0 + n, WIDE, framework=f"f{n}")], ranked.FRAMEWORK)
    assert len(found.points) == 16 and found.measure == "images/s on 2 GPUs with dali-cpu, 16 of 64 sides"


def test_loaders_of_two_forms_are_judged_where_they_read_the_same() -> None:
    rates = {("dali-cpu", "webdataset"): 100.0, ("spdl", "raw"): 99.0}
    rates |= {("spdl", "webdataset"): 80.0, ("torchvision", "raw"): 50.0}
    rows = [one for (name, form), rate in rates.items() for one in ran(rate, loader=name, form=form)]
    found = only(rows, ranked.LOADER)
    (surely,) = found.words[1:]
    assert surely == "dali-cpu is surely faster than spdl (webdataset) and torchvision (1.25 times spdl (webdataset))."
    assert found.others == ("spdl (raw) read another form: not judged beside dali-cpu.",)
    assert (found.take, found.standing) == ("dali-cpu", Standing.OPEN)
    assert [one.note for one in found.points] == ["", "other form", "", ""]


def test_sides_are_judged_with_what_other_answers_take_or_say_that_they_are_not() -> None:
    rates = {("ddp", "native"): 100.0, ("ddp", "dali-cpu"): 200.0, ("horovod", "native"): 90.0}
    rows = [one for (name, loader), rate in rates.items() for one in ran(rate, framework=name, loader=loader)]
    said = "The other answers take dali-cpu, with which no frameworks were compared."
    assert only(rows, ranked.FRAMEWORK).words[-1] == said
    rows += ran(210.0, framework="horovod", loader="dali-cpu")
    found = only(rows, ranked.FRAMEWORK)
    assert found.words[0].startswith("On 2 GPUs with dali-cpu, ") and found.take == "horovod"
    slower = [
        one for (name, loader), rate in rates.items() for one in ran(rate, framework=name, loader=loader, workers=4)
    ]
    rows += [*slower, *ran(95.0, framework="horovod", loader="dali-cpu", workers=4)]
    found = only(rows, ranked.FRAMEWORK)
    assert found.words[0].startswith("On 2 GPUs with dali-cpu, ") and found.take == "horovod"
    # A setting with more sides is no answer if the page takes another.
    found = only([*rows, *ran(50.0, framework="fsdp", loader="dali-cpu", workers=4)], ranked.FRAMEWORK)
    assert found.words[0].startswith("On 2 GPUs with dali-cpu, ") and found.take == "horovod"


def test_a_study_over_many_settings_answers_with_one_and_tells_the_others() -> None:
    rows = [
        one
        for model in ("resnet50", "lenet")
        for workers in (2, 4)
        for name, rate in (("ddp", 100.0), ("horovod", 90.0))
        for one in ran(rate * workers, framework=name, model=model, workers=workers)
    ]
    found = only(rows, ranked.FRAMEWORK)
    assert found.words[0].startswith("On 4 GPUs with dali-cpu (")
    assert len(found.others) == 3 and len({*found.others}) == 3
    assert found.words[-1] == "ddp is the fastest in 3 of 3 other settings, surely in 3."
    assert all("ddp is surely faster than horovod" in words for words in found.others)
    rows += [
        one for name, rate in (("ddp", 90.0), ("horovod", 100.0)) for one in ran(rate * 8, framework=name, workers=8)
    ]
    assert only(rows, ranked.FRAMEWORK).words[-1] == (
        "horovod is the fastest in 0 of 4 other settings, ddp in 4, surely in 4."
    )
    rows += [one for name in ("fsdp", "zero-2") for one in ran(80.0, framework=name, workers=16)]  # without ddp
    two = only([one for one in rows if one["workers"] > 2 and one["model"] == "resnet50"], ranked.FRAMEWORK)
    assert two.words[-1].startswith("On 4 GPUs with dali-cpu, ddp is the fastest.")


def test_workers_pay_or_are_not_shown_to() -> None:
    rows = [one for n, rate in ((1, 100.0), (2, 190.0), (4, 200.0)) for one in ran(rate, workers=n)]
    answers = first(rows)
    assert not any("GPUs" in words for words in answers.not_asked)
    found = answers.answers[0]
    assert found.words[0].startswith("With ddp and dali-cpu, 4 GPUs train 2 times as many images/s as 1, 50 % of ")
    assert found.words[1:] == (
        "At the median 2 train 1.9 times as many images/s as 1, for 1.05 times the GPU hours.",
        "On 2 GPUs the batch is 128, not 64: 75 (74.8 to 75.2) % top-1 in place of 75 (74.8 to 75.2).",
    )
    worse = [one for n, top in ((1, 0.75), (2, 0.748), (4, 0.6)) for one in ran(100.0 * n, top1=top, workers=n)]
    assert only(worse, found.question).take == "2 GPUs at full accuracy, 4 for speed alone"
    unsaid = [one | {"final_top1": None} for one in worse]
    assert only(unsaid, found.question).words[2].endswith(" is 256, not 64: this study does not say its accuracy.")
    assert [(one.name, one.note) for one in found.points][1:] == [("2 GPUs", "ideal 2"), ("4 GPUs", "ideal 4")]
    dear = only([one for n in (1, 2) for one in ran(90.0 + 20 * n, workers=n)], found.question)
    assert (dear.take, dear.standing) == ("1 GPU", Standing.OPEN) and dear.words[1].endswith(
        "for 1.69 times the GPU hours."
    )
    rows = [one for n, noise in ((1, NOISE), (2, WIDE)) for one in ran(100.0 + n, noise, workers=n)]
    (found,) = first(rows).answers  # without its rate
    assert "2 GPUs train 0.46 to 2.1 times as many images/s as 1: not shown to pay." in found.words[0]
    assert found.words[1].startswith("Not even 100 more repeats") and not found.sure


def test_accelerators_of_others_pay_by_time_to_the_target_where_it_is_known() -> None:
    """On four times as many the rate is 3.8 times as high, and with its larger batch the target comes twice as soon."""
    others = replace(STUDY, device="mlperf")
    rows = [one for n, rate in ((8, 100.0), (32, 380.0)) for one in ran(rate, workers=n)]
    rows = [one | {"loader": None, "machine": "N dgx"} for one in rows]
    runs = frame("runs", rows)
    found = first(rows, others).answers[0]
    assert found.words[0].startswith("With N, 32 accelerators train 3.8 times as many images/s as 8")
    assert found.words[-1].startswith("This is by throughput only: ")
    parts = scaling.placed(runs).groupby([*together.SERIES, "workers"], dropna=False)
    each = {8: [400.0, 402.0, 398.0], 32: [200.0, 201.0, 199.0]}
    targets = pd.DataFrame(
        [
            {**part.iloc[0], "each": str(each[part["workers"].iloc[0]]), "runs": json.dumps(part["run"].tolist())}
            for _, part in parts
        ]
    )
    targets = targets.assign(target=0.759, reached_s=1.0, reached_s_low=None, reached_s_high=None, repeats=2)
    found = first(rows, others, reached=targets).answers[0]
    assert found.words[0] == "With N, 32 accelerators reach 75.9 % top-1 2 times as soon as 8, 50 % of the ideal 4."
    assert found.measure == "75.9 % top-1 reached: times as soon as with each one's fewest accelerators"
    assert [point.name for point in found.points] == ["N, 8", "N, 32"]


def test_a_log_that_reached_the_target_and_has_no_rate_is_compared_by_its_run() -> None:
    """Times go with the runs that they are of, whatever their place."""
    others = replace(STUDY, device="mlperf")
    rows = [one for n in (8, 32) for one in ran(100.0 * n, workers=n)]
    rows = [one | {"loader": None, "machine": "N dgx", "records": "mlperf"} for one in rows]
    rows[0] |= {"throughput_images_per_s": None, "epoch_s": None}
    table = scaling.in_series(frame("runs", rows))
    targets = []
    for workers, each in ((8, [400.0, 402.0, 398.0]), (32, [200.0, 201.0, 199.0])):
        part = table[table["workers"] == workers].iloc[::-1]
        targets.append({**part.iloc[0], "each": str(each), "runs": json.dumps(part["run"].tolist())})
    reached = pd.DataFrame(targets)
    reached = reached.assign(target=0.759, reached_s=1.0, reached_s_low=None, reached_s_high=None, repeats=3)
    found = first(rows, others, reached=reached).answers[0]
    (base, more) = found.points
    assert base.interval.middle == 1.0 and more.interval.middle == pytest.approx(2.0)
    times = asked._to_target(frame("runs", rows), reached).set_index("run")["compared_s"]
    assert times[rows[0]["run"]] == 398.0 and len(times) == 6


def test_two_repeats_that_are_too_noisy_are_said_so_and_stretch_no_axis() -> None:
    rows = [one for n, noise in ((1, (0.0, 0.0)), (2, (0.9, -0.7))) for one in ran(100.0 * n, noise, workers=n)]
    found = only(rows, asked.WORKERS.replace("workers", "GPUs"))
    assert "(too noisy to say: 2 repeats)" in found.words[0]
    assert found.points[1].words.endswith("(too noisy to say: 2 repeats)")
    assert found.scale.high < 6


def test_batches_reach_accuracies_and_the_largest_that_costs_no_point_is_taken() -> None:
    tops = {("step", 256): 0.77, ("step", 8192): 0.768, ("step", 65536): 0.41, ("cosine", 256): 0.76}
    tops |= {("cosine", 8192): 0.5, ("cosine", 65536): 0.3}
    rows = [one for (s, size), top in tops.items() for one in ran(100.0, top1=top, schedule=s, global_batch=size)]
    found = only(rows, asked.BATCH)
    assert " ".join(found.words) == (
        "Top-1 is 77 % with batch 256, 76.8 % with 8,192 and 41 % with 65,536 (resnet50, "
        "schedule step, 3 runs each). Take 8,192: 65,536 loses more than a point of top-1."
    )
    assert found.sure and found.measure == "top-1 after the last epoch [%], by images per step of all workers"
    assert found.others[0].startswith("Top-1 is 76 % with batch 256, 50 % with 8,192")
    alone = only([one for one in rows if one["repeat"] == 1], asked.BATCH)
    assert "(resnet50, schedule step, one run each)" in alone.words[0] and not alone.sure
    assert alone.words[2] == "3 more repeats (`repeats: 4`) would tell more (9 min of runs)."
    assert "batch 8,192" in only(rows, asked.SCHEDULE).words[0]  # as the page takes, though 65,536 was tried
    rows += ran(100.0, (0.0, -0.02, 0.03), 0.769, schedule="exponential", global_batch=8192)
    assert only(rows, asked.SCHEDULE).standing is Standing.AHEAD
    assert " ".join(only(rows, asked.SCHEDULE).words) == (
        "With ddp and dali-cpu, top-1 is 76.9 % with exponential, 76.8 % with step and 50 % with cosine "
        "(resnet50, batch 8,192, 3 runs each). exponential and step: none is surely better. Take either, or repeat."
    )


def test_numbers_of_workers_alone_are_no_question_about_batches() -> None:
    """Two numbers of workers have two batches, because workers grow; three and more are a series over batches."""
    two = [one for n in (4, 8) for one in ran(100.0, workers=n, global_batch=64 * n)]
    assert asked.BATCH not in {one.question for one in first(two).answers}
    three = [*two, *ran(100.0, workers=16, global_batch=1024)]
    assert only(three, asked.BATCH).words[0].startswith("Top-1 is 75 % with batch 256, ")


def test_a_study_of_one_side_says_its_rate_and_how_to_ask() -> None:
    found = first(ran(100.0))
    assert [one.question for one in found.answers] == [asked.RATES]
    assert found.answers[0].words == ("ddp and dali-cpu, 2 GPUs: 100 (98 to 103) images/s.",)
    assert found.not_asked[2] == "How many GPUs pay? `workers: [1, 2]`" and len(found.not_asked) == 4
    assert first([]).answers == () == first([]).not_asked


def test_a_study_of_programs_says_its_sample_and_settings() -> None:
    rows = [one for name in ("ddp", "fsdp") for one in ran(50.0 + len(name), framework=name, loader="native")]
    rows = [one | {"loader": OWN, "form": None} for one in rows]
    both = [one | {"model": one["framework"], "workers": w, "repeat": 1} for one in rows[::3] for w in (1, 2)]
    assert "With ddp, 2 GPUs train" in only(both, asked.WORKERS.replace("workers", "GPUs")).words[0]
    found = first(rows, replace(STUDY, sample="tokens"))
    assert found.answers[0].words[0] == "On 2 GPUs, fsdp reaches 54 tokens/s and ddp 53 (3 runs each)."
    assert found.not_asked == ("How many GPUs pay? `workers: [1, 2]`", "How large a batch? `global_batch: [32, 256]`")


def test_what_loads_nothing_is_in_no_answer() -> None:
    """It is fast and cheap, and learns nothing. Where a study asks of nothing else, its speed is told, and no cost."""
    nothing: dict[str, object] = {"loader": "synthetic", "form": None, "full_energy_j": 1e3, "full_train_s": 60.0}
    nothing["peak_device_memory_bytes"] = 1e9
    real = {"full_train_s": 3600.0, "peak_device_memory_bytes": 5e9, "full_energy_j": 1e5}
    fast, slow = list[dict[str, object]](), list[dict[str, object]]()
    for workers in (1, 2):
        for name, of_nothing, of_pictures, hours in (("ddp", 900.0, 80.0, 2), ("horovod", 500.0, 120.0, 1)):
            fast += ran(of_nothing * workers, workers=workers, framework=name, **nothing)
            measured = {measure: value * hours for measure, value in real.items()}
            slow += ran(of_pictures * workers, workers=workers, framework=name, **measured)
    for tariff in (Tariff(), Tariff(2.5, "EUR", 4)):
        found = {one.question: one for one in first(slow + fast, replace(STUDY, tariff=tariff)).answers}
        assert asked.COST in found and asked.MEMORY in found
        assert found[ranked.FRAMEWORK].take == "horovod"
        for question, one in found.items():
            synthetic = {row["run"] for row in fast} & {*one.runs}
            assert not synthetic or question == ranked.LOADER, question  # there it is the ceiling
        alone = {one.question: one.take for one in first(fast, replace(STUDY, tariff=tariff)).answers}
        assert alone[ranked.FRAMEWORK] == "ddp" and asked.COST not in alone


def test_time_energy_and_cost_are_said_where_the_study_names_them() -> None:
    of = [one for n, s in ((4, 7200.0), (8, 5400.0)) for one in ran(100.0 * n, workers=n, full_train_s=s)]
    assert asked.COST not in {one.question for one in first(of).answers}
    sold = replace(STUDY, tariff=Tariff(2.5, "EUR", 4))
    (found,) = [one for one in first(of, sold).answers if one.question == asked.COST]
    assert found.words[0] == (
        "The cheapest training (resnet50, 3 epochs) was ddp and dali-cpu, 4 GPUs: 20 EUR in 2 h; the "
        "fastest was ddp and dali-cpu, 8 GPUs, in 1.5 h."
    )
    drew = [one | {"full_energy_j": 1e3 * int(str(one["workers"]))} for one in of]
    (found,) = [
        one for one in first(drew, replace(STUDY, tariff=Tariff(pue=1.5))).answers if one.question == asked.COST
    ]
    assert [point.interval.middle for point in found.points] == pytest.approx([6.0, 12.0])  # kJ of the site
    ends = {"repeats": 3, "reached_s_low": 80.0, "reached_s_high": 99.0}
    reached = pd.DataFrame([{**of[0], **ends, "reached_s": 90.0}, {**of[3], **ends, "reached_s": 360.0}])
    reached = reached.assign(target=0.759, batch_per_worker=64, global_batch=None, ref_workers=4)
    found = only(of, asked.TIME, reached=reached)
    soonest = (
        "ddp and dali-cpu, 4 GPUs reaches 75.9 % top-1 soonest, after 1.5 min; the next, ddp and dali-cpu, 8 GPUs, "
    )
    least = "ddp and dali-cpu, 4 GPUs takes the fewest GPU hours, 0.1."
    assert found.words[0] == f"{soonest}takes 4 times as long. {least}"
    others = reached.assign(loader=None, framework="MxNet", machine="NVIDIA dgxa100")
    assert only(of, asked.TIME, reached=others).take == "NVIDIA dgxa100, 4 GPUs"


def test_memory_is_said_where_it_decides() -> None:
    def held(framework: str, size: float) -> Rows:
        return [one | {"peak_device_memory_bytes": round(size)} for one in ran(100.0, framework=framework)]

    assert only([*held("ddp", 2**33), *held("zero-1", 2**32)], asked.MEMORY).words == (
        "On 2 GPUs a worker of resnet50 takes the least GPU memory with zero-1, 4 GiB; ddp 2 times that.",
    )
    found = only([*held("ddp", 2**33), *held("zero-1", 2**32), *held("zero-2", 2**32 * 1.02)], asked.MEMORY)
    assert (found.take, found.sure) == ("zero-1 or zero-2", True)
    many = [one for name in "gabcdef" for one in held(name, 2.0 ** max(32, ord(name) - 69))]
    assert only(many, asked.MEMORY).take == "any but f and g"  # in the same order each time
    assert asked.MEMORY not in {one.question for one in first([*held("ddp", 8e9), *held("zero-1", 7.9e9)]).answers}


def test_models_that_are_asked_are_ranked_by_their_latency() -> None:
    table = pd.DataFrame(
        {"model": "lenet", "batch": b, "member": way, "latency_p50_s": s * b}
        for way, s in (("plain", 0.002), ("int8", 0.001))
        for b in (1, 64)
    )
    found = only([], asked.LATENCY, inference=table)
    words = "lenet answers half of all requests of 1 picture in 1 ms by int8 and 2 ms by plain."
    assert found.words[0].startswith(words)


def test_answers_of_runs_that_cannot_be_compared_say_so() -> None:
    rows = [one for name in ("ddp", "horovod") for one in ran(100.0, framework=name)]
    finding = dict.fromkeys((column.name for column in _findings.COLUMNS), "")
    finding |= {"rule": "same-precision", "severity": "error", "runs": str(rows[0]["run"]), "evidence": "fp16 and fp32"}
    found = first(rows, audit=(finding,))
    assert found.answers[0].unfair == ("same-precision",) and found.errors
    warned = first(rows, audit=(finding | {"severity": "warning", "rule": "drift"},))
    assert warned.judged.endswith(answer.MOVED) and not found.judged.endswith(answer.MOVED)  # once, below all answers
    assert warned.answers[0].unfair == () and not warned.errors


@pytest.mark.parametrize("cells", [9, 10])
def test_many_settings_are_told_apart_first_with_their_batch_and_what_a_slow_node_hides(cells: int) -> None:
    sides = [(k, name) for k in range(1, cells + 1) for name in ("ddp", "horovod")]
    rates = {(k, name): 200.0 if (k, name) == (4, "horovod") else 100.0 for k, name in sides}
    found = first([one for k, name in sides for one in ran(rates[k, name], framework=name, global_batch=64 * k)])
    assert ("slow node" in found.judged) == (cells == 10) and found.judged.startswith(f"1 of {cells} comparisons")
    assert "(batch size 256), horovod" in found.answers[0].others[0]


def test_what_was_killed_is_in_no_answer() -> None:
    killed = [one | {"interrupt_steps": 60.0} for one in ran(50.0, framework="horovod")]
    assert [one.question for one in first([*ran(100.0), *killed]).answers] == [asked.RATES]


def test_a_source_s_own_table_has_our_verdicts_in_its_cells() -> None:
    """On hardware and models of the source's own they are verdicts; elsewhere the cell says that they are not."""
    sides = [one for name, rate in (("horovod", 50.0), ("deepspeed-zero1", 100.0)) for one in ran(rate, framework=name)]
    data = {"runs": frame("runs", sides), "kernels": frame("kernels", [])}
    (table,), _ = sources.tables("horovod-vs-deepspeed", data, [], set())
    (speed,) = [cells for _, cells in table.rows if cells[0].text == "Speed"]
    assert [cell.text for cell in speed[:3]] == ["Speed", "Slow", "Fast"] and not table.folded
    assert speed[3].text.startswith("supported: DeepSpeed is above Horovod in speed: 2, 3 repeats")
    data["runs"]["device"] = "cpu"
    (table,), _ = sources.tables("horovod-vs-deepspeed-small", data, [], set())
    (speed,) = [cells for _, cells in table.rows if cells[0].text == "Speed"]
    assert speed[3].text.startswith("supported on this hardware and model, which are not the source's: DeepSpeed is")
    assert sources.tables("demo", data, [table], set()) == ([], [table])


def test_tables_of_sources_are_of_studies_and_claims_that_are_there() -> None:
    known = {claim.id for claim in claims.read(CONFIG / "references/claims.csv")}
    for one in read_yaml(sources.FILE)["tables"]:
        assert all((CONFIG / f"studies/{study}.yaml").exists() for study in one["studies"])
        assert {row[-1] for row in one.get("rows", ())} <= known
    numbers, _ = sources.tables("aach2023-small", {}, [], set())
    assert [len(table.rows) for table in numbers] == [51]


def test_numbers_have_as_many_digits_as_tell_them_apart() -> None:
    assert shown.point("a", [1.0, 1.001]).words == "1 (0.99 to 1.01)"
    assert shown.point("a", [100.0]).words == "100 (one run)"
    assert told_apart(1.03, 1.5) == "1.03 to 1.5"  # not "1 to 1.5": it is told apart
    assert around(12_345.6, 8000.0, None) == "12,346 (8,000)" and around(1.0, None, None) == "1"
    assert (four_digits(math.nan), four_digits(0.951_23)) == ("unknown", "0.9512")
    assert shown.point("a", [99.0, 99.9], 100.0).interval.high == 100
    assert shown.Scale.fit([shown.point("a", [1.0]), shown.point("b", [100.0])]).log
    assert [label for _, label in shown.Scale(1.0, 1.2).ticks] == ["1", "1.1", "1.2"]  # 1.2 - 1 is less than 0.2
