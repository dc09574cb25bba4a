"""Studies that did not go as planned: nothing false is said of them, on the page or in the terminal."""

import pandas as pd
from ddlbench.settings.config import complain
from ddlbench.show.page import asked, ranked, write

from tests.unit.test_page_asked import NOISE, first, only, ran

FAILURES = pd.DataFrame({"rule": ["train"] * 3, "cause": ["out of memory", None, "killed"]})


def test_energy_that_no_counter_counted_is_no_cost() -> None:
    rows = [*ran(900.0, full_energy_j=0.0, full_train_s=9.0), *ran(500.0, workers=1, full_energy_j=0.0)]
    assert asked.COST not in {answer.question for answer in first(rows).answers}


def test_workers_that_are_slower_are_not_taken_and_that_is_sure() -> None:
    rows = [one for workers, rate in ((1, 900.0), (2, 600.0)) for one in ran(rate, workers=workers)]
    answer = only(rows, "How many GPUs pay?")
    assert "2 GPUs train 0.666 to 0.667 times as many images/s as 1: slower." in " ".join(answer.words)
    assert answer.sure and answer.take == "1 GPU"


def test_sides_with_different_numbers_of_runs_are_said_so() -> None:
    rows = [*ran(1000.0, (*NOISE, 0.0, 0.02), framework="ddp"), *ran(900.0, (0.0,), framework="horovod")]
    words = " ".join(only(rows, ranked.FRAMEWORK).words)
    assert "(1 to 5 runs each). One pair of runs shows nothing surely. To settle it: " in words
    assert "2 more runs of horovod (2 min of runs)" in words
    sizes = [*ran(1.0, global_batch=32, top1=0.9), *ran(1.0, (0.0,), global_batch=256, top1=0.9)]
    words = " ".join(only(sizes, asked.BATCH).words)
    assert "1 to 3 runs each" in words and "`repeats: 6`" in words


def test_a_ratio_that_says_nothing_has_no_ends() -> None:
    rows = [*ran(1000.0, framework="ddp"), *ran(900.0, (0.0, -0.999999, 0.01), framework="horovod")]
    words = " ".join(only(rows, ranked.FRAMEWORK).words)
    assert "ddp is about 1.11 times, too noisy to say, as fast: not even" in words


def test_runs_without_a_rate_say_their_accuracy() -> None:
    (answer,) = first([one | {"throughput_images_per_s": None} for one in ran(1.0, top1=1.0)]).answers
    assert (answer.question, answer.take) == (asked.ACCURACY, "100 % top-1")
    assert answer.points[0].interval.high == 100.0


def test_what_is_in_no_answer_is_said() -> None:
    refused = pd.DataFrame({"run": ["a"]})
    both = "3 failed runs (killed, no report, out of memory) and 1 refused record"
    assert write._lost({"failures": FAILURES, "refused": refused}) == both
    assert write._lost({"failures": FAILURES[:0], "refused": refused[:0]}) == ""


def test_the_terminal_says_names_as_they_are() -> None:
    assert '"zé" is not allowed' in str(complain("a.yaml", "variants", "zé", "allowed: b"))
