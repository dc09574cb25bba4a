"""Records that are refused: which file, what is wrong with it, what to do. Table `refused` lists
them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ddlbench.core.columns import Column
from ddlbench.core.files import printable, read_csv
from ddlbench.core.formatting import count_of
from ddlbench.core.record import MLLOG
from ddlbench.core.seal import sealed

MOST = 300  # characters of what a message says; what stands in a file may be long
# records that are refused because a step fails with them; if there are more, the step is at fault
MOST_SPOILERS = 20
T = TypeVar("T")
R = TypeVar("R")
Spoilers = Mapping[T, Exception]  # what a step raises with each of these records

COLUMNS = (
    Column("run", "str", "The run whose record was refused: the name of its folder."),
    Column("file", "str", "The file that cannot be trusted."),
    Column("what", "str", "What is wrong with it."),
    Column("what_to_do", "str", "How to get a good record."),
)


class RefusedError(ValueError):
    """The error that a record cannot be true or read; it is in no table but `refused`.

    `todo`: what to do, if not the usual.
    """

    def __init__(self, file: Path, what: str, todo: str | None = None) -> None:
        self.file, self.what, self.todo = file, printable(what)[:MOST], todo
        super().__init__(f"{file}: {self.what}")


def seal_of(log: Path) -> dict[str, str]:
    """Return the SHA-256 of the files beside a log, by name, from the log's seal.

    Raises RefusedError without a seal, ValueError for another log's.
    """
    files = sealed(log)
    if files is None:
        raise RefusedError(log, "has no seal as its last line: it is cut off or was changed")
    return files


def of_seal(log: Path) -> str:
    """Return why tables refuse a finished run by its seal, and what to do; "" if they do not.

    Files beside it are not read.
    """
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
    """Return the refusal for an error that was met in a log."""
    return RefusedError(log, f"cannot be understood ({type(error).__name__}: {error})")


def sparing(
    runs: Sequence[T], step: Callable[[Sequence[T], Spoilers[T]], R]
) -> tuple[R, Spoilers[T]]:
    """Return the result of a step on these runs, and the runs that had to be left out because the
    step raises with them.

    This is the one guard of all that is made of many records: whatever stands in one of them must
    not keep the others from their tables, figures and page. `step` is given the runs that it takes
    and those that are left out. It may be called many times, and replaces what it wrote before.
    Raises what `step` raises where no record is at fault: if it raises with none at all, or with
    more than MOST_SPOILERS of them, or if a file cannot be written.
    """
    spoilers: dict[T, Exception] = {}
    try:
        return step(runs, spoilers), spoilers
    except (OSError, MemoryError):
        raise
    except Exception as error:
        first = error
    good: list[T] = []

    def try_also(some: Sequence[T]) -> None:
        """Add to `good` those of them with which the step still does not raise; half of them at a
        time.
        """
        try:
            step([*good, *some], spoilers)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            if not some or len(spoilers) >= MOST_SPOILERS:
                raise first from None
            if len(some) == 1:
                spoilers[some[0]] = error
                return
            middle = len(some) // 2
            try_also(some[:middle])
            try_also(some[middle:])
        else:
            good.extend(some)

    try_also([])
    try_also(runs)
    return step([run for run in runs if run not in spoilers], spoilers), spoilers


def spoiler_rows(folders: Mapping[str, Path], spoilers: Spoilers[str]) -> list[dict[str, Any]]:
    """Return rows of table `refused` for runs that a step had to leave out, by their folders."""
    return [
        row(folders[run], not_understood(folders[run] / MLLOG, error))
        for run, error in spoilers.items()
    ]


def row(folder: Path, error: RefusedError) -> dict[str, Any]:
    """Return the row of table `refused`; `folder` is the run's."""
    usual = (
        f"find out who changed it; to make the run again, move {folder} away and start the workflow"
    )
    return {
        "run": folder.name,
        "file": str(error.file),
        "what": error.what,
        "what_to_do": error.todo or usual,
    }


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Format refusals for people: nothing if nothing was refused.

    Records with the same message are one line with their number.
    """
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
    return [
        "",
        f"WARNING: {len(rows)} records are refused and are in no table and no figure:",
        *text,
        "",
    ]


def read(tables: Path) -> list[dict[str, str]]:
    """Read the rows of table `refused` in a study's folder of tables, as `collect` left them; none
    without the table.
    """
    table = tables / "refused.csv"
    return read_csv(table) if table.exists() else []
