"""Records that are refused: which file, what is wrong with it, what to do. Table `refused` lists them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddlbench.core.columns import Column
from ddlbench.core.files import printable, read_csv
from ddlbench.core.plural import count_of
from ddlbench.core.record import sealed

MOST = 300  # characters of what a message says; what stands in a file may be long

COLUMNS = (
    Column("run", "str", "The run whose record was refused: the name of its folder."),
    Column("file", "str", "The file that cannot be trusted."),
    Column("what", "str", "What is wrong with it."),
    Column("what_to_do", "str", "How to get a good record."),
)


class RefusedError(ValueError):
    """A record that cannot be true or read; it is in no table but `refused`. `todo`: what to do, if not the usual."""

    def __init__(self, file: Path, what: str, todo: str | None = None) -> None:
        self.file, self.what, self.todo = file, printable(what)[:MOST], todo
        super().__init__(f"{file}: {self.what}")


def seal_of(log: Path) -> dict[str, str]:
    """SHA-256 of the files beside a log, by name, as its seal says.

    Raises RefusedError without a seal, ValueError for another log's.
    """
    files = sealed(log)
    if files is None:
        raise RefusedError(log, "has no seal as its last line: it is cut off or was changed")
    return files


def of_seal(log: Path) -> str:
    """Why tables refuse a finished run by its seal, and what to do; "" if they do not. Files beside it are not read."""
    try:
        seal_of(log)
    except RefusedError as error:
        refused = error
    except Exception as error:  # whatever stands in the log
        refused = not_understood(log, error)
    else:
        return ""
    about = row(log.parent, refused)
    return f"its record is refused and is in no table: it {about['what']}; {about['what_to_do']}"


def not_understood(log: Path, error: Exception) -> RefusedError:
    """What an error says of the log in which it was met."""
    return RefusedError(log, f"cannot be understood ({type(error).__name__}: {error})")


def row(folder: Path, error: RefusedError) -> dict[str, Any]:
    """The row of table `refused`; `folder` is the run's."""
    usual = f"find out who changed it; to make the run again, move {folder} away and start the workflow"
    return {"run": folder.name, "file": str(error.file), "what": error.what, "what_to_do": error.todo or usual}


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """For people: nothing if nothing was refused. Records of which the same is said are one line with their number."""
    alike: dict[tuple[str, str], list[str]] = {}
    rows = list(rows)
    for row in rows:
        alike.setdefault((row["what"], row["what_to_do"]), []).append(row["file"])
    text = []
    for (what, todo), files in alike.items():
        more = f" (and {count_of(len(files) - 1, 'more record')})" if len(files) > 1 else ""
        text.append(f"{files[0]}: {what}{more}\n    {todo}")
    if not text:
        return []
    return ["", f"WARNING: {len(rows)} records are refused and are in no table and no figure:", *text, ""]


def read(tables: Path) -> list[dict[str, str]]:
    """The rows of table `refused` in a study's folder of tables, as `collect` left them; none without the table."""
    table = tables / "refused.csv"
    return read_csv(table) if table.exists() else []
