"""The guard of patches of foreign code, and that every patch says what it is for. What each mends has its own tests."""

from __future__ import annotations

import ast

import pytest
from ddlbench import mends
from ddlbench.core import registry

FILES = sorted((registry.PACKAGE / "mends").glob("[!_]*.py"))


@pytest.mark.parametrize(
    ("installed", "tried", "refused"),
    [
        ("2.13.0", "2.13", False),
        ("2.13.0+cpu", "2.13.0", False),  # labels of builds are no releases
        ("2.13.1.post2+cu130", "2.13", False),
        ("2.13", "2.13.0", True),
        ("2.130.0", "2.13", True),
        ("3.0.0", "2.13", True),
    ],
)
def test_a_mend_is_for_its_releases(installed: str, tried: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mends, "version", lambda _: installed)
    if not refused:
        mends.only_for("somewhat", (tried, "1.0"), "its_file")
        return
    with pytest.raises(mends.ReleaseError) as error:
        mends.only_for("somewhat", (tried, "1.0"), "its_file")
    said = str(error.value)
    assert said.startswith(f"somewhat {mends.release('somewhat')} ") and "\n" not in said
    assert f"allowed: {tried} or 1.0" in said and "mends/its_file.py" in said


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mend_says_for_which_releases_it_is(path) -> None:  # type: ignore[no-untyped-def]
    source = path.read_text()
    words = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    assert any(character.isdigit() for character in words.split(". ")[0]), "the first line names the release"
    guarded = [name for name in ("only_for(", "private(") if name in source]
    assert guarded or "Without a guard:" in words or "calls `guard` first" in words
    assert not guarded or f'"{path.stem}")' in source, "the guard names its own file"


def test_a_private_name_that_is_gone_is_one_sentence() -> None:
    owner = type("Owner", (), {"_here": 3})
    assert mends.private(owner, "_here", "torch", ("2.13",), "its_file") == 3
    with pytest.raises(mends.ReleaseError, match=r"^torch \S+ has no _gone, which ddlbench/mends/its_file.py needs"):
        mends.private(owner, "_gone", "torch", ("2.13",), "its_file")
