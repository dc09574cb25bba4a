"""Every rule of the audit catches a planted fault, and is silent on clean tables.

`audit_clean.py` has the clean tables, `audit_faults.py` a fault for each rule, by what the rules
are about.
"""

import inspect
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.analysis.tables import TABLES, frame
from ddlbench.audit import AUDITED, SEVERITIES, Material, _columns, all_rules, finding_rows
from ddlbench.audit.check import audit
from ddlbench.audit.document import page
from ddlbench.audit.material import of_study, of_tables
from ddlbench.audit.rules.devices import MOST_NODE_W
from ddlbench.commands.main import main
from ddlbench.core.columns import types, write_csv
from ddlbench.core.recipe import Recipe
from ddlbench.core.record import STEPS

from tests.builders.records import SPEC, edit_log, replace_steps, with_clocks, write_record
from tests.conftest import ROOT
from tests.facts import missing, refuses
from tests.unit.audit_clean import changed, found, one, put, study
from tests.unit.audit_faults import FAULTS, set_one

STUDY = study()
WHOLE = dict(of_tables(STUDY).tables)
RULES = sorted(all_rules())
# A rule brings an example in its file, or a fault in `audit_faults.py`.
PLANTED = {
    name: set_one(**rule.example) for name, rule in all_rules().items() if rule.example
} | FAULTS


def documented() -> set[str]:
    """The rules that docs/audit.md names."""
    return {*re.findall(r"^### (\S+)$", (ROOT / "docs/audit.md").read_text(encoding="utf-8"), re.M)}


def test_every_documented_rule_has_a_fault() -> None:
    """A rule that somebody adds as one file, and that no page names yet, is theirs."""
    assert documented() <= PLANTED.keys()
    assert FAULTS.keys() <= {*RULES}


def test_every_rule_of_the_repository_is_documented() -> None:
    """Those in files that git has. `python -m ddlbench.audit.document > docs/audit.md` documents
    them.
    """
    asked = ["git", "ls-files", "workflow/ddlbench/audit/rules"]
    tracked = subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = {name: Path(inspect.getfile(rule.check)).name for name, rule in all_rules().items()}
    ours = {name for name, file in files.items() if file in {Path(path).name for path in tracked}}
    assert len(ours) > 40
    assert ours <= documented()


def test_every_column_of_a_record_has_a_rule_or_a_reason() -> None:
    """Columns that docs/columns.md names; one that somebody adds has none yet."""
    page = (ROOT / "docs/columns.md").read_text(encoding="utf-8")
    named = {name for name in _columns.columns() if f"| `{name}` |" in page}
    rules = _columns.rules_by_column()
    assert len(named) > 120
    for name in sorted(named):
        assert bool(rules[name]) or _columns.why_none(name), name
    assert rules.keys() <= {*_columns.columns()}
    assert not [name for name in _columns.NO_RULE if rules.get(name)], (
        "a rule looks at it: it needs no reason"
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_silent_on_clean_tables_and_checks_them(rule: str) -> None:
    assert found(rule, STUDY) == []  # loaders that read nothing have no digest of data, by design


def test_how_long_ranks_wait_for_each_other_is_no_difference() -> None:
    more = "env OMP_NUM_THREADS=1 HF_TOKEN=... DDLBENCH_TIMEOUT_S=120 python -m ddlbench.train"
    assert found("same-environment", changed(lambda tables: one(tables, command=more), STUDY)) == []


def test_a_program_that_ended_early_with_code_0_is_found_beside_its_repeats() -> None:
    program = {**STUDY, "runs": STUDY["runs"].assign(dataset="own")}
    (row,) = found("same-samples", changed(FAULTS["same-samples"], program))
    assert (
        row["runs"].split("; ")[0] == STUDY["runs"].loc[6, "run"]
        and "samples of repeats" in row["evidence"]
    )


def test_the_order_of_three_repeats_is_looked_at() -> None:
    def plant(tables: dict[str, pd.DataFrame]) -> None:
        tables["runs"] = tables["runs"][tables["runs"]["repeat"] <= 3].reset_index(drop=True)
        FAULTS["run-order"](tables)

    assert any(
        "all runs of one" in row["evidence"] for row in found("run-order", changed(plant, STUDY))
    )


def test_threads_are_compared_between_frameworks() -> None:
    def plant(tables: dict[str, pd.DataFrame]) -> None:
        horovod = tables["runs"]["framework"] == "horovod"
        tables["runs"].loc[horovod, "command"] = (
            "env OMP_NUM_THREADS=2 HF_TOKEN=... python -m ddlbench.train"
        )

    findings = found("same-environment", changed(plant, STUDY))
    assert findings and all("OMP_NUM_THREADS" in row["evidence"] for row in findings)


@pytest.mark.parametrize("rule", sorted(PLANTED))
def test_a_rule_catches_a_planted_fault(rule: str) -> None:
    rows = found(rule, changed(PLANTED[rule], STUDY))
    rows = [row for row in rows if row["severity"] != finding_rows.NOT_CHECKED]
    assert rows
    for row in rows:
        assert row["severity"] in SEVERITIES
        assert row["runs"] and row["evidence"] and row["what_to_do"] and row["source"]
        assert "{" not in row["evidence"]


@pytest.mark.more
@pytest.mark.parametrize("rule", sorted(PLANTED))
def test_a_rule_reads_the_types_that_tables_have(rule: str) -> None:
    """Whole numbers with nulls among them have pandas' type Int64, whose values are numpy's."""
    tables = changed(PLANTED[rule], STUDY)
    known = {name: kind for name, kind in types(TABLES["runs"].columns).items() if kind == "Int64"}
    whole = [name for name in known if (tables["runs"][name].dropna() % 1 == 0).all()]
    tables["runs"] = tables["runs"].astype(dict.fromkeys(whole, "Int64"))
    rows = found(rule, tables)
    assert any(row["severity"] != finding_rows.NOT_CHECKED for row in rows)
    assert not any("cannot read" in row["evidence"] for row in rows)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_documented(name: str) -> None:
    rule = all_rules()[name]
    assert rule.severity in SEVERITIES
    assert rule.about and rule.what_to_do and rule.source


def test_the_page_is_that_of_the_rules() -> None:
    rules = [rule for rule in all_rules().values() if rule.name in documented()]
    assert (ROOT / "docs/audit.md").read_text(encoding="utf-8") == page(rules)


def test_a_finding_names_the_deviating_run_first() -> None:
    (row,) = found("same-precision", changed(FAULTS["same-precision"], STUDY))
    assert row["runs"].split("; ")[0] == STUDY["runs"].loc[6, "run"]
    assert missing(row["evidence"], "cluster", "lenet", "bf16 in 1", "fp32 in 47") == []


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_lacks_a_column_says_so(rule: str) -> None:
    for need in all_rules()[rule].needs:
        table, column = need.split(".")
        without = {**WHOLE, table: WHOLE[table].drop(columns=column)}
        (row,) = audit(Material(without), [rule])
        assert row["severity"] == finding_rows.NOT_CHECKED
        assert missing(row["evidence"], column, table) == []
        rest = {name: t for name, t in WHOLE.items() if name != table}
        rows = audit(
            Material(rest), [rule]
        )  # `convergence` and `numbers` are made; they lack to none
        assert [row["evidence"] for row in rows] == [f"table {table} is missing"] * (
            "runs" in rest and table in AUDITED
        )


def steps_of(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    """The record has other steps."""
    return lambda record: replace_steps(record, change(pd.read_parquet(record / STEPS)))


# What no rule asks a study for: a change of a record, and what is said of it.
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "images of an epoch twice": (
        steps_of(lambda steps: steps.eval("images = images * 2")),
        "train_samples",
    ),
    "the last batch is dropped": (
        steps_of(lambda steps: steps.query("step % 2 == 0")),
        "train_samples",
    ),
    "a step is missing on one rank": (
        steps_of(lambda steps: steps.query("step != 1 or rank != 1")),
        "train_samples",
    ),
    "steps without images": (
        steps_of(
            lambda steps: with_clocks(
                pd.concat([steps, steps.assign(step=steps["step"] + 4, images=0)])
            )
        ),
        "rows; a record of this run has",
    ),
    "an epoch without its validation": (
        lambda record: edit_log(record, "eval_accuracy", "eval_loss"),
        "eval_accuracy",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_rule_asks_for_is_refused_with_the_record(tmp_path: Path, what: str) -> None:
    change, named = REFUSED[what]
    change(record := write_record(tmp_path))
    (row,) = collect([record], tmp_path / "tables")
    assert named in row["what"]


@pytest.mark.parametrize(
    "change", [{}, {"timed": False}, {"timed": False, "profiled": True}], ids=str
)
def test_what_no_rule_asks_for_is_so_in_every_table(
    tmp_path: Path, change: dict[str, bool]
) -> None:
    """Steps that are cut and steps that count are all steps; untimed and profiled runs have no
    speed.
    """
    assert collect([write_record(tmp_path, replace(SPEC, **change))], tmp_path / "tables") == []
    (run,) = pd.read_parquet(tmp_path / "tables/runs.parquet").to_dict("records")
    if change:
        assert pd.isna(run["throughput_images_per_s"]) and pd.isna(run["timed_steps"])
    else:
        assert run["cut_steps"] + run["timed_steps"] == run["steps"]


def test_rules_need_tables_that_are_read() -> None:
    """A study's, which `audit.AUDITED` names, or those that are made of them and of references."""
    made = {"numbers", "convergence"}
    for rule in RULES:
        needed = {need.split(".")[0] for need in all_rules()[rule].needs}
        assert needed <= {*AUDITED, *made}, (
            f"{rule}: audit/__init__.py: AUDITED lacks {needed - {*AUDITED, *made}}"
        )


@pytest.mark.more
def test_every_key_of_a_recipe_is_compared() -> None:
    """Those of today and those that are added, by same-recipe or by a rule of their own."""
    rules = ["same-precision", "same-recipe"]
    for name in {field.name for field in fields(Recipe)} - {"name", "seed"}:
        runs = STUDY["runs"].assign(**{name: ["one", *["other"] * (len(STUDY["runs"]) - 1)]})
        rows = audit(Material({"runs": runs}), rules)
        assert any(
            row["severity"] == "error" and "one in 1 run" in row["evidence"] for row in rows
        ), name


def test_rows_without_a_value_are_counted_as_not_checked() -> None:
    tables = changed(FAULTS["same-precision"], STUDY)
    tables["runs"].loc[:2, "precision"] = None
    skipped, finding = sorted(
        found("same-precision", tables), key=lambda row: row["severity"] != "not checked"
    )
    assert missing(skipped["evidence"], "precision", "runs", 3, 48) == []
    assert finding["severity"] == "error"


def test_no_tables_at_all_are_no_clean_tables() -> None:
    rows = audit(Material({}))
    assert {row["severity"] for row in rows} == {finding_rows.NOT_CHECKED}
    assert {row["rule"] for row in rows} == set(RULES)


@pytest.mark.more
def test_an_impossible_rate_stops_no_rule() -> None:
    tables = study()
    one(tables, throughput_images_per_s=0.0)
    assert [row for row in audit(of_tables(tables)) if "cannot read" in row["evidence"]] == []


def test_a_study_without_a_successful_run_was_not_checked(tmp_path: Path) -> None:
    assert collect([], tmp_path) == []
    rows = audit(of_study(tmp_path))
    assert {row["severity"] for row in rows} == {"not checked"}
    assert any(missing(row["evidence"], "runs", "successful") == [] for row in rows)


@pytest.mark.parametrize(
    ("column", "value"), [("workers", "four"), ("global_batch", float("inf")), ("repeat", 0)]
)
def test_counts_that_are_none_are_refused(column: str, value: object) -> None:
    tables = study()
    tables["runs"][column] = tables["runs"][column].astype(object)
    one(tables, **{column: value})
    with refuses(ValueError, "runs", column, 1):
        of_tables(tables)


def test_columns_of_another_kind_stop_no_other_rule() -> None:
    tables = study()
    for column in ("run", "command"):
        tables["runs"][column] = tables["runs"][column].astype(object)
    one(tables, run=float("inf"), command=float("inf"))
    rows = audit(of_tables(tables), ["same-environment", "same-precision", "skipped-steps"])
    assert {row["rule"] for row in rows if "cannot read" in row["evidence"]} == {"same-environment"}


def test_runs_without_a_name_are_refused() -> None:
    tables = study()
    tables["runs"] = tables["runs"].drop(columns="run")
    with refuses(ValueError, "table runs", "column run"):
        of_tables(tables)


def test_each_run_that_learnt_nothing_is_named() -> None:
    """A wild first epoch hides that the last is at chance, as of LeNet on two workers: 2.67, then
    2.31 of ln(10).
    """
    tables = study()
    runs, epochs = tables["runs"], tables["epochs"]
    losses = {
        3: (1.0, 2.3123, "loss 2.3123 at the end; guessing gives 2.30259"),
        5: (2.6701, 2.3123, "loss 2.3123 at the"),
    }
    losses |= {
        7: (2.6701, 2.29, "loss 2.29 at the end; guessing"),
        9: (1.0, 1.5, "loss 1.5 at the end, 1 in the first"),
    }
    for row, (first, last, _) in losses.items():
        runs.loc[row, "final_loss"] = last
        epochs.loc[(epochs["run"] == runs.loc[row, "run"]) & (epochs["epoch"] == 1), "loss"] = first
    said = {row["runs"]: row["evidence"] for row in found("diverged", tables)}
    assert set(said) == {runs.loc[row, "run"] for row in losses}
    for row, (_, _, words) in losses.items():
        assert said[runs.loc[row, "run"]].startswith(words)
    # Runs that measure a few epochs of many may still be warming up; of another's data nobody knows
    # the classes.
    for change in ({"of_epochs": 90}, {"dataset": "theirs"}):
        assert len(found("diverged", tables | {"runs": runs.assign(**change)})) == 2, change


@pytest.mark.parametrize("rule", ["same-seed", "missing-repeats", "slow-repeat", "uneven-repeats"])
@pytest.mark.parametrize(
    "changes", [{"interrupt_steps": 24}, {"bandwidth_mbit": 10.0}, {"epochs": 1}], ids=str
)
def test_runs_with_other_settings_are_no_repeats(rule: str, changes: dict[str, object]) -> None:
    """They have the same numbers and seeds, and another speed."""
    tables = study()
    runs = tables["runs"].assign(**dict.fromkeys(changes.keys() - {"epochs"}))
    others = runs.assign(run=runs["run"] + "-other", **changes)
    others["throughput_images_per_s"] /= 2
    tables["runs"] = pd.concat([runs, others.astype(object)], ignore_index=True)
    assert [row["evidence"] for row in found(rule, tables)] == []


def test_a_record_without_an_end_stands_beside_failures_that_left_none() -> None:
    """As in logs that others published: table `failures` is there, and empty."""
    tables = study() | {"failures": frame("failures", [])}
    tables["runs"].loc[tables["runs"].index[0], "status"] = "failed"
    (row,) = audit(of_tables(tables), ["failed-runs"])
    assert row["runs"] == tables["runs"]["run"].iloc[0]


def test_a_fast_repeat_did_nothing_wrong() -> None:
    """The same one is found where it is as much slower."""
    for factor, count in ((1.5, 0), (0.5, 1)):
        tables = study()
        tables["runs"].loc[tables["runs"].index[0], "throughput_images_per_s"] *= factor
        assert len(found("slow-repeat", tables)) == count


def test_stalls_are_a_share_of_the_steps_that_are_timed() -> None:
    """Two of 100 are many, though warm-up makes it two of 300."""
    steps = put("runs", 6, stalls=2, timed_steps=100, steps=300)
    assert len(found("stalls", changed(steps, STUDY))) == 1


@pytest.mark.parametrize(("workers", "count"), [(1, 1), (2, 0)])
def test_two_nodes_may_draw_twice_the_power_of_one(workers: int, count: int) -> None:
    """Of one node it is more than possible."""

    def plant(tables: dict[str, pd.DataFrame]) -> None:
        runs = tables["runs"]
        place = runs.index[runs["nodes"] == workers][0]
        energy = 1.5 * MOST_NODE_W * float(runs.loc[place, "train_s"])
        put("runs", place, energy_j=energy, host_energy_j=energy)(tables)

    assert len(found("possible-power", changed(plant, STUDY))) == count


def test_drift_is_said_in_percent_with_its_interval() -> None:
    (row,) = found("drift", changed(FAULTS["drift"], STUDY))
    assert (
        missing(row["evidence"], "48 runs", "1.3 h", "-2.9 %", "-3.0 to -2.8 %", "(cluster)") == []
    )


@pytest.mark.more
def test_clean_studies_are_clean() -> None:
    """16 studies of equal frameworks with noise: no error, no warning of frameworks apart, and
    drift in at most one.
    """
    clean, moved = study(), 0
    clean["runs"] = clean["runs"].query("loader == 'native' and workers < 4").reset_index(drop=True)
    needs = ("runs.throughput_images_per_s", "numbers.value", "runs.final_loss", "runs.cut_steps")
    rules = [name for name in RULES if {*needs} & {*all_rules()[name].needs}]
    for seed in range(16):
        rng, tables = (
            np.random.default_rng(seed),
            {name: table.copy() for name, table in clean.items()},
        )
        runs = tables["runs"]
        noise = np.exp(rng.normal(0, 0.01, len(runs)))
        runs["throughput_images_per_s"] *= noise
        runs[["epoch_s", "train_s", "compute_s", "data_wait_s", "communication_s"]] /= noise[
            :, None
        ]
        runs["final_loss"] *= np.exp(rng.normal(0, 0.03, len(runs)))
        runs["cut_steps"] += rng.integers(0, 20, len(runs))
        runs["timed_steps"] = runs["steps"] - runs["cut_steps"]
        rows = [row for row in audit(of_tables(tables), rules) if row["severity"] in SEVERITIES[:2]]
        moved += any(row["rule"] == "drift" for row in rows)
        assert {row["rule"] for row in rows} <= {"drift"}, (seed, rows)
    assert len(rules) > 10 and moved <= 1


# What people call.


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str | int | None:
    """What the command ends with."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main(["audit", *arguments])
    return ended.value.code


@pytest.mark.more
def test_the_command_ends_with_1_on_errors_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for fault, code in ((None, 0), (FAULTS["same-precision"], 1)):
        tables = STUDY if fault is None else changed(fault, STUDY)
        for name, table in tables.items():
            table.to_parquet(tmp_path / f"{name}.parquet")
        assert call(monkeypatch, str(tmp_path)) == code
        said = capsys.readouterr().out
        assert ("ERROR same-precision" in said) == bool(code)
        assert said.startswith(f"audit: {code} error")
        assert len(finding_rows.worst(finding_rows.read(tmp_path / "audit.csv"), "error")) == code
        assert call(monkeypatch, str(tmp_path), "--json") == code
        assert json.loads(capsys.readouterr().out) == finding_rows.read(tmp_path / "audit.csv")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere/runs.parquet: no tables yet"),
    ],
)
def test_the_command_says_in_one_line_what_it_lacks(
    arguments: list[str], says: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = call(monkeypatch, *arguments)
    assert says == ended or (isinstance(ended, str) and str(says) in ended and "\n" not in ended)


def test_findings_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    rows = found("same-precision", changed(FAULTS["same-precision"], STUDY))
    write_csv(rows, finding_rows.COLUMNS, tmp_path / "tables/audit.csv")
    assert finding_rows.read(tmp_path / "tables/audit.csv") == rows
    assert finding_rows.read(tmp_path / "none.csv") == []
