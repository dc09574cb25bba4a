"""The section as Markdown; references lead to the list of runs at its end."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from ddlbench.core.files import write_text
from ddlbench.outlook.application import Block, Heading, Paragraph, Table

SUFFIX = ".md"


def write(blocks: Sequence[Block], out: Path) -> None:
    """The file."""
    write_text(out, "\n\n".join(line for block in blocks for line in _lines(block, out)) + "\n")


def _lines(block: Block, out: Path) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {_escaped(block.text)}"
    elif isinstance(block, Paragraph):
        # A dash or a number at its start would make a list of it.
        yield _linked(re.sub(r"^(\d*)([-+.)])", r"\1\\\2", _escaped(block.text.strip())))
    elif isinstance(block, Table):
        yield f"*{_escaped(block.caption)}*"
        rule = "|" + "---|" * len(block.header)
        rows = [_row(row, len(block.header)) for row in (block.header, *block.rows)]
        yield "\n".join([rows[0], rule, *rows[1:]])
    else:
        path = quote(os.path.relpath(f"{block.path}.png", out.parent))
        yield f"![{_escaped(block.caption)}]({path})\n\n*{_escaped(block.caption)}*"


def _row(row: tuple[str, ...], columns: int) -> str:
    cells = [_cell(cell) for cell in row]
    if len(row) < columns:  # Markdown has no cells over several columns
        cells = [f"**{cells[0]}**", *[""] * (columns - 1)]
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    if re.fullmatch(r"R\d+", text):  # the list of runs itself
        return f'<a id="{text.lower()}"></a>{text}'
    return _linked(_escaped(text))


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}<>#\[\]!|~&$])", r"\\\1", text)


def _linked(text: str) -> str:
    return re.sub(r"\\\[(R\d+)\\\]", lambda match: f"[{match[1]}](#{match[1].lower()})", text)
