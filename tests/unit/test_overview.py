"""`results/index.html`: all studies of a folder of results, what was kept of them, and what cannot
be read.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from ddlbench.show import overview


def point(rate: float | None, **settings: Any) -> dict[str, Any]:
    quantities = {} if rate is None else {overview.RATE: {"median": rate}}
    return {"settings": {"model": "lenet", "workers": 1} | settings, "quantities": quantities}


def write_study(
    folder: Path, until: str = "2026-11-28 11:36 UTC", points: tuple[Any, ...] = (), **more: Any
) -> None:
    answer = {"question": "Which framework?", "take": "ddp", "certainty": "sure"}
    said = {"title": "Demo", "to": until, "answers": [answer], "points": list(points)} | more
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps(said))


def test_each_study_has_a_line_with_its_answers_and_a_link_to_its_page(tmp_path: Path) -> None:
    write_study(tmp_path / "demo/local")
    write_study(tmp_path / "kept/april/other/juwels")
    overview.write(tmp_path)
    demo, other = overview.lines(overview.entries(tmp_path))
    assert (demo.entry.study, demo.entry.machine, demo.entry.kept) == ("demo", "local", "")
    assert demo.entry.answers == (("Which framework?", "ddp", "sure"),)
    assert (other.entry.kept, other.entry.page) == ("april", "kept/april/other/juwels/index.html")
    page = (tmp_path / "index.html").read_text()
    assert page.count("data-study=") == 2
    assert 'href="demo/local/index.html"' in page


def test_a_kept_series_shows_the_rate_of_the_setting_that_all_dates_have(tmp_path: Path) -> None:
    slow, fast = point(90.0), point(200.0, workers=2)
    write_study(tmp_path / "kept/b/demo/local", "2026-02-01 00:00 UTC", (slow, fast))
    write_study(
        tmp_path / "kept/a/demo/local",
        "2026-01-01 00:00 UTC",
        (point(80.0), point(100.0, workers=2)),
    )
    write_study(
        tmp_path / "demo/local",
        "2026-03-01 00:00 UTC",
        (point(95.0), point(150.0, workers=2), point(900.0, workers=4)),
    )
    (line,) = overview.lines(overview.entries(tmp_path))
    assert [entry.kept for entry in line.kept] == ["b", "a"]
    assert [rate for _, rate in line.rates] == [100.0, 200.0, 150.0]
    assert "workers 2" in line.setting
    assert line.spark == "0.0,12.0 60.0,0.0 120.0,6.0"
    overview.write(tmp_path)
    assert (tmp_path / "index.html").read_text().count("<polyline") == 1


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "null", '{"answers": 1}', '{"title": "x", "to": null, "answers": [3]}', b"\xff"],
)
def test_what_cannot_be_read_is_said_and_the_others_are_shown(
    text: str | bytes, tmp_path: Path
) -> None:
    write_study(tmp_path / "demo/local")
    (tmp_path / "broken/x").mkdir(parents=True)
    (tmp_path / "broken/x/study.json").write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )
    overview.write(tmp_path)
    broken, demo = overview.lines(overview.entries(tmp_path))
    assert broken.entry.problem and not demo.entry.problem


def test_nothing_that_a_study_says_is_markup(tmp_path: Path) -> None:
    evil = '"><script>x</script>'
    answer = {"question": evil, "take": evil, "certainty": evil}
    write_study(tmp_path / "<b>/local", title=evil, answers=[answer])
    overview.write(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<script" not in page and "<b>/" not in page


def test_without_studies_the_page_is_there(tmp_path: Path) -> None:
    overview.write(tmp_path)
    assert overview.entries(tmp_path) == []
    assert "<main>" in (tmp_path / "index.html").read_text()
