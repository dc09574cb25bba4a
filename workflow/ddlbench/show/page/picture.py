"""A figure's files as parts of a page: its picture is an image of HTML, its other files are links
to save them.

The picture is the SVG file itself. Browsers show an image without running or loading anything that
it contains.
"""

import base64
import re
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from markupsafe import Markup

POINT = 96 / 72  # pixels
NARROW = 380.0  # points: a wider picture is not made smaller on a phone, but scrolled (page.css)
SVG = "{http://www.w3.org/2000/svg}"
MOST_EMBEDDED = 50_000  # bytes of a file to save that is in the page
COLOURS = "colours"  # the id of a map's scale
DESCRIPTION = ".//{http://purl.org/dc/elements/1.1/}description"
MIME = {".svg": "image/svg+xml", ".pdf": "application/pdf", ".csv": "text/csv;charset=utf-8"}


def image(path: Path, alternative: str) -> Markup:
    """Return an SVG file as an element of HTML; `alternative` is what those read who do not see it.

    Class `wide` marks a picture that a phone scrolls, `colours` one whose colours have a meaning,
    as those of a map. Raises ElementTree.ParseError or ValueError for a file that is no SVG.
    """
    root = ElementTree.parse(path).getroot()
    if root.tag != f"{SVG}svg":
        raise ValueError(f"{path}: is not an SVG picture")
    width, height = _points(root, "width"), _points(root, "height")
    classes = []
    if width > NARROW:
        classes.append("wide")
    if root.find(f".//*[@id='{COLOURS}']") is not None:
        classes.append("colours")
    return Markup('<img class="{}" width="{}" height="{}" alt="{}" src="{}">').format(
        " ".join(classes), round(width * POINT), round(height * POINT), alternative, data_url(path)
    )


def caption(path: Path) -> str:
    """Return the caption that the file of a picture carries; "" if it has none."""
    return ElementTree.parse(path).findtext(DESCRIPTION, "")


def download(path: Path, beside: Path) -> str:
    """Return an address that saves a file: it is in the page, so that the page can be sent alone;
    a large one is told by its place from the folder `beside`.
    """
    if path.stat().st_size > MOST_EMBEDDED:
        return quote(path.relative_to(beside).as_posix())
    return data_url(path)


def data_url(path: Path) -> str:
    """Return a file as an address that holds it."""
    return f"data:{MIME[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _points(root: ElementTree.Element, side: str) -> float:
    """Return a side of a picture, such as `352.8pt`, in points."""
    return float(re.sub(r"[^\d.]", "", root.get(side, "")) or 0)
