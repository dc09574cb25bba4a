"""The section as LaTeX, to be read into a document with `\\input`; it needs the packages that its first line names."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddlbench.core.files import write_text
from ddlbench.outlook.application import Block, Heading, Paragraph, Table, shares

SUFFIX = ".tex"
LEVELS = {2: "section", 3: "subsection"}
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "%": r"\%", "&": r"\&"}
LINE = 80  # characters of \\footnotesize on a line of \\documentclass{article}
BREAK, LONG, PART = "\x00", 20, 8  # where a word of LONG characters or more may break: after each PART of them
SPECIAL |= (
    {BREAK: r"\allowbreak{}"}
    | {character: f"\\{character}" for character in "#_${}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
    | {"[": "{[}", "]": "{]}", '"': r"\char34{}"}  # an option of what stands before it; active in some languages
)


def write(blocks: Sequence[Block], out: Path) -> None:
    """The file."""
    head = "% \\usepackage{graphicx,array,booktabs,longtable,hyperref}"
    write_text(out, "\n\n".join([head, *(line for block in blocks for line in _lines(block, out))]) + "\n")


def _lines(block: Block, out: Path) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"\\{LEVELS[block.level]}{{{_escaped(block.text)}}}"
    elif isinstance(block, Paragraph):
        yield f"{{\\sloppy {_linked(_escaped(block.text))}\\par}}"
    elif isinstance(block, Table):
        # Long words, such as digests, must break: columns have the width of their share.
        columns = "".join(
            f">{{\\raggedright\\arraybackslash}}p{{\\dimexpr {share:.3f}\\linewidth-2\\tabcolsep}}"
            for share in shares(block, LINE)
        )
        rows = [_row(row, len(block.header)) for row in (block.header, *block.rows)]
        yield "\n".join(
            [
                "{\\footnotesize\\setlength{\\tabcolsep}{2pt}",
                f"\\begin{{longtable}}{{{columns}}}",
                f"\\caption{{{_escaped(block.caption)}}}\\\\ \\toprule",
                f"{rows[0]} \\midrule \\endhead",
                *rows[1:],
                "\\bottomrule\n\\end{longtable}}",
            ]
        )
    else:
        path = os.path.relpath(f"{block.path}.pdf", out.parent)
        yield "\n".join(
            [
                "\\begin{figure}[htbp]\\centering",
                f"\\includegraphics[width=0.8\\linewidth]{{\\detokenize{{{path}}}}}",
                f"\\caption{{{_escaped(block.caption)}}}\n\\end{{figure}}",
            ]
        )


def _row(row: tuple[str, ...], columns: int) -> str:
    cells = " & ".join(_cell(cell) for cell in row)
    if len(row) < columns:
        cells = f"\\multicolumn{{{columns}}}{{p{{0.98\\linewidth}}}}{{\\emph{{{cells}}}}}"
    return cells + r" \\"


def _cell(text: str) -> str:
    if re.fullmatch(r"R\d+", text):
        return f"\\hypertarget{{{text}}}{{{text}}}"
    return _linked(_escaped(text))


def _escaped(text: str) -> str:
    """What TeX reads as this text. Words that no line holds, such as digests and runs' names, may break anywhere."""
    words = re.sub(rf"\S{{{LONG},}}", lambda word: BREAK.join(re.findall(f".{{1,{PART}}}", word[0])), text)
    return "".join(SPECIAL.get(character, character) for character in words).replace("--", "-{}-")  # no dash


def _linked(text: str) -> str:
    return re.sub(r"\{\[\}(R\d+)\{\]\}", r"\\hyperlink{\1}{[\1]}", text)
