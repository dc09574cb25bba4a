"""The section as DOCX, with headings, tables and pictures in the styles of the document it is pasted into."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddlbench.core.files import aside
from ddlbench.outlook.application import Block, Heading, Paragraph, Table, shares

SUFFIX = ".docx"
LINE = 100  # characters of 8 points on a line


def write(blocks: Sequence[Block], out: Path) -> None:
    """The file."""
    from docx import Document
    from docx.shared import Cm

    document = Document()
    for block in blocks:
        if isinstance(block, Heading):
            document.add_heading(block.text, block.level - 1)
        elif isinstance(block, Paragraph):
            document.add_paragraph(block.text)
        elif isinstance(block, Table):
            document.add_paragraph(block.caption, style="Caption")
            _table(document, block)
        else:
            document.add_picture(f"{block.path}.png", width=Cm(14))
            document.add_paragraph(block.caption, style="Caption")
    with aside(out) as hidden:
        document.save(str(hidden))


def _table(document: Any, block: Table) -> None:
    from docx.shared import Pt

    section = document.sections[0]
    room = section.page_width - section.left_margin - section.right_margin
    table = document.add_table(rows=1 + len(block.rows), cols=len(block.header), style="Table Grid")
    widths = [int(share * room) for share in shares(block, LINE)]
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    for line, row in zip(table.rows, (block.header, *block.rows), strict=True):
        if len(row) < len(block.header):
            line.cells[0].merge(line.cells[-1])
            line.cells[0].text = row[0]
            for run in line.cells[0].paragraphs[0].runs:
                run.font.size, run.font.italic = Pt(8), True
            continue
        for cell, text, width in zip(line.cells, row, widths, strict=True):
            cell.text, cell.width = text, width
            for run in cell.paragraphs[0].runs:
                run.font.size, run.font.bold = Pt(8), row is block.header
