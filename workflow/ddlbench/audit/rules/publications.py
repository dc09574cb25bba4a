"""Numbers as sources print them: whether they agree with each other, and whether they say what they are."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pandas as pd

from ddlbench.analysis.scaling import efficiency, speed_up
from ddlbench.audit import SC15, Finding, Findings, Material, rule
from ddlbench.audit._compare import each, groups
from ddlbench.audit._material import NAMED
from ddlbench.audit.rules.scaling import absent
from ddlbench.core import registry

# How a published number is meant, and how it is written.
RELATIONS = {"approx": "", "above": "more than ", "below": "less than "}
OF_CLAIMS = {"about": "approx", "above": "above", "below": "below"}  # what claims call relations
ABOUT = 0.1  # two numbers that are `approx` may differ by this share of the larger one
FITS = ("source_of", *(name for name in NAMED if name != "quantity"))
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
Number = Mapping[str, Any]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of published numbers, each with a relation and a name."""
    missing: dict[str, Any] = {"relation": "approx", "row": "a number"}
    return [missing | {str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def fit(number: Number, other: Number) -> bool:
    """Whether two published numbers may be of the same runs: nothing and `any` fit everything."""
    return all(_fit(key, number.get(key), other.get(key)) for key in FITS)


def _fit(key: str, value: Any, other: Any) -> bool:
    """Whether two values of a column can be of the same runs. `step|cosine` are two values."""
    if pd.isna(value) or pd.isna(other):
        return True
    if not isinstance(value, str):
        return bool(value == other)
    left, right = (set(str(text).split("|")) for text in (value, other))
    same = left & right
    if key == "loader":  # `dali` is what papers call both of DALI's
        same |= {registry.family(name) for name in left} & right | {registry.family(name) for name in right} & left
    return bool(same) or "any" in left | right


def contradict(number: Number, other: Number) -> bool:
    """Whether two numbers of one thing cannot both hold."""
    values = {number["relation"]: number["value"], other["relation"]: other["value"]}
    if number["relation"] == other["relation"] != "approx":
        return False
    if {"above", "below"} == set(values):
        return bool(values["above"] >= values["below"])
    if "above" in values:
        return bool(values["approx"] < values["above"] * (1 - ABOUT / 2))
    if "below" in values:
        return bool(values["approx"] > values["below"] * (1 + ABOUT / 2))
    a, b = number["value"], other["value"]
    return bool(abs(a - b) > ABOUT * max(abs(a), abs(b)))


def quoted(number: Number) -> str:
    """A number as it is written: `less than 0.24`."""
    return f"{RELATIONS[number['relation']]}{number['value']:g}"


@rule(
    "error",
    "numbers.quantity numbers.value numbers.workers",
    "ask the authors, or draw neither",
    "Aach et al. 2023: the native loader at 512 GPUs has 'below 0.24' in one section and 0.45 in another",
)
def contradicting_numbers(material: Material) -> Findings:
    """A source gives one number for one thing.

    Two sections that print two numbers for the same runs leave readers to choose. Numbers said to be about as large may
    differ by a tenth.
    """
    numbers = material.numbers
    if "series" in numbers:  # our own runs give one number for each point
        return
    for quantity in numbers["quantity"].unique():
        for number, other in combinations(records(numbers[numbers["quantity"] == quantity]), 2):
            if fit(number, other) and contradict(number, other):
                yield Finding((number["row"], other["row"]), f"{quantity} is {quoted(number)}, and {quoted(other)}")


@rule(
    "error",
    "numbers.quantity numbers.value numbers.workers",
    "find out which of the two is wrong",
    "Aach et al. 2023: 234 times from 4 to 1024 GPUs is 0.91, printed beside 0.76",
)
def efficiency_from_speed_up(material: Material) -> Findings:
    """A published speed-up and an efficiency of the same runs agree: E = S * ref / G."""
    if "series" in material.numbers:  # of our own runs one is computed from the other
        return
    speed_ups, efficiencies = (
        records(material.numbers[material.numbers["quantity"] == name]) for name in ("speed-up", "efficiency")
    )
    for left, right in ((ours, other) for ours in speed_ups for other in efficiencies if fit(ours, other)):
        # A base that is not named is 1.
        ref = next((row["ref_workers"] for row in (left, right) if row.get("ref_workers", math.nan) > 0), 1)
        implied = efficiency(left["value"], ref, left["workers"])
        if contradict({"relation": "approx", "value": implied}, right):
            what = f"speed-up {left['value']:g} at {left['workers']:g} workers, base {ref:g}, is"
            yield Finding((left["row"], right["row"]), f"{what} efficiency {implied:.2f}; said is {quoted(right)}")


@rule(
    "error",
    "numbers.quantity numbers.value numbers.workers numbers.base_images_per_s",
    "find out which of the numbers is wrong",
    f"{SC15}, rule 1; arithmetic",
)
def throughput_from_speed_up(material: Material) -> Findings:
    """A published throughput is that of its base times the speed-up beside it, and no base is faster than its ceiling.

    Numbers said to be about as large may differ by a tenth.
    """
    numbers = material.numbers
    if "series" in numbers:  # our own rates are of steps, a speed-up may be of the whole training
        return
    rates = records(numbers[numbers["quantity"] == "throughput"])
    for number in records(numbers[numbers["quantity"] == "speed-up"]):
        implied = {"relation": number["relation"], "value": number["value"] * number["base_images_per_s"]}
        for other in rates:
            if fit(number, other) and contradict(implied, other):
                says = f"{quoted(number)} times {number['base_images_per_s']:g} images/s are {quoted(implied)} images/s"
                yield Finding((number["row"], other["row"]), f"{says}; said is {quoted(other)}")
    if "ceiling_images_per_s" in numbers:
        above = numbers["base_images_per_s"] > (1 + ABOUT) * numbers["ceiling_images_per_s"]
        yield from each(numbers, above, "base: {base_images_per_s} images/s, its ceiling {ceiling_images_per_s}")


@rule(
    "error",
    "numbers.quantity numbers.value numbers.workers numbers.unit",
    "find out whether times and efficiencies are of the same runs",
    "Aach et al. 2023: 13 h on 4 and 200 s on 1024 GPUs are 0.91, printed beside 0.76 and 0.68",
)
def efficiency_from_runtimes(material: Material) -> Findings:
    """Runtimes and efficiencies of the same runs agree: E = T_ref / T_G * ref / G."""
    numbers = material.numbers
    times = numbers[numbers["quantity"] == "runtime"]
    times = times.assign(s=times["value"] * times["unit"].map(SECONDS).astype("float64")).dropna(subset="s")
    efficiencies = records(numbers[numbers["quantity"] == "efficiency"])
    for _, rows in groups(times, ["source_of", "model", "framework", "loader"]):
        base = rows.sort_values("workers", kind="stable").iloc[0]
        for row in rows[rows["workers"] > base["workers"]].to_dict("records"):
            implied = efficiency(speed_up(base["s"], row["s"]), base["workers"], row["workers"])
            for other in efficiencies:
                if fit(row, other) and contradict({"relation": "approx", "value": implied}, other):
                    what = f"{base['value']:g} {base['unit']} on {base['workers']} and {row['value']:g} {row['unit']}"
                    what += f" on {row['workers']} workers are efficiency {implied:.2f}; said is {quoted(other)}"
                    yield Finding((str(base["row"]), row["row"], other["row"]), what)


@rule(
    "error",
    "claims.quantity claims.left claims.relation claims.value numbers.quantity numbers.value",
    "believe the table, and say so; ask the authors",
    "seen in Aach et al. 2023, whose sections give two numbers for one thing",
)
def claims_against_tables(material: Material) -> Findings:
    """What a source says in words agrees with the numbers of its own tables and figures.

    Abstracts and conclusions are written last, and read first.
    """
    numbers = records(material.numbers)
    for claim in records(material["claims"]):
        if claim["relation"] not in OF_CLAIMS:
            continue
        value = {"relation": OF_CLAIMS[claim["relation"]], "value": claim["value"]}
        for number in numbers:
            if _of_claim(claim, number) and contradict(value, number):
                what = f"{claim['quantity']} is said to be {quoted(value)}, the table has {quoted(number)}"
                yield Finding((str(claim["id"]), str(number["row"])), what)


def _of_claim(claim: Number, number: Number) -> bool:
    """Whether the number is of the claim's source and of what it is about. Nothing said there fits everything."""
    if claim["quantity"] != number["quantity"] or claim.get("source") != number.get("table", claim.get("source")):
        return False
    if claim["quantity"] == "runtime" and number.get("unit") != "s":
        return False
    for key, values in (part.split("=", 1) for part in claim["left"].split(";") if "=" in part):
        value = number.get(key)
        if value is None or pd.isna(value) or value == "":
            continue
        if not (_fit(key, values, value) if isinstance(value, str) else str(value) in values.split("|")):
            return False
    return True


@rule("error", "numbers.quantity numbers.relation", "add the reason, or leave the row out", f"{SC15}, rule 2")
def missing_values(material: Material) -> Findings:
    """A published cell without a number says why in `note`."""
    bad = material.numbers["value"].isna() & absent(material.numbers, "note")
    return each(material.numbers, bad, "{quantity} at {workers} workers has neither a value nor a note")


@rule("warning", "numbers.quantity", "add the source with its section or table", f"{SC15}, rule 9")
def source_is_named(material: Material) -> Findings:
    """A published number says where it stands: the paper, and its section or table."""
    bad = (material.numbers["quantity"] != "") & absent(material.numbers, "source")
    return each(material.numbers, bad, "{quantity} at {workers} workers has no source")


@rule("warning", "numbers.quantity numbers.unit", "add `per`: sum or wall", f"{SC15}, rule 9")
def gpu_hours(material: Material) -> Findings:
    """GPU hours say whether they are summed over GPUs or are the wall time of all."""
    numbers = material.numbers
    units = ["gpu h", "gpu-h", "gpu hours", "gpu-hours", "worker h"]
    hours = numbers["unit"].astype("str").str.lower().isin(units) | numbers["quantity"].isin(["gpu-hours"])
    unsaid = ~numbers["per"].isin(["sum", "wall"]) if "per" in numbers else True
    return each(numbers, hours & unsaid, "{value} {unit}: summed over GPUs, or by the clock?")
