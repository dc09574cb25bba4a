"""The words of templates stand in `tests/wording.txt`, and in no other test."""

import difflib

from ddlbench.answers.wording import TEMPLATES

from tests import wording


def test_templates_say_what_was_accepted() -> None:
    kept, now = wording.KEPT.read_text(encoding="utf-8"), wording.text()
    changed = "\n".join(
        difflib.unified_diff(
            kept.splitlines(), now.splitlines(), "accepted", "now", lineterm="", n=0
        )
    )
    assert now == kept, f"read what changed, and accept it: {wording.ACCEPT}\n{changed}"


def test_each_question_is_worded() -> None:
    asked = {answer.question for screen in wording.screens().values() for answer in screen.answers}
    templates = {path.stem.replace("_", "-") for path in TEMPLATES.glob("[!_]*.jinja")}
    assert templates - asked == set()
