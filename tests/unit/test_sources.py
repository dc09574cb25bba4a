"""What a job comes from: code as Python sees it, and what it imports."""

import ast
from pathlib import Path

import pytest
from ddlbench.core import registry
from ddlbench.core.registry import PACKAGE
from ddlbench.plan import sources
from ddlbench.show.figures import cost, throughput

READ = sorted(path for room in sources.ROOMS for path in (PACKAGE / room).rglob("*.py"))
SCRIPTS = sorted(sources.SCRIPTS.glob("*.py"))


def names(paths: set[Path]) -> set[str]:
    return {str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE)}


def test_code_without_comments_is_the_same_code() -> None:
    assert len(READ) > 100
    for path in (*READ, *SCRIPTS):
        text = path.read_text(encoding="utf-8")
        plain = sources.plain(text)
        assert ast.dump(ast.parse(plain)) == ast.dump(ast.parse(text)), path
        assert sources.plain(plain) == plain
        assert len(plain) < len(text) or "#" not in text


CODE = '''"""Words.

More words: # no comment.
"""
import re  # for patterns

# A comment.
NAME = "#one" + '#two' + r"\\\\"  # a comment with "quotes"


def of(x):

    # In it.
    return x
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# A comment.\n", "", True),
        ("# A comment.", "# It isn't.\n\n\n# Two.", True),
        ("  # for patterns", "", True),
        (' with "quotes"', "", True),
        ("    # In it.\n", "\n\n", True),
        ("More words", "Other words", False),
        ("# no comment", "", False),
        ("Words.\n\nMore", "Words.\nMore", False),
        ('"#one"', '"#1"', False),
        ("'#two'", "''", False),
        ("return x", "return x + 1", False),
        ("    return", "        return", False),
    ],
)
def test_what_is_a_change(old: str, new: str, same: bool) -> None:
    changed = CODE.replace(old, new)
    assert changed != CODE
    assert (sources.plain(changed) == sources.plain(CODE)) == same


def test_imports_are_followed_through_rooms_that_make_contents() -> None:
    found = names(sources.closure([sources.SCRIPTS / "figure_data.py", Path(throughput.__file__)]))
    assert {
        "show/make_figure.py",
        "show/figures/__init__.py",
        "analysis/collect.py",
        "analysis/summary.py",
        "core/recipe.py",
        "train/measure.py",
    } <= found
    others = {"core/layout.py", "show/figures/cost.py", "show/page/write.py"}
    assert not {"analysis/claims.py", "analysis/claim_verdicts.py", *others} & found
    rooms = {name.split("/")[0] for name in found}
    assert rooms == {"analysis", "core", "show", "train"}


def test_a_figure_comes_from_the_tables_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    closure = sources.closure
    monkeypatch.setattr(
        sources, "closure", lambda *given: asked.append(names(found := closure(*given))) or found
    )
    figures = ("throughput", "cost", "kernel-shares", "efficiency-loss")
    assert len({sources.of_figure(plot, script="figure_data") for plot in figures}) == len(figures)
    of = dict(zip(figures, asked, strict=True))
    assert all({"records/ours.py", "records/_sound.py"} <= found for found in asked)
    assert [plot for plot in figures if "analysis/sheets/costs.py" in of[plot]] == ["cost"]
    assert [plot for plot in figures if "analysis/kernels.py" in of[plot]] == ["kernel-shares"]
    assert [plot for plot in figures if "analysis/losses.py" in of[plot]] == ["efficiency-loss"]
    assert [plot for plot in figures if "analysis/price.py" in of[plot]] == ["cost"]
    assert not any("analysis/comparisons.py" in found for found in asked)


def test_figures_name_what_they_show_of_the_machine() -> None:
    """Table `costs` has prices and interruptions, column `mfu` the machine's peak."""
    for plot in registry.members("figures"):
        given = registry.constant("figures", plot, "MACHINE")
        assert ("terms" in given) == ("costs" in registry.constant("figures", plot, "TABLES")), plot
        assert ("peaks" in given) == ('"mfu"' in registry.path("figures", plot).read_text()), plot
    assert cost.MACHINE == ("terms",)


def test_the_digest_is_of_contents_wherever_they_lie(tmp_path: Path) -> None:
    def digest(folder: str, text: str, numbers: bytes) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        code, table = tmp_path / folder / "a.py", tmp_path / folder / "b.csv"
        code.write_text(text)
        table.write_bytes(numbers)
        return sources.digest([code, table, tmp_path / "none.py"])

    first = digest("one", "x = 1\n", b"1,2\n")
    assert first == digest("two", "# One.\nx = 1\n", b"1,2\n")
    assert first != digest("three", "x = 2\n", b"1,2\n")
    assert first != digest("four", "x = 1\n", b"1,3\n")
    assert first != digest("five", "x = 1\n", b"1,2 # 3\n")
