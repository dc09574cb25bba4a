"""Many random changes to the files under config/: each ends in a plan or in one line, within
seconds.

The seed is fixed, so that a failure can be made again: DDLBENCH_SEED=<seed> chooses another.
"""

import copy
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.settings.config import CONFIG, ConfigError, read_yaml
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config

from tests.conftest import SLOW

SEED = int(os.environ.get("DDLBENCH_SEED", "12"))
CHANGES = 600 if SLOW else 150
SECONDS = 5
# Each study on a machine that it is made for; together they use every machine and every recipe.
PAIRS = (
    ("demo", "local"),
    ("frameworks", "local"),
    ("one-gpu", "workstation"),
    ("liang2023", "slurm"),
    ("mlperf-lars", "juwels-booster"),
    ("aach2023", "juwels-booster"),
)
BOMB = "&a [x, x, x, x, x, x, x, x, x, x]"
for _level in "bcdefghij":
    BOMB = f"&{_level} [" + ", ".join([BOMB, *[f"*{chr(ord(_level) - 1)}"] * 9]) + "]"
# What a value is replaced by, as YAML text.
HOSTILE = (
    *(
        "null",
        "true",
        "no",
        "ON",
        "-1",
        "0",
        "1",
        "2",
        "100000",
        "1e308",
        ".nan",
        "-.inf",
        "0x10",
        "010",
        "1:30",
    ),
    "1_000",
    *(
        "9" * 400,
        "9" * 5000,
        "1e999",
        "9223372036854775807",
        "5",
        "0.5",
        "''",
        "' '",
        '"a\\n"',
        '"a\\e[31m"',
        '"\\0"',
    ),
    *(
        "~/x",
        "$HOME/x",
        "${NOPE}/x",
        "'{x}'",
        "'{input}'",
        "'{{'",
        "a" * 300,
        "ü",
        "../x",
        "'$(id)'",
        "2024-01-01",
    ),
    *(
        "2024-13-45",
        "!!int x",
        "!!float x",
        "!!bool x",
        "!!binary x",
        "!!set {a}",
        "!!python/name:os.system",
        "!x y",
    ),
    *(
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "{a: {b: c}}",
        "{1: 2, a: b}",
        "{NO: 1, A: b}",
        "{[1]: 2}",
        "[1, a, null]",
    ),
    *(
        "&s [*s]",
        "&s {a: *s}",
        "{<<: 1}",
        "{<<: [a]}",
        "*nowhere",
        "[" * 5000,
        "[" * 60 + "]" * 60,
        BOMB,
    ),
    *(
        "[1, 1]",
        "[ddp, ddp]",
        "[64]",
        "[128, 3]",
        "demo",
        "lenet",
        "native",
        f"[{', '.join(map(str, range(1, 3000)))}]",
    ),
)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raises TimeoutError after so many seconds of work: other processes on this computer do not
    count.
    """

    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside this one."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield (*here, key)
        yield from places(part, (*here, key))


def changed_value(text: str, chance: random.Random) -> str:
    """One value of the file is another, or gone, or under another name, or there twice as deep."""
    data = copy.deepcopy(yaml.safe_load(text))  # without aliases, so that a change is one change
    *outer, last = chance.choice(list(places(data)))
    holder = data
    for key in outer:
        holder = holder[key]
    kind = chance.random()
    if kind < 0.1:
        del holder[last]
    elif kind < 0.2 and isinstance(holder, dict):
        holder[chance.choice([f"{last}x", str(last)[:-1], 7, None, True, f"{last}\n"])] = (
            holder.pop(last)
        )
    elif kind < 0.25:
        holder[last] = {"x": holder[last]}
    else:
        holder[last] = "PUT-IT-HERE"
    dumped = yaml.safe_dump(data, sort_keys=False, width=1000)
    return dumped.replace("PUT-IT-HERE", chance.choice(HOSTILE))


def changed_text(text: str, chance: random.Random) -> str:
    """Lines or characters that were lost, doubled, swapped or put in."""
    lines = text.splitlines(keepends=True)
    n, m = chance.randrange(len(lines)), chance.randrange(len(lines))
    at = chance.randrange(len(text))
    ways: list[Callable[[], str]] = [
        lambda: "".join(lines[:n] + lines[n + 1 :]),
        lambda: "".join([*lines[:n], lines[n], *lines[n:]]),
        lambda: "".join(
            lines[m] if i == n else lines[n] if i == m else line for i, line in enumerate(lines)
        ),
        lambda: "".join([*lines[:n], "  " + lines[n], *lines[n + 1 :]]),
        lambda: text[:at],
        lambda: (
            text[:at]
            + chance.choice(":-[]{}#&*!|>'\"%@`,?\t\x00\x07\ud800 \n\r\ufeff\u2028é0~$")
            + text[at:]
        ),
        lambda: text[:at] + text[at + 1 :],
        lambda: text + f"\nextra: {chance.choice(HOSTILE)}\n",
        lambda: f"{text}\n---\n{text}",
    ]
    return chance.choice(ways)()


def plan(folder: Path) -> Plan:
    """As the Snakefile makes it; two workers fit on `local`, whatever computer tests this."""
    config = check_config(read_yaml(folder / "config.yaml"), str(folder / "config.yaml"))
    machine = load_machine(config["machine"], folder / "machines")
    if machine.name == "local":
        machine = replace(machine, workers_per_node=min(machine.workers_per_node, 2))
    return make_plan(load_study(config["study"], folder / "studies"), machine, config["account"])


@pytest.mark.more
def test_each_change_is_a_plan_or_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    chance = random.Random(SEED)
    config = tmp_path / "config"
    shutil.copytree(CONFIG, config)
    plans, complaints = 0, 0
    for number in range(CHANGES):
        study, machine = chance.choices(PAIRS, weights=(6, 4, 3, 2, 2, 1))[0]
        (config / "config.yaml").write_text(f"study: {study}\nmachine: {machine}\naccount: a\n")
        says = yaml.safe_load((config / "studies" / f"{study}.yaml").read_text())
        named = sorted({one["recipe"] for one in (says, *says["runs"].values()) if "recipe" in one})
        files = [
            config / "config.yaml",
            config / "studies" / f"{study}.yaml",
            config / "machines" / f"{machine}.yaml",
        ]
        files += [config / "recipes" / f"{name}.yaml" for name in named]
        file = chance.choice(files)
        good = file.read_text(encoding="utf-8")
        bad = chance.choice([changed_value, changed_text])(good, chance)
        file.write_bytes(bad.encode("utf-8", "surrogatepass"))
        try:
            with at_most(SECONDS):
                made = plan(config)
            assert made.runs
            plans += 1
        except ConfigError as error:
            said = str(error)
            complaints += 1
            assert said.isprintable(), said
            assert said.startswith(str(config)), said
            assert len(said) < 1500, said
        except Exception as error:
            raise AssertionError(
                f"change {number} of seed {SEED}, {file.name}:\n{bad[:3000]}"
            ) from error
        finally:
            file.write_text(good, encoding="utf-8")
    assert plans > CHANGES / 10
    assert complaints > CHANGES / 3
