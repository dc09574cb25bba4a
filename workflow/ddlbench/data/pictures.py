"""One picture's bytes: what it is, from its first bytes only, and repaired where a decoder would
stumble.

JPEGs pass as they are, grey ones too (every decoder here makes RGB of them). Two kinds that
ImageNet is known to hold become RGB JPEGs, as in TF-slim's converter (tensorflow/models,
research/slim, build_imagenet_data.py: quality 100): a PNG that is named .JPEG (n02105855_2933) and
JPEGs in CMYK (22 in train, one in val). So does whatever else Pillow reads by the names of OTHERS;
of several frames the first.
"""

import io
from typing import Any

from ddlbench.data.source import BadImage, Picture

PLAIN = (".jpeg", ".jpg", ".png")  # of files that every loader reads as they lie
OTHERS = {".webp": "WEBP", ".gif": "GIF", ".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF"}
SUFFIXES = (*PLAIN, *OTHERS)  # of files that are taken for pictures, in any case
UNREAD = (
    ".heic",
    ".heif",
    ".avif",
    ".jxl",
    ".jp2",
    ".psd",
    ".svg",
)  # pictures that are refused by name
JUNK = {"@eaDir", "#recycle", "$RECYCLE.BIN", "__MACOSX", "lost+found", "System Volume Information"}
QUALITY = 100  # of the few that are written anew
PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
# Of a picture [pixels], as Pillow warns above: more is taken for a mistake or an attack. ImageNet's
# have at most 5980 x 6430, by the settings that NVIDIA trains it with (train/loaders/_dali.py).
MOST_PIXELS = 89_478_485


def has_picture_name(name: str) -> bool:
    """Tell whether a file of this name counts as a picture; hidden files do not."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def is_ignored_folder(name: str) -> bool:
    """Tell whether a folder of this name is not part of a data set: hidden, or left there by an
    operating system.
    """
    return name.startswith(".") or name in JUNK


def repaired(encoded: bytes, name: str) -> Picture:
    """Return the picture as it goes into a form; `name` is for complaints.

    Pillow reads the header; only what has to be written anew is decoded. Raises BadImage if the
    file is empty, cut short, of no kind of SUFFIXES, too large, or one that Pillow does not read;
    other flaws show when it is decoded.
    """
    from PIL import Image, UnidentifiedImageError
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    if not encoded:
        raise BadImage(f"{name}: is empty")
    is_other = encoded.startswith((b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*"))
    if not is_other and not encoded.startswith((PNG, JPEG)):
        known = ", ".join(dict.fromkeys(OTHERS.values()))
        raise BadImage(
            f"{name}: is neither JPEG nor PNG, nor {known}; it begins with {encoded[:8]!r}"
        )
    # Not by Image.open: it makes an MPO of a JPEG with a second picture behind the first, which is
    # passed over here.
    kind = PngImageFile if encoded.startswith(PNG) else JpegImageFile
    stream = io.BytesIO(encoded)
    try:
        image = Image.open(stream, formats=[*OTHERS.values()]) if is_other else kind(stream)
        if image.width * image.height > MOST_PIXELS:
            size = f"{image.width} x {image.height} pixels; allowed: at most {MOST_PIXELS} in all"
            raise BadImage(f"{name}: its header gives {size}")
        # After the end there may be more: cameras and web sites append, decoders stop at the
        # marker. Pillow stops reading where the first scan begins. Within a scan the marker cannot
        # be (each FF is followed by 00 there), so one after the scan's beginning is the end.
        if encoded.startswith(JPEG) and encoded.rfind(END_OF_IMAGE, stream.tell()) < 0:
            raise BadImage(
                f"{name}: is truncated after {len(encoded)} bytes: a JPEG's end marker is missing"
            )
        if encoded.startswith(JPEG) and image.mode != "CMYK":
            return Picture(encoded, image.height, image.width)
        if image.mode in ("F", "I"):
            raise BadImage(f"{name}: has samples of 32 bits, of which nobody knows what is white")
        rgb = as_rgb(image)
    except UnidentifiedImageError:
        raise BadImage(
            f"{name}: cannot be decoded: it begins with {encoded[:8]!r}, and Pillow gives no reason"
        ) from None
    # Pillow reports damage in all of these ways, and pictures that it takes for an attack.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadImage(f"{name}: cannot be decoded: {error}") from None
    return Picture(encode(rgb, "JPEG", quality=QUALITY), rgb.height, rgb.width)


def as_rgb(image: Any) -> Any:
    """Convert a Pillow image to RGB.

    Pillow's own conversion makes white of 16-bit grey: it cuts off what is above 255.
    """
    image.load()
    if image.mode.startswith("I;16"):
        import numpy as np
        from PIL import Image

        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


def encode(image: Any, form: str, **options: Any) -> bytes:
    """Encode a Pillow image as the bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
