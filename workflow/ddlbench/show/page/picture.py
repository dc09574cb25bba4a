"""A figure's SVG as part of a page: only shapes, no style that a page's policy forbids, ids of its own.

matplotlib writes what `figures/` draws; texts in it are texts. Elements and attributes that are not in the lists below
are left out, whatever a file says, so that no picture can bring a script, a link or a comment into the page.
"""

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup

SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
ELEMENTS = ("svg", "g", "defs", "path", "use", "rect", "circle", "clipPath", "pattern", "image", "title", "text")
SHAPES = ("d", "x", "y", "cx", "cy", "r", "width", "height", "transform", "viewBox", "preserveAspectRatio")
PAINT = ("fill", "stroke", "opacity", "clip-path", "clip-rule", "fill-rule", "fill-opacity", "stroke-opacity")
STROKE = ("stroke-width", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin")
PATTERN = ("patternUnits", "patternTransform", "patternContentUnits", "clipPathUnits")
TEXT = ("font-size", "font-family", "font-weight", "font-style", "text-anchor")
ATTRIBUTES = {*SHAPES, *PAINT, *STROKE, *PATTERN, *TEXT, "stroke-miterlimit"}
NARROW = 380.0  # points: a wider picture is not made smaller on a phone, but scrolled (page.css)
DESCRIPTION = ".//{http://purl.org/dc/elements/1.1/}description"
MIME = {".svg": "image/svg+xml", ".pdf": "application/pdf", ".csv": "text/csv;charset=utf-8"}


def inline(path: Path, prefix: str, name: str) -> Markup:
    """The picture as an element of HTML. Its ids begin with `prefix`; `name` is what it is called for those who do not
    see it. Raises ElementTree.ParseError for a file that is no SVG.
    """
    root = _clean(ElementTree.parse(path).getroot(), prefix)
    if root is None:
        raise ValueError(f"{path}: is no SVG picture")
    root.attrib |= {"role": "img", "aria-label": name}
    wide = float(re.sub(r"[^\d.]", "", root.get("width", "")) or 0) > NARROW
    coloured = any(node.get("id") == f"{prefix}-colours" for node in root.iter())  # a map, whose colours have a meaning
    if classes := " ".join(["wide"] * wide + ["colours"] * coloured):
        root.set("class", classes)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _clean(element: ElementTree.Element, prefix: str) -> ElementTree.Element | None:
    tag = str(element.tag).removeprefix(SVG)
    if tag not in ELEMENTS:
        return None
    clean = ElementTree.Element(tag)
    given = dict(element.attrib)
    for part in given.pop("style", "").split(";"):
        key, _, value = part.partition(":")
        given[key.strip()] = value.strip()
    for key, value in given.items():
        if key in ATTRIBUTES and ("url(" not in value or re.fullmatch(r"url\(#[\w-]+\)", value)):
            value = value.replace("url(#", f"url(#{prefix}-")
            # A hundredth of a point is more than any eye sees; glyphs are in other units and keep theirs.
            clean.set(key, re.sub(r"(\.\d\d)\d+", r"\1", value) if key in ("d", "x", "y") else value)
    if re.fullmatch(r"[\w-]+", given.get("id", "")):
        clean.set("id", f"{prefix}-{given['id']}")
    target = given.get(f"{XLINK}href", given.get("href", ""))
    if tag == "use" and re.fullmatch(r"#[\w-]+", target):
        clean.set("href", f"#{prefix}-{target[1:]}")
    elif tag == "image" and target.startswith("data:image/png;base64,"):
        clean.set("href", target)
    if tag in ("title", "text"):
        clean.text = element.text
    clean.extend(child for part in element if (child := _clean(part, prefix)) is not None)
    return clean


def caption(path: Path) -> str:
    """The caption that the file of a picture carries; "" if it has none."""
    return ElementTree.parse(path).findtext(DESCRIPTION, "")


def data_url(path: Path) -> str:
    """Puts a file into a link."""
    return f"data:{MIME[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
