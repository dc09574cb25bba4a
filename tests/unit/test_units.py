"""What lines count: steps, epochs, samples, parts of steps; made-up logs are read right or
refused.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ddlbench.run.readings import Line, NotFiniteError, Output, Reading, UnreadError, lines

from tests.facts import refuses
from tests.unit.programs import spec

Printed = list[tuple[float, str]]
OLD = (  # takes the first number of a line that looks like a count
    r"(?i)(?:\b(?:step|iter(?:ation)?)\W{0,4}|[\[|]\s*(?=\d+\s*/\s*\d))(?P<step>\d+).*?"
    r"\bloss\W{0,4}(?:train\W{0,2})?(?P<loss>[\d.]+(?:e[-+]?\d+)?)"
)


def read(
    folder: Path, printed: Printed, *patterns: str, workers: int = 1, batch: int = 8, **keys: Any
) -> Reading:
    """What is read of lines that were printed at these times."""
    own = folder / "program"
    own.mkdir(exist_ok=True)
    run = spec(folder, workers, patterns=patterns, **keys)
    run = type(run)(**{**vars(run), "global_batch": batch})
    told = [Line(1000 + at_s, text) for at_s, text in printed]
    return lines.read(Output(run, own, folder, told, [text for _, text in printed]))


def steps(made: Reading) -> int:
    return len({row.step for row in made.rows})


def rate(made: Reading) -> float:
    """Samples per s while it trains."""
    return sum(row.images for row in made.rows) / sum(
        row.took_s for row in made.rows if row.rank == 0
    )


def losses(made: Reading) -> list[float]:
    return [row.loss for row in made.rows if row.loss == row.loss]


def every(seconds: float, texts: Sequence[str]) -> Printed:
    return [(seconds * number, text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (
            [f"[{e}/3] - at {i}/40 - loss: {1 / i}" for e in (1, 2, 3) for i in (10, 20, 30, 40)],
            "are epochs: 3",
        ),
        (
            [f"[{e}/9][{i}/50] loss 1.{i}" for e in range(4) for i in (10, 20, 30)],
            "these are epochs: 4 of them, 50",
        ),
        (
            [f"Ep 1 [{32 * i}/4096 ({i}%)] loss=0.{i}" for i in range(9)],
            "32 a line of 4096, 4 batches of 8",
        ),
        ([f"| {64 * i}/9999 imgs | loss 0.{i}" for i in range(9)], "these are samples"),
        ([f"iter {4 * i} | update {i} | loss 0.{i}" for i in range(9)], "parts_per_step: 4"),
        (
            [f"step {i} | samples seen: {96 * i} | loss 0.{i}" for i in range(9)],
            "grows by 96 a step, the study says 8",
        ),
        (
            [f"step {i} global batch size: 64 loss 0.{i}" for i in range(9)],
            "a global batch of 64, the study says 8",
        ),
    ],
)
def test_another_unit_than_steps_is_refused_with_both_numbers(
    tmp_path: Path, texts: list[str], says: str
) -> None:
    with pytest.raises(UnreadError) as error:
        read(tmp_path, every(0.5, texts), OLD)
    assert says in str(error.value)


def test_the_right_group_reads_what_the_wrong_one_refused(tmp_path: Path) -> None:
    texts = [
        f"epoch {e}/3 - iter {i}/40 - loss: {1 / i}" for e in (1, 2, 3) for i in (10, 20, 30, 40)
    ]
    made = read(
        tmp_path,
        every(0.5, texts),
        r"epoch (?P<epoch>\d+)/.*iter (?P<step>\d+)/(?P<of>\d+).*loss: (?P<loss>\S+)",
    )
    assert (steps(made), rate(made)) == (110, pytest.approx(160.0))
    made = read(
        tmp_path,
        every(0.5, [f"iter {4 * i} | loss 0.{i}" for i in range(9)]),
        r"iter (?P<step>\d+)",
        parts_per_step=4,
    )
    assert (steps(made), rate(made)) == (8, pytest.approx(16.0))


@pytest.mark.parametrize(
    ("keys", "pattern", "texts", "count"),
    [
        (
            {"steps_per_epoch": 50},
            r"epoch (?P<epoch>[\d.]+)",
            [f"epoch {n / 5:.2f}: ok" for n in range(11)],
            100,
        ),
        (
            {"samples_per_epoch": 396},
            r"^Epoch (?P<epoch>\d+)",
            [f"Epoch {n} done" for n in range(1, 4)],
            100,
        ),
        (
            {"steps_per_epoch": 200},
            r"(?P<percent>\d+%)",
            [f"{n}%|##" for _ in range(2) for n in (20, 40, 60, 80, 100)],
            360,
        ),
        (
            {"steps_per_epoch": 200},
            r"(?P<percent>\d+) percent",
            [f"{n} percent" for n in (5, 55)],
            100,
        ),
        (
            {"steps_per_line": 25},
            r"loss=(?P<loss>\S+)",
            [f"loss={1 / (n + 1)}" for n in range(5)],
            100,
        ),
        (
            {},
            r"seen (?P<seen_all>[\d,]+)",
            [f"seen {800 * n:,} pictures" for n in range(1, 5)],
            300,
        ),
    ],
)
def test_units_that_are_no_steps(
    tmp_path: Path, keys: dict[str, int], pattern: str, texts: list[str], count: int
) -> None:
    assert steps(read(tmp_path, every(1.0, texts), pattern, **keys)) == count


def test_an_epoch_without_its_steps_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UnreadError, match="steps_per_epoch"):
        read(tmp_path, every(1.0, ["epoch 1", "epoch 2"]), r"epoch (?P<epoch>\d+)")
    texts = [f"step {n}" for _ in range(3) for n in range(0, 100, 20)]
    with pytest.raises(UnreadError, match=r"every 20.*steps_per_epoch"):
        read(tmp_path, every(1.0, texts), r"step (?P<step>\d+)")
    assert (
        steps(read(tmp_path, every(1.0, texts), r"step (?P<step>\d+)", steps_per_epoch=100)) == 280
    )
    with refuses(UnreadError, 600, 80):
        read(tmp_path, every(1.0, texts), r"step (?P<step>\d+)", steps_per_epoch=600)


@pytest.mark.parametrize(
    ("text", "step", "loss"),
    [
        ("\x1b[1;32mstep\x1b[0m:   \x1b[31m1,007\x1b[0m  loss:\t\x1b[33m-2.5\x1b[0m", 1007, -2.5),
        ("step 1'007 loss -.25e1", 1007, -2.5),
        ("step:\u00a01007    loss = -2.5", 1007, -2.5),
        ("step 3 loss 9\rstep 1007 loss -2.5", 1007, -2.5),
    ],
)
def test_numbers_are_read_whole_whatever_stands_around_them(
    tmp_path: Path, text: str, step: int, loss: float
) -> None:
    made = read(
        tmp_path,
        [(0.0, "step 1 loss 3"), (1.0, text)],
        r"step\W+(?P<step>\d+) loss\W*(?P<loss>[\d.]+)",
    )
    assert max(row.step for row in made.rows) == step - 2
    assert losses(made)[-1] == loss


@pytest.mark.parametrize("loss", ["nan", "NaN", "inf", "-inf"])
def test_a_loss_that_is_no_number_is_seen_by_any_pattern(tmp_path: Path, loss: str) -> None:
    texts = [f"step {n} loss {'0.5' if n < 7 else loss}" for n in range(12)]
    with pytest.raises(NotFiniteError, match="at step 7"):
        read(tmp_path, every(1.0, texts), r"step (?P<step>\d+) loss (?P<loss>[\d.]+)")


def test_of_a_step_that_is_told_twice_the_last_loss_counts(tmp_path: Path) -> None:
    printed = [
        (2.0 * n + late, f"| {n}/99 [loss={10 - n + before}]")
        for n in range(1, 6)
        for late, before in ((0, 1), (0.1, 0))
    ]
    made = read(tmp_path, printed, r"\| (?P<step>\d+)/.*loss=(?P<loss>[\d.]+)")
    assert losses(made) == [8, 7, 6, 5]
    assert rate(made) == pytest.approx(4.0)


def test_bars_of_a_validation_are_pauses(tmp_path: Path) -> None:
    printed, at_s = [], 0.0
    for _ in range(4):
        for form, total in (("train", 9), ("check", 3)):
            for n in range(1, total + 1):
                at_s += 0.5
                printed.append((at_s, f"{form} | {n}/{total} ["))
    made = read(tmp_path, printed, r"\| (?P<step>\d+)/\d+ \[")
    assert (steps(made), rate(made)) == (35, pytest.approx(16.0))
    assert made.remarks["pauses"]["seconds"] == pytest.approx(4.5)  # type: ignore[index]
    with pytest.raises(UnreadError, match="counts of 9 and of 3"):
        read(tmp_path, [(at_s, text[5:]) for at_s, text in printed], r"\| (?P<step>\d+)/\d+ \[")


def test_the_smaller_last_batch_of_an_epoch_is_a_step(tmp_path: Path) -> None:
    """The number of a batch times its own size: 12 pictures in batches of 8 end with 1 x 4."""
    sizes = [8] * 6 + [4]
    texts = [f"Epoch {e} [{n * size}/52] Loss 1" for e in range(3) for n, size in enumerate(sizes)]
    for pattern in (r"\[(?P<seen>\d+)/", r"\[(?P<seen>\d+)\D"):
        made = read(tmp_path, every(0.5, texts), pattern)
        assert (steps(made), rate(made)) == (20, pytest.approx(16.0))
    texts[6] = texts[6].replace("[24/", "[31/")
    with pytest.raises(UnreadError, match=r"'Epoch 0 \[31/52\] Loss 1'"):
        read(tmp_path, every(0.5, texts), r"\[(?P<seen>\d+)/")


def test_samples_of_one_rank_or_of_all(tmp_path: Path) -> None:
    def printed(most: int, apart: int, took_s: float = 0.5) -> Printed:
        texts = [f"[{n}/400] took: 0.25 s/it" for _ in range(2) for n in range(0, most, apart)]
        return every(took_s, texts)

    one = read(tmp_path, printed(200, 8), r"\[(?P<seen>\d+)/", workers=2)
    assert (one.proof.proved, rate(one)) == (True, pytest.approx(32.0))
    both = read(tmp_path, printed(400, 16), r"\[(?P<seen_all>\d+)/", workers=2)
    assert (both.proof.proved, rate(both)) == (True, pytest.approx(32.0))
    with pytest.raises(UnreadError, match="one rank"):
        read(tmp_path, printed(200, 8), r"\[(?P<seen_all>\d+)/", workers=2)
    with refuses(UnreadError, 0.25, 0.125, "2 times"):
        read(tmp_path, printed(400, 16), r"\[(?P<seen>\d+)/", workers=2)


def test_who_a_rate_is_of_must_be_said(tmp_path: Path) -> None:
    printed = every(0.5, [f"step {n}: 8.1 seq/s" for n in range(9)])
    pattern = r"step (?P<step>\d+): (?P<samples_per_s>\S+)"
    assert not read(tmp_path, printed, pattern, workers=2).proof.proved
    samples = every(0.5, [f"[{8 * n}/800] {n}: 8.1 seq/s" for n in range(9)])
    with refuses(UnreadError, 8.1, 16, "rate_of: worker"):
        read(tmp_path, samples, r"\[(?P<seen_all>\d+)/.*: (?P<samples_per_s>\S+)", workers=2)
    assert read(tmp_path, printed, pattern, workers=2, rate_of="worker").proof.proved


@pytest.mark.parametrize(
    "said", ["{n} img/sec per CPU", "{n} tok/s/gpu", "per-device rate: {n}", "img/s per rank: {n}"]
)
def test_words_beside_a_rate_say_whose_it_is(tmp_path: Path, said: str) -> None:
    """Blocks of two batches of 8 samples, on two ranks: 32 samples in 2 s, 8 per s and rank. Read
    as steps they would make half of it, which is the rate of one rank.
    """
    printed = every(2.0, [f"Iter #{n}: {said.format(n='8.0')}" for n in range(9)])
    pattern = r"Iter #(?P<step>\d+): .*?(?P<samples_per_s>\d[\d.]*)"
    with pytest.raises(
        UnreadError, match=r"a rate of 16 per s, its timestamps give 8: .*steps_per_line: 2"
    ):
        read(tmp_path, printed, pattern, workers=2, batch=16)
    with pytest.raises(UnreadError, match=r"rate_of says all.*Iter #0"):
        read(tmp_path, printed, pattern, workers=2, batch=16, rate_of="all")
    made = read(tmp_path, printed, pattern, workers=2, batch=16, steps_per_line=2)
    assert (steps(made), rate(made), made.proof.proved) == (16, pytest.approx(16.0), True)


def test_a_rate_that_nobody_says_whose_it_is_proves_no_steps_of_several_ranks(
    tmp_path: Path,
) -> None:
    """The same blocks of two batches, without a word beside the rate: half of the steps times one
    rank's rate agrees.
    """
    printed = every(2.0, [f"Iter #{n}: 8.0 img/s" for n in range(9)])
    pattern = r"Iter #(?P<step>\d+): (?P<samples_per_s>[\d.]+)"
    assert not read(tmp_path, printed, pattern, workers=2, batch=16).proof.proved
    assert read(tmp_path, printed, pattern, workers=2, batch=16, rate_of="all").proof.proved
    assert read(tmp_path, printed, pattern, workers=1, batch=16).proof.proved


@pytest.mark.parametrize(
    "said", ["12.1 img/s, 0.5 s per GPU", "batch per gpu 8, 12.1 img/s", "12.1/s, 6.0/s/gpu"]
)
def test_words_beside_another_number_do_not(tmp_path: Path, said: str) -> None:
    printed = every(0.66, [f"step {n}: {said}" for n in range(9)])
    made = read(tmp_path, printed, r"step (?P<step>\d+).*?(?P<samples_per_s>12[\d.]*)", workers=2)
    assert made.remarks["printed_rate"]["printed_per_s"] == 12.1  # type: ignore[index]


def test_rates_that_vary_are_compared_as_samples_over_time(tmp_path: Path) -> None:
    """On a busy machine: half of the lines are three times as slow, so that the median says what no
    clock does.
    """
    took = [1.0, 1.0, 4.0, 1.0, 4.0, 1.0, 4.0, 1.0, 1.0]
    printed = [(sum(took[: n + 1]), f"step {n}: {8 / one} img/s") for n, one in enumerate(took)]
    made = read(tmp_path, printed, r"step (?P<step>\d+): (?P<samples_per_s>\S+) img")
    assert made.proof.proved
    assert made.remarks["printed_rate"]["printed_per_s"] == pytest.approx(rate(made))  # type: ignore[index]


@pytest.mark.parametrize(("count", "is_read"), [(12, False), (70, True)])
@pytest.mark.parametrize(
    ("form", "pattern"),
    [("'epoch': {:.2f}", r"'epoch': (?P<epoch>[\d.]+)"), ("{:.0%}|##", r"(?P<percent>\d+%)")],
)
def test_rounded_parts_of_epochs_are_too_coarse_where_few_of_them_are_read(
    tmp_path: Path, form: str, pattern: str, count: int, is_read: bool
) -> None:
    """Hugging Face rounds to 0.01 epochs: 100 of 10 000 steps; a line each 75 steps of 0.1 s."""
    printed = every(7.5, [form.format(75 * n / 10_000) for n in range(1, count + 1)])
    if is_read:
        made = read(tmp_path, printed, pattern, steps_per_epoch=10_000)
        assert rate(made) == pytest.approx(80.0, rel=0.05)
    else:
        with refuses(UnreadError, "rounded to 100", 800):
            read(tmp_path, printed, pattern, steps_per_epoch=10_000)


@pytest.mark.parametrize("validated", [10, 30])  # as many as there are steps, or more
@pytest.mark.parametrize("words", ["Validation", "Epoch 1 | Test", "Eval DataLoader 0"])
def test_bars_of_a_validation_are_no_steps_whatever_they_count_to(
    tmp_path: Path, words: str, validated: int
) -> None:
    """Epochs of 10 steps of 1 s, and of a validation of batches of 0.2 s."""
    printed, now = [], 0.0
    for _ in range(4):
        for name, count, took_s in (("Training", 10, 1.0), (words, validated, 0.2)):
            for n in range(1, count + 1):
                now += took_s
                printed.append((now, f"{name}: {100 * n // count}%|##5 | {n}/{count} [00:01"))
    made = read(tmp_path, printed, r"(?P<step>\d+)/(?P<of>\d+) \[")
    assert (steps(made), rate(made)) == (39, pytest.approx(8.0))


@pytest.mark.parametrize("together", [True, False])
def test_a_bar_that_counts_batches_of_the_validation_is_refused(
    tmp_path: Path, together: bool
) -> None:
    """As that of Lightning 1: 40 steps of 0.5 s and 10 batches of 0.1 s."""
    printed, now, total = [], 0.0, 50 if together else 40
    for epoch in range(3):
        for n in range(1, 41):
            now += 0.5
            printed.append((now, f"Epoch {epoch}:  {2 * n}%|#5 | {n}/{total} [00:01"))
        for n in range(1, 11):
            now += 0.1
            printed.append((now, f"Validating: {10 * n}%|#5  | {n}/10 [00:01"))
            if together:
                printed.append((now, f"Epoch {epoch}: 82%|#5 | {40 + n}/{total} [00:01"))
    pattern = r"Epoch (?P<epoch>\d+):.*\| (?P<step>\d+)/(?P<of>\d+) \["
    if together:
        with refuses(UnreadError, 43, "43/50"):
            read(tmp_path, printed, pattern)
    else:
        made = read(tmp_path, printed, pattern)
        assert (steps(made), rate(made)) == (119, pytest.approx(16.0))


def test_where_each_step_is_validated_its_lines_count_alike(tmp_path: Path) -> None:
    texts = [f"{words} {n}/30 loss 1.5" for n in range(1, 31) for words in ("step", "eval step")]
    made = read(tmp_path, every(0.5, texts), r"^step (?P<step>\d+)/(?P<of>\d+)")
    assert steps(made) == 29


def test_a_bar_that_shows_a_value_of_a_validation_is_of_training(tmp_path: Path) -> None:
    """From the second epoch on."""
    texts = [
        f"Epoch {e}{f', val_loss 0.{e}' if e else ''}: {n}0%|#5 | {n}/10 [00:01"
        for e in range(3)
        for n in range(1, 11)
    ]
    made = read(tmp_path, every(1.0, texts), r"(?P<step>\d+)/(?P<of>\d+) \[")
    assert (steps(made), rate(made)) == (29, pytest.approx(8.0))


def test_one_epoch_of_the_declared_size_is_a_proof(tmp_path: Path) -> None:
    texts = [f"Epoch: 1 [{80 * n}/800 ({n}0%)] Loss: 1.5" for n in range(10)]
    pattern = r"Epoch: (?P<epoch>\d+) \[(?P<seen>\d+)/(?P<of>\d+)"
    assert read(tmp_path, every(0.5, texts), pattern, samples_per_epoch=800).proof.proved
    assert not read(tmp_path, every(0.5, texts), pattern, samples_per_epoch=900).proof.proved
    assert not read(tmp_path, every(0.5, texts), pattern).proof.proved
    steps_of_the_run = [f"iter {10 * n}/1000 loss 1.5" for n in range(10)]
    assert not read(
        tmp_path, every(0.5, steps_of_the_run), r"iter (?P<step>\d+)", samples_per_epoch=800
    ).proof.proved


@pytest.mark.parametrize(
    "says",
    [
        ("epoch {e}: val loss 0.5", r"epoch (?P<epoch>\d+): val loss (?P<eval_loss>\S+)"),
        ("epoch {e}: 41.0% right", r"epoch (?P<epoch>\d+): (?P<top1>\S+%) right"),
        ("epoch {e}: saved", r"epoch (?P<epoch>\d+): (?P<pause>saved)"),
        ("step {n}: val loss 0.5", r"step (?P<step>\d+): val loss (?P<eval_loss>\S+)"),
    ],
)
def test_where_a_validation_stands_is_no_progress(tmp_path: Path, says: tuple[str, str]) -> None:
    """A line of a validation with a group epoch asked for steps_per_epoch; one with a group step
    ended the step before, and all of the validation counted as training.
    """
    printed, now = [], 0.0
    for n in range(60):
        now += 1.0
        if n % 20 == 19:
            printed.append((now + 8.0, says[0].format(e=n // 20, n=n)))
            now += 8.0
        printed.append((now + 0.01, f"step {n} | loss 1.5"))
    made = read(tmp_path, printed, r"step (?P<step>\d+) \| loss (?P<loss>\S+)", says[1])
    assert (steps(made), rate(made)) == (59, pytest.approx(8.0))
    assert made.remarks["pauses"]["told_by"] == ["line"]  # type: ignore[index]


def test_an_epoch_of_training_and_validation_in_one_line_counts(tmp_path: Path) -> None:
    texts = [f"epoch {n}: loss 1.5, top-1 41.0%" for n in range(1, 6)]
    pattern = r"epoch (?P<epoch>\d+): loss (?P<loss>[\d.]+), top-1 (?P<top1>\S+)"
    assert steps(read(tmp_path, every(1.0, texts), pattern, steps_per_epoch=50)) == 200
    with refuses(UnreadError, "(?P<epoch>", "top-1", "steps_per_epoch"):
        read(tmp_path, every(1.0, texts), pattern)


@pytest.mark.parametrize(
    "form", ["{k:.1f}k", "{k:.1f}K/800.0K", "{k:.2f} k", "{m:.4f}M", "{n:.2e}", "{k:.1f}kimg"]
)
@pytest.mark.parametrize("group", [r"(?P<seen_all>[\d.]+)", r"(?P<seen_all>\S+)"])
def test_samples_that_are_rounded_to_thousands_are_read(
    tmp_path: Path, form: str, group: str
) -> None:
    """A line every five steps of 8 samples; 4000 steps of 0.1 s."""
    if " k" in form:
        group = r"(?P<seen_all>[\d.]+ k)"
    texts = [form.format(k=40 * n / 1e3, m=40 * n / 1e6, n=40 * n) for n in range(800)]
    if "e" in form:
        group = r"(?P<seen_all>[\d.e+]+)"
    printed = every(0.5, [f"seen {text}, loss 1.5" for text in texts])
    made = read(tmp_path, printed, f"seen {group}")
    assert rate(made) == pytest.approx(80.0, rel=0.03)


def test_counts_that_are_too_coarse_are_refused_by_their_unit(tmp_path: Path) -> None:
    texts = [f"seen {8 * n / 1e3:.1f}k, loss 1.5" for n in range(100)]
    with refuses(UnreadError, "rounded to 100", "0.8k", "800"):
        read(tmp_path, every(0.5, texts), r"seen (?P<seen_all>[\d.]+)")
    texts = [f"step {n / 1e3:.1f}k" for n in range(500)]
    with refuses(UnreadError, "rounded to 100", "0.5k", "500"):
        read(tmp_path, every(0.5, texts), r"step (?P<step>[\d.]+)")
    in_thousands = [f"kimg {n * 0.4:.1f} loss 1.5" for n in range(20)]
    with refuses(UnreadError, "0.4 a line", "thousands"):
        read(tmp_path, every(0.5, in_thousands), r"kimg (?P<seen_all>[\d.]+)")


@pytest.mark.parametrize(
    ("text", "is_proved"),
    [
        ("10.2k tok/s", True),
        ("10.2 ktok/s", True),
        ("0.0102M tok/s", True),
        ("10k/s", True),
        ("0.01M/s", False),  # 5 to 15 thousand: confirms nothing, and contradicts nothing
        ("1.02e4/s", True),
    ],
)
def test_rates_in_thousands_are_compared_as_far_as_they_are_exact(
    tmp_path: Path, text: str, is_proved: bool
) -> None:
    printed = every(0.1, [f"step {n}: {text}" for n in range(9)])
    for group in (r"(?P<samples_per_s>[\d.]+(?:e\d)?)", r"(?P<samples_per_s>.*)"):
        made = read(tmp_path, printed, rf"step (?P<step>\d+): {group}", batch=1024)
        assert made.proof.proved is is_proved


def test_a_rate_of_thousands_that_does_not_say_so_is_refused_with_the_likely_reason(
    tmp_path: Path,
) -> None:
    printed = every(0.1, [f"step {n} ktok/s: 10.2" for n in range(9)])
    with refuses(UnreadError, 10.2, 10240, "thousands"):
        read(tmp_path, printed, r"step (?P<step>\d+) ktok/s: (?P<samples_per_s>\S+)", batch=1024)


@pytest.mark.parametrize(("text", "size"), [("1.0k", 1024), ("1k", 1024), ("8.2k", 8200)])
def test_samples_of_a_step_that_are_rounded_are_the_batch(
    tmp_path: Path, text: str, size: int
) -> None:
    printed = every(1.0, [f"step {n} tokens {text}" for n in range(9)])
    pattern = r"step (?P<step>\d+) tokens (?P<samples>[\d.]+)"
    assert rate(read(tmp_path, printed, pattern, batch=1024)) == pytest.approx(size)
    with refuses(UnreadError, "1000", "3k", 64):
        coarse = every(1.0, [f"step {n} tokens 3k" for n in range(9)])
        read(tmp_path, coarse, pattern, batch=64)


def test_a_counter_in_thousands_beside_steps_contradicts_nothing(tmp_path: Path) -> None:
    texts = [f"step {n} samples: {8 * n / 1e3:.0f}k loss 1.5" for n in range(900)]
    made = read(tmp_path, every(0.1, texts), r"step (?P<step>\d+)")
    assert steps(made) == 899


class Log:
    """A made-up log, by a seed: epochs of steps of one length, with noise, a validation behind
    each, gaps, ranks.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.batch = draw.choice([4, 8, 32])
        self.per_epoch = draw.randint(20, 90)
        self.epochs = draw.randint(1, 5)
        self.every = draw.choice([1, 1, 2, 5, 10])
        self.first = draw.choice([0, 1])
        self.took_s = draw.uniform(0.02, 0.5)
        self.validates_s = draw.choice([0.0, 0.0, 5.0]) * draw.uniform(1, 3) * self.took_s
        self.form: Callable[..., str] = draw.choice(FORMS)
        self.copies = draw.choice([1, 1, 1, 2])
        self.comma = draw.choice(["", ","])
        self.printed: Printed = []
        now = 0.0
        for epoch in range(self.epochs):
            for n in range(self.per_epoch):
                now += self.took_s * draw.uniform(0.97, 1.03)
                if n % self.every == 0:
                    for copy in range(self.copies):
                        text = self.form(self, epoch, n + self.first, f"{draw.uniform(-1, 9):.4f}")
                        self.printed.append((now + 0.001 * copy, text))
            now += self.validates_s
        if (
            draw.random() < 0.2 and len(self.printed) > 40
        ):  # lines of ranks that overtake each other
            for _ in range(4):
                n = draw.randrange(len(self.printed) - 1)
                (a, text), (b, other) = self.printed[n : n + 2]
                self.printed[n : n + 2] = [(a, other), (b, text)]

    @property
    def rate(self) -> float:
        return self.batch / self.took_s

    @property
    def steps(self) -> int:
        last = (self.per_epoch - 1) // self.every * self.every
        return (self.epochs - 1) * self.per_epoch + last


FORMS: list[Callable[..., str]] = [
    lambda log, e, n, loss: f"Epoch {e} step {n}/{log.per_epoch} loss {loss}",
    lambda log, e, n, loss: f"iter {e * log.per_epoch + n:{log.comma}} | loss: {loss}",
    lambda log, e, n, loss: f"({e}) step {n:{log.comma}} loss {loss}",
    lambda log, e, n, loss: f"[{e}][{n}/{log.per_epoch}]\tLoss {loss}",
    lambda log, e, n, loss: f"epoch {e} [{n * log.batch}/{log.per_epoch * log.batch}] loss={loss}",
    lambda log, e, n, loss: (
        f"step {(e * log.per_epoch + n) * log.batch:{log.comma}} samples loss={loss}"
    ),
    lambda log, e, n, loss: (
        f"it {4 * (e * log.per_epoch + n)} step {e * log.per_epoch + n} loss {loss}"
    ),
]
TRIED = [
    OLD,
    r"(?:step|iter) (?P<step>\d+).*loss\W+(?P<loss>[-\d.]+)",
    r"\[(?P<step>\d+)/\d+\]\s+(?i:loss)\W(?P<loss>\S+)",
    r"(?i)epoch (?P<epoch>\d+) step (?P<step>\d+)/(?P<of>\d+)",
    r"\[(?P<seen>\d+)/",
    r"(?P<step>\d+)",
    r"it (?P<step>\d+)",
]


@pytest.mark.more
@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_made_up_logs_are_read_right_or_refused(tmp_path: Path, seed: int) -> None:
    """Of whatever pattern: what is read is within 5 %, or refused. A right pattern of a plain log
    is read.
    """
    right = refused = 0
    for each in range(seed, seed + 20):
        log = Log(each)
        for pattern in TRIED:
            try:
                made = read(tmp_path, log.printed, pattern, batch=log.batch)
            except UnreadError:
                refused += 1
                continue
            if "gaps" in made.remarks:  # nobody can tell whether they are training, which is said
                continue
            what = (each, pattern, log.printed[:3], log.every, log.per_epoch)
            assert rate(made) == pytest.approx(log.rate, rel=0.05), what
            assert steps(made) == pytest.approx(log.steps, rel=0.05, abs=log.every), what
            right += 1
    assert right > 10
    assert refused > 10
