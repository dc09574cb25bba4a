"""One picture's bytes: what it is, from its first bytes only, and mended where a decoder would stumble.

JPEGs pass as they are, grey ones too (every decoder here makes RGB of them). Two kinds that ImageNet is known to hold
become RGB JPEGs, as in TF-slim's converter (tensorflow/models, research/slim, build_imagenet_data.py: quality 100):
a PNG that is named .JPEG (n02105855_2933) and JPEGs in CMYK (22 in train, one in val).
"""

import io
import struct
from typing import Any, NamedTuple

from ddlbench.data.source import BadImage, Picture

SUFFIXES = (".jpeg", ".jpg", ".png")  # of files that are taken for pictures, in any case
QUALITY = 100  # of the few that are written anew
PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
START_OF_SCAN = 0xDA
# Frame headers are the markers C0 to CF, without Huffman tables, a reserved one and arithmetic conditioning.
START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


# Of a picture [pixels], as Pillow warns above: more is taken for a mistake or an attack. ImageNet's have at
# most 5980 x 6430, by the settings that NVIDIA trains it with (train/loaders/_dali.py).
MOST_PIXELS = 89_478_485
CODINGS = (0xC0, 0xC1, 0xC2)  # of frames that libjpeg-turbo and nvJPEG read alike
NAMED = "baseline, extended or progressive Huffman coding"


class Header(NamedTuple):
    """What a JPEG says of itself: height and width [pixels], components (1 grey, 3 colour, 4 CMYK or YCCK), bits of
    each, its frame's marker (ITU-T T.81, table B.1), and where in the file its first scan begins."""

    height: int
    width: int
    components: int
    bits: int
    coding: int
    scan: int


def is_named_so(name: str) -> bool:
    """Whether a file of this name is taken for a picture; hidden files are not."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def mended(encoded: bytes, name: str) -> Picture:
    """The picture as it goes into a form; `name` is for complaints.

    Decodes only what it has to write anew. Raises BadImage if the file is empty, cut short, neither JPEG nor PNG, too
    large, of a kind that not every decoder reads, or has a damaged header; other flaws show when it is decoded.
    """
    if not encoded:
        raise BadImage(f"{name}: is empty")
    if encoded.startswith(PNG):
        if encoded[12:16] != b"IHDR" or len(encoded) < 24:
            raise BadImage(f"{name}: cannot be decoded: is a PNG without a header")
        width, height = struct.unpack(">II", encoded[16:24])
        _check_size(width, height, name)
        return _as_jpeg(encoded, name)
    if not encoded.startswith(JPEG):
        raise BadImage(f"{name}: is neither JPEG nor PNG, it begins with {encoded[:8]!r}")
    try:
        header = jpeg_header(encoded)
    except ValueError as error:
        raise BadImage(f"{name}: {error}") from None
    if header.coding not in CODINGS or header.bits != 8 or header.components not in (1, 3, 4):
        coding = f"{header.components} components of {header.bits} bits, coding {header.coding:#x}"
        raise BadImage(f"{name}: is a JPEG that decoders do not read: {coding}; allowed: 1, 3 or 4 of 8 bits, {NAMED}")
    _check_size(header.width, header.height, name)
    # After the end there may be more: cameras and web sites append, decoders stop at the marker. Within a scan the
    # marker cannot be (each FF is followed by 00 there), so one after the scan's beginning is the end.
    if encoded.rfind(END_OF_IMAGE, header.scan) < 0:
        raise BadImage(f"{name}: ends early, after {len(encoded)} bytes, without the mark of a JPEG's end")
    if header.components == 4:
        return _as_jpeg(encoded, name)
    return Picture(encoded, header.height, header.width)


def jpeg_header(encoded: bytes) -> Header:
    """Walks the segments up to the first scan (ITU-T T.81, B.1 and B.2). Raises ValueError, in words."""
    frame, at = None, 2
    try:
        while True:
            if encoded[at] != 0xFF:
                raise ValueError(f"is a damaged JPEG: no marker at byte {at}")
            marker = encoded[at + 1]
            if marker == 0xFF:  # fill bytes may stand before a marker
                at += 1
                continue
            if marker in START_OF_FRAME:
                bits, *size = (encoded[at + n] for n in range(4, 10))
                frame = (size[0] << 8 | size[1], size[2] << 8 | size[3], size[4], bits, marker)
            at += 2 + (encoded[at + 2] << 8 | encoded[at + 3])
            if marker == START_OF_SCAN:
                break
    except IndexError:
        raise ValueError(f"ends early, after {len(encoded)} bytes, within a JPEG's header") from None
    if frame is None or 0 in frame:
        raise ValueError("is a damaged JPEG: says no size before its first scan")
    return Header(*frame, scan=at)


def _as_jpeg(encoded: bytes, name: str) -> Picture:
    """Decoded, made RGB, written as JPEG. Raises BadImage."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as image:
            rgb = as_rgb(image)
    # Pillow says "damaged" in all of these ways.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadImage(f"{name}: cannot be decoded: {error}") from None
    return Picture(encode(rgb, "JPEG", quality=QUALITY), rgb.height, rgb.width)


def as_rgb(image: Any) -> Any:
    """A Pillow image as RGB. Pillow's own conversion makes white of 16-bit grey: it cuts off what is above 255."""
    image.load()
    if image.mode.startswith("I"):
        import numpy as np
        from PIL import Image

        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


def _check_size(width: int, height: int, name: str) -> None:
    """Raises BadImage if a picture says that it has too many pixels, or none."""
    if not 0 < width * height <= MOST_PIXELS:
        raise BadImage(f"{name}: says that it has {width} x {height} pixels; allowed: 1 to {MOST_PIXELS} in all")


def encode(image: Any, form: str, **options: Any) -> bytes:
    """A Pillow image as the bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
