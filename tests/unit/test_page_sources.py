"""A source's own table on the page, with what these runs say in its cells; and numbers with the
digits that matter.
"""

import math

import numpy as np
from ddlbench.analysis import claim_verdicts, claims
from ddlbench.analysis.tables import frame
from ddlbench.core.formatting import around, four_digits, with_distinct_ends
from ddlbench.settings.config import CONFIG, read_yaml
from ddlbench.show.page.sections import sources

from tests.builders.results import noisy, ran
from tests.facts import missing


def test_a_source_s_own_table_has_our_verdicts_in_its_cells() -> None:
    """On hardware and models of the source's own they are verdicts; elsewhere the cell says that
    they are not.
    """
    sides = [
        one
        for name, rate in (("horovod", 50.0), ("deepspeed-zero1", 100.0))
        for one in ran(rate, framework=name)
    ]
    data = {"runs": frame("runs", sides), "kernels": frame("kernels", [])}
    (table,), _ = sources.tables("horovod-vs-deepspeed", data, [], set())
    (speed,) = [cells for _, cells in table.rows if cells[0].text == "Speed"]
    assert [cell.text for cell in speed[:3]] == ["Speed", "Slow", "Fast"] and not table.folded
    assert speed[3].text.startswith("supported: ")
    assert missing(speed[3].text, "DeepSpeed", "Horovod", "speed", 2, "3 repeats") == []
    data["runs"]["device"] = "cpu"
    (table,), _ = sources.tables("horovod-vs-deepspeed-small", data, [], set())
    (speed,) = [cells for _, cells in table.rows if cells[0].text == "Speed"]
    assert missing(speed[3].text, "supported", "this hardware", "DeepSpeed") == []
    assert sources.tables("demo", data, [table], set()) == ([], [table])


def test_a_claim_has_one_verdict_on_the_page() -> None:
    """These runs support three of the claims that are judged alone, and none of them among all."""
    drawn = np.random.default_rng(1)
    sides = [
        one
        for workers in (1, 2, 4, 8, 16)
        for name, rate in (("horovod", 50.0), ("deepspeed-zero1", 52.0))
        for one in ran(rate * workers, noisy(drawn, 3), framework=name, workers=workers)
    ]
    data = {"runs": frame("runs", sides), "kernels": frame("kernels", [])}
    every = claims.read(CONFIG / "references/claims.csv")
    verdicts = claim_verdicts.verdicts(every, data["runs"], data["kernels"])
    said = dict(zip(verdicts["id"], verdicts["verdict"], strict=True))
    (table,), _ = sources.tables("horovod-vs-deepspeed", data, [], set())
    shown = {cells[0].text: cells[3].text.split(":")[0] for _, cells in table.rows}
    speed = "comparison2022-deepspeed-above-horovod-throughput"
    (alone,) = [claim for claim in every if claim.id == speed]
    (judged,) = claim_verdicts.verdicts([alone], data["runs"], data["kernels"])["verdict"]
    assert judged == "supported" and said[speed] == shown["Speed"] == "undecided"
    assert shown["Cost"] == said["comparison2022-cost"]


def test_tables_of_sources_are_of_studies_and_claims_that_are_there() -> None:
    known = {claim.id for claim in claims.read(CONFIG / "references/claims.csv")}
    for one in read_yaml(sources.FILE)["tables"]:
        assert all((CONFIG / f"studies/{study}.yaml").exists() for study in one["studies"])
        assert {row[-1] for row in one.get("rows", ())} <= known
    numbers, _ = sources.tables("aach2023-small", {}, [], set())
    assert [len(table.rows) for table in numbers] == [51]


def test_numbers_have_as_many_digits_as_tell_them_apart() -> None:
    assert (
        with_distinct_ends(1.03, 1.5) == "1.03 to 1.5"
    )  # not "1 to 1.5": they differ significantly
    assert around(12_345.6, 8000.0, None) == "12,346 (8,000)" and around(1.0, None, None) == "1"
    assert (four_digits(math.nan), four_digits(0.951_23)) == ("unknown", "0.9512")
