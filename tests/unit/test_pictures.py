"""What goes into a form: JPEGs as they are, PNG and CMYK made RGB JPEG, everything else refused by name."""

import io
import re
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from ddlbench.data.pictures import encode, jpeg_header, mended
from ddlbench.data.source import BadImage
from PIL import Image

RED = (200, 30, 40)


def jpeg(mode: str = "RGB", size: tuple[int, int] = (37, 21), colour: Any = RED, **options: Any) -> bytes:
    return encode(Image.new(mode, size, colour), "JPEG", **options)


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header says so; the CRC is right."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize(
    "encoded",
    [
        jpeg(),
        jpeg(progressive=True),
        jpeg("L", colour=90),
        jpeg(comment=b"\xff\xd9" * 99),
        jpeg(exif=b"Exif\0\0" + jpeg(size=(5, 5))),  # a thumbnail has a header and an end of its own
        jpeg() + b"\0\0what a camera appends\xff",
        jpeg()[:2] + b"\xff\xff\xff" + jpeg()[2:],
    ],
    ids=["baseline", "progressive", "grey", "comment", "thumbnail", "trailing", "fill-bytes"],
)
def test_a_jpeg_passes_as_it_is(encoded: bytes) -> None:
    assert mended(encoded, "a.JPEG") == (encoded, 21, 37)
    Image.open(io.BytesIO(encoded)).load()


@pytest.mark.parametrize(
    "encoded",
    [
        encode(Image.new("RGB", (37, 21), RED), "PNG"),
        encode(Image.new("RGBA", (37, 21), (*RED, 255)), "PNG"),
        encode(Image.new("RGB", (37, 21), RED).convert("P", palette=Image.Palette.ADAPTIVE), "PNG"),
        encode(Image.new("RGB", (37, 21), RED).convert("CMYK"), "JPEG", quality=100),
    ],
    ids=["png", "png-with-alpha", "png-with-palette", "cmyk"],
)
def test_png_and_cmyk_become_rgb_jpeg_of_the_same_size_and_colour(encoded: bytes) -> None:
    picture = mended(encoded, "n02105855_2933.JPEG")
    assert (picture.height, picture.width) == (21, 37)
    with Image.open(io.BytesIO(picture.encoded)) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (37, 21))
        assert all(abs(a - b) <= 4 for a, b in zip(image.getpixel((9, 9)), RED, strict=True))


def test_the_components_of_a_cmyk_jpeg_are_four() -> None:
    assert jpeg_header(jpeg("CMYK", colour=(1, 2, 3, 4))).components == 4


def with_frame(marker: int = 0xC0, bits: int = 8, size: tuple[int, int] = (21, 37), components: int = 3) -> bytes:
    """A JPEG whose frame header says something else: it is cheap to say so."""
    encoded = bytearray(jpeg())
    at = encoded.index(b"\xff\xc0")
    encoded[at + 1] = marker
    encoded[at + 4 : at + 10] = struct.pack(">BHHB", bits, *size, components)
    return bytes(encoded)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (with_frame(size=(65500, 65500)), "says that it has 65500 x 65500 pixels; allowed: 1 to 89478485"),
        (with_frame(size=(9460, 9460)), "says that it has 9460 x 9460 pixels"),
        (with_frame(bits=12), "3 components of 12 bits"),
        (with_frame(components=2), "2 components of 8 bits"),
        (with_frame(components=5), "5 components of 8 bits"),
        (with_frame(marker=0xC3), "coding 0xc3; allowed: 1, 3 or 4 of 8 bits, baseline"),
        (with_frame(marker=0xC9), "coding 0xc9"),
        (png_of(100_000, 100_000), "says that it has 100000 x 100000 pixels"),
        (png_of(0, 5), "says that it has 0 x 5 pixels"),
        (encode(Image.new("L", (5, 5)), "PNG")[:20], "is a PNG without a header"),
    ],
)
def test_what_decoders_would_not_read_or_could_not_hold_is_refused(encoded: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=re.escape(reason)):
        mended(encoded, "a.JPEG")


def test_frames_that_are_said_to_be_what_they_are_pass() -> None:
    assert with_frame() == jpeg()
    assert mended(with_frame(size=(9459, 9459)), "a.JPEG").height == 9459


@pytest.mark.parametrize("maximum", [65535, 300])
def test_grey_of_16_bits_keeps_its_brightness(maximum: int) -> None:
    grey = np.tile(np.linspace(0, maximum, 64, dtype=np.uint16), (32, 1))
    picture = mended(encode(Image.fromarray(grey), "PNG"), "a.png")
    with Image.open(io.BytesIO(picture.encoded)) as image:
        found = np.asarray(image)[16, :, 0].astype(int)
    assert np.abs(found - (grey[16] >> 8)).max() <= 3


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "is empty"),
        (b"no picture", "is neither JPEG nor PNG"),
        (b"GIF89a....", "is neither JPEG nor PNG"),
        (jpeg()[:-40], "ends early"),
        (jpeg(exif=b"Exif\0\0" + jpeg(size=(5, 5)))[:-40], "ends early"),
        (jpeg()[:3], "ends early"),
        (jpeg()[:100], "ends early"),
        (b"\xff\xd8" + b"x" * 90, "damaged JPEG"),
        (b"\xff\xd8\xff\xda\0\x02\xff\xd9", "says no size"),
        (encode(Image.new("RGB", (99, 99)), "PNG")[:60], "cannot be decoded"),
        (jpeg("CMYK", (99, 99), (1, 2, 3, 4))[:-60], "ends early"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(encoded: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason) as error:
        mended(encoded, "n01/a.JPEG")
    assert str(error.value).startswith("n01/a.JPEG: ")
    assert "\n" not in str(error.value)


def test_every_cut_is_found() -> None:
    whole = encode(Image.radial_gradient("L").convert("RGB"), "JPEG")
    for length in range(0, len(whole), 7):
        with pytest.raises(BadImage):
            mended(whole[:length], "a.JPEG")
