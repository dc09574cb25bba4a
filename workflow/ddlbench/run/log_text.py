"""Lines as people and programs print them: colours, blanks, numbers, and the counters that stand
beside each other.

All functions here are pure: texts in, values out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
BLANKS = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
PIECES = re.compile(r"[\r\x08]+")  # what starts a terminal's line anew
UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "%": 0.01}
# The k of `10.2k`, and that of `10.2 ktok/s`; the B of `12 Batches` is none.
PREFIX = r"(?:[kKMGB](?![A-Za-z0-9])|[kKMG](?=(?:tok|im(?:g|age)|sample|seq|example)[a-z]*\b))"
NUMBER = re.compile(
    r"([-+]?[\d.,_' ]*\d\.?(?:[eE][-+]?\d+)?|(?i:[-+]?(?:nan|inf(?:inity)?)))"
    rf"\s*((?:{PREFIX}|%)?+)(?:[^\d.,].*|(?<=[kKMGB])[.,])?"
)
# Groups of numbers that may be rounded to thousands or millions. Of a rate or of samples the prefix
# may stand apart.
ROUNDED = {
    **dict.fromkeys(("step", "seen", "seen_all", "of"), re.compile(PREFIX)),
    **dict.fromkeys(("samples", "samples_per_s"), re.compile(rf" ?{PREFIX}")),
}
SEPARATORS = re.compile(r"[,_' ]")
GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:[,_' ]\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
BEFORE = re.compile(r"[-+]?(?:0|[1-9]\d{0,2}(?:[,_']\d{3})*)")  # what thousands follow
NOT_FINITE = re.compile(r"[-+]?\b(?:nan|inf|infinity)\b", re.I)
NEGATIVE = re.compile(r"(?<![\w.\-+])-(?:\d[\d,_']*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
SEPARATED = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:[,_']\d{3})+(?![\d,])")
SIGN = re.compile(r"(?:^|[\s=:(\[{,|])([-+])$")
BEHIND = re.compile(r"(?:[,_']\d{3})+(?!\d|,\d)(?:\.\d+)?(?:[eE][-+]?\d+)?|\.?\d*(?:[eE][-+]?\d+)?")
STAND_IN = "90000{:04d}.0"  # stands where a pattern that knows digits only would not match
MOST_STAND_INS = 9999


def plain(text: str) -> str:
    """Return the text without the codes of a terminal's colours."""
    return COLOURS.sub("", text)


def pieces(text: str) -> list[str]:
    """Return what a terminal shows of a line one after the other, where carriage returns write over
    what was there.
    """
    return (
        [piece for piece in PIECES.split(text) if piece.strip()] if PIECES.search(text) else [text]
    )


def number(text: str | None) -> float | None:
    """Return a number as people print it: with thousands separators, and a unit such as k, M or %.
    None of else: the comma of `0,898` separates no thousands.
    """
    found = NUMBER.fullmatch(text.strip()) if text else None
    if not found or (SEPARATORS.search(found[1]) and not GROUPED.fullmatch(found[1])):
        return None
    try:
        return float(SEPARATORS.sub("", found[1])) * UNITS[found[2]]
    except (ValueError, KeyError):
        return None


def resolution(text: str) -> float:
    """Return by how much two numbers differ at least that are printed like this one: 100 for
    `1.3k`, 1 for `1300`. 0 of what is no number.
    """
    found, value = NUMBER.fullmatch(text.strip()), number(text)
    if not found or value is None or not math.isfinite(value):
        return 0.0
    digits, _, power = found[1].lower().partition("e")
    decimals = len(digits.partition(".")[2])
    return float(10.0 ** (int(power or 0) - decimals) * UNITS[found[2]])


@dataclass(frozen=True)
class Found:
    """A match of a pattern in `text`: each group's number and the text that it was read from, and
    where it stands.
    """

    text: str
    values: dict[str, float | None]
    said: dict[str, str]
    spans: dict[str, tuple[int, int]]


def find(pattern: re.Pattern[str], text: str) -> Found | None:
    """Return what the pattern finds in a line.

    Colours are not part of a line. Where nothing matches, blanks are taken together, then numbers
    that are negative, not finite, or have separators of thousands count as digits. A group that
    holds a part of a number gets all of it, and its sign.
    """
    text = plain(text)
    match = pattern.search(text)
    if match is None:
        text = BLANKS.sub(" ", text)
        match = pattern.search(text)
    stood: dict[str, str] = {}
    if match is None:
        other = _stand_ins(text, stood)
        match = pattern.search(other) if other != text else None
        text = other
    if match is None:
        return None
    there = [name for name in match.groupdict() if match[name] is not None]
    rests = {name: _rest(text, match, name) for name in there}
    said = {name: _signed(text, match, name) + rests[name] for name in there}
    for name, one in said.items():
        said[name] = next(
            (real for digits, real in stood.items() if one.startswith(digits[:-2])), one
        )
    values = {name: number(one) for name, one in said.items()}
    spans = {name: (match.start(name), match.end(name) + len(rests[name])) for name in there}
    return Found(text, values, said, spans)


def _stand_ins(text: str, stood: dict[str, str]) -> str:
    """Return the text with digits for numbers that are negative or not finite; `stood` gets what
    they stand for.
    """

    def put(match: re.Match[str]) -> str:
        if len(stood) >= MOST_STAND_INS:
            return match[0]
        digits = STAND_IN.format(len(stood))
        stood[digits] = match[0]
        return digits

    return SEPARATED.sub(
        lambda match: re.sub(r"\D", "", match[0]), NEGATIVE.sub(put, NOT_FINITE.sub(put, text))
    )


def _signed(text: str, match: re.Match[str], name: str) -> str:
    """Return what a group matched, with the sign before it if it is a loss."""
    said = match[name]
    if name in ("loss", "eval_loss") and said[:1].isdigit():
        sign = SIGN.search(text[: match.start(name)])
        said = sign[1] + said if sign else said
    return said


def _rest(text: str, match: re.Match[str], name: str) -> str:
    """Return what of a number stands behind the group that should hold all of it: `,000` of
    `1,000`.
    """
    if not match[name][-1:].isdigit():
        return ""
    start, end = match.span(name)
    behind = BEHIND.match(text, end)
    rest = behind[0] if behind else ""
    if SEPARATORS.match(rest):
        # The pattern may need the comma for something else, as in lines of CSV or in `[1,100]`.
        joined = text[:end] + SEPARATORS.sub("", rest) + text[end + len(rest) :]
        other = match.re.search(joined) if BEFORE.fullmatch(match[name]) else None
        rest = rest if other and other.start(name) == start else ""
    prefix = ROUNDED[name].match(text, end + len(rest)) if name in ROUNDED else None
    return rest + (prefix[0] if prefix else "")


# What stands before a number in a line, as words: `global batch size:  1024`.
TOKEN = re.compile(
    r"(?<![\w.])[-+]?(?:[1-9]\d{0,2}(?:[,_']\d{3})+(?!\d|,\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d]|\.\d|:\d)(?<!\d:\d\d)"
)
LABEL = re.compile(r"([A-Za-z_](?:[A-Za-z_()/ .-]*[A-Za-z_)])?)[^A-Za-z0-9]{0,8}$")
TOTAL = re.compile(rf"\s*(?:/|[oO][fF])\s*(\d[\d,_']*(?:\.\d+)?{PREFIX}?)")
UNIT = re.compile(
    r"\s*(ms|sec(?:onds)?|s)?\s*(?:/|per )?\s*(it|iter(?:ation)?|step|batch)?(?:/s(?:ec)?\b)?", re.I
)
STEPS = re.compile(
    r"(?:^|[^a-z])(?:step|iter|iteration|update|batch|it|minibatch|mini_batch|globalstep)s?$", re.I
)
SAMPLES = re.compile(
    r"(?:sample|image|img|example|sequence|record|picture|item)s?(?: (?:seen|done|so far|processed))?$",
    re.I,
)
EPOCHS = re.compile(r"(?:^|[^a-z])(?:epoch|ep)s?$", re.I)
VALIDATION = re.compile(r"(?<![a-z])(val|eval|test)", re.I)
# The loss that is trained on, beside parts of it such as `loss_cls` and `load_balancing_loss`.
TOTAL_LOSS = re.compile(
    r"(^|[/ -])(train(ing)?.?)?(total.?)?loss(.?(train|training|total))?(_?step)?$", re.I
)

WORKER = r"(?:gpu|cpu|npu|xpu|tpu|rank|device|worker|process|chip|accelerator)s?"
OF_ONE = re.compile(rf"[^\d\n]{{0,30}}?(?:/|\bper[ _-]?){WORKER}\b", re.I)
FOR_ONE = re.compile(rf"(?:/|\bper[ _-]?){WORKER}(?:[ _](?:rate|throughput|speed))?$", re.I)


@dataclass(frozen=True)
class Token:
    """A number of a line, with the words before it, the total behind it (`100/600`), and where it
    stands.
    """

    label: str
    value: float
    whole: bool
    total: float | None
    span: tuple[int, int]
    behind: str


def tokens(text: str) -> Iterator[Token]:
    """Yield the numbers of a line, but totals and what belongs to a time of day."""
    after = 0
    for match in TOKEN.finditer(text):
        start, end = match.span()
        if start < after or (
            start and text[start - 1] in ":" and start > 1 and text[start - 2].isdigit()
        ):
            continue
        prefix = ROUNDED["seen"].match(text, end)
        end = prefix.end() if prefix else end
        total = TOTAL.match(text, end)
        after = total.end() if total else end
        said = text[start:end]
        value = number(said)
        if value is None:
            continue
        yield Token(
            label(text[:start]),
            value,
            said.lstrip("+-").replace(",", "").isdigit(),
            number(total[1]) if total else None,
            (start, end),
            text[end : end + 24],
        )


def label(before: str) -> str:
    """Return the words right before a number, in small letters; empty where another number stands
    between.
    """
    found = LABEL.search(before[-60:])
    words = re.split(r"[^A-Za-z_/()]+", found[1]) if found else []
    return " ".join(words[-4:]).lower().strip()


def total_behind(text: str, end: int) -> float | None:
    """Return the total that stands right behind a number: 600 of `100/600`."""
    found = TOTAL.match(text, end)
    return number(found[1]) if found else None


def of_one_worker(text: str, span: tuple[int, int]) -> bool:
    """Return whether words beside a number show that it is one worker's: `3.5 img/sec per CPU`,
    `tok/s/gpu: 12`.
    """
    return bool(OF_ONE.match(text, span[1]) or FOR_ONE.search(label(text[: span[0]])))


def words_of(text: str) -> str:
    """Return what lines of one kind share: their words, without numbers and bars."""
    return " ".join(re.findall(r"[A-Za-z_]+", text))


@dataclass(frozen=True)
class Counter:
    """The numbers that stand at one place of many lines: their label, which of its name in the
    line, their values by line.
    """

    label: str
    nth: int
    values: tuple[float | None, ...]
    totals: tuple[float | None, ...]
    whole: bool

    @property
    def name(self) -> str:
        """Return what people call it: its label, or the form in which it stands."""
        total = next((one for one in self.totals if one is not None), None)
        value = next((one for one in self.values if one is not None), math.nan)
        return self.label or (f"[{value:g}/{total:g}]" if total is not None else f"{value:g}")

    def differences(self) -> list[float | None]:
        """Return how it moves from line to line; None where a line lacks it."""
        pairs = zip(self.values, self.values[1:], strict=False)
        return [None if a is None or b is None else b - a for a, b in pairs]


def counters(texts: Sequence[str]) -> list[Counter]:
    """Return the numbers that stand in most of these lines, each as a series over them."""
    rows: list[dict[tuple[str, int], Token]] = []
    for text in texts:
        row: dict[tuple[str, int], Token] = {}
        for token in tokens(text):
            nth = sum(1 for name, _ in row if name == token.label)
            row[token.label, nth] = token
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    found = []
    for name in names:
        of = [row.get(name) for row in rows]
        there = [token for token in of if token is not None]
        if len(there) >= 0.8 * len(rows):
            values = tuple(None if token is None else token.value for token in of)
            totals = tuple(None if token is None else token.total for token in of)
            found.append(Counter(*name, values, totals, all(token.whole for token in there)))
    return found


def seconds_of_a_step(texts: Iterable[str]) -> list[tuple[str, list[float | None]]]:
    """Return times of a step that the lines print, each as a series [s]: `49.3ms`, `1.04s/it`,
    `2.5it/s`.
    """
    found: dict[str, list[float | None]] = {}
    count = 0
    for text in texts:
        for token in tokens(text):
            if (took := _seconds(token)) is not None:
                of_step = (
                    " step"
                    if re.match(r"\s*(ms|s|sec)?\s*/\s*(it|step|batch)", token.behind)
                    else ""
                )
                series = found.setdefault(f"{token.label}{of_step}", [])
                series += [None] * (count - len(series))
                if len(series) == count:
                    series.append(took)
        count += 1
    return [(name, series + [None] * (count - len(series))) for name, series in found.items()]


TIMED = re.compile(r"time(?![_ -]?steps?\b)|\(t\)|elapsed|duration|dt\b|latency", re.I)
NOT_A_STEP = re.compile(r"data|load|remaining|eta|total|epoch|forward|backward|valid|eval", re.I)


def _seconds(token: Token) -> float | None:
    """Return how long a step took, if a number states it [s]."""
    behind = token.behind.strip().lower()
    if re.match(r"(it|iters?|steps?|batch(es)?)\s?/\s?s", behind):
        return 1 / token.value if token.value > 0 else None
    if token.value <= 0 or NOT_A_STEP.search(token.label):
        return None
    if match := re.match(r"(ms|s|sec)\s?/\s?(it|iter|step|batch)", behind):
        return token.value * (1e-3 if match[1] == "ms" else 1.0)
    if not TIMED.search(token.label):
        return None
    return token.value * (1e-3 if re.match(r"ms\b", behind) or "(ms)" in token.label else 1.0)
