"""What docs/architecture.md and docs/records.md say of the code is so."""

import re
import subprocess

from ddlbench.core import registry
from ddlbench.run import program

from tests.conftest import ROOT
from tests.unit.test_rooms import ROOMS

PAGE = (ROOT / "docs/architecture.md").read_text()


def listing(begins_with: str) -> list[str]:
    """The names that a listing shows, each with a few words."""
    shown = re.search(rf"```\n({begins_with} .*?)```", PAGE, re.S)
    assert shown
    lines = [re.fullmatch(r"(\S+) +(\S.*)", line) for line in shown[1].splitlines()]
    return [line[1].rstrip("/") for line in lines if line]


def test_the_listings_show_what_lies_in_the_repository_and_the_rooms_in_their_order() -> None:
    assert listing("core") == list(ROOMS)
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {line.split("/")[0] for line in tracked.splitlines() if (ROOT / line).exists()}
    assert sorted(listing("config/")) == sorted(name for name in names if not name.startswith("."))


def test_what_the_page_names_exists() -> None:
    """Files in backquotes, from the root or from the package."""
    for name in set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|smk|md))`", PAGE)):
        assert (ROOT / name).exists() or (registry.PACKAGE / name).exists(), name


def test_where_lives_what() -> None:
    table = re.search(r"## Where lives .*?\n\n(?=## )", PAGE, re.S)
    rows = re.findall(r"^\| [^|]+ \| `(\S+)` \| `(\w+)` \|$", table[0] if table else "", re.M)
    assert len(rows) >= 20
    for file, word in rows:
        assert re.search(rf"\b{word}\b", (registry.PACKAGE / file).read_text(encoding="utf-8")), (
            f"{file}: no {word}"
        )


def test_every_key_of_a_record_is_explained() -> None:
    code = "".join(path.read_text() for path in registry.PACKAGE.rglob("*.py"))
    written = set(re.findall(r"event\(\s*\"(ddlbench_\w+)\"", code)) | {program.READING}
    records = (ROOT / "docs/records.md").read_text(encoding="utf-8")
    assert len(written) > 8
    explained = re.findall(r"^\| (`ddlbench.*?) \|", records, re.M)
    assert written == set(re.findall(r"\w+", " ".join(explained)))
