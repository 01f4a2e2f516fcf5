"""Turns an image file of a stranger into a picture of one size and one format, in a confined child process.

`python -m` this with {"content": base64} on the input answers {"picture": base64} or {"problem": code}.
Only pixels are kept: no name, no place, no camera, no comment, no second frame. The size is read from the
header first, so that a small file of many pixels is refused before it is unpacked.
"""

import base64
import io
import json
import sys
from typing import Any

from PIL import Image, ImageOps

from gpubloom.sandbox.landlock import Limits, Policy, confine_reader
from gpubloom.server.storage import children

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MEDIA_TYPE = "image/webp"
LARGEST_BYTES = 4 << 20
MOST_PIXELS = 40_000_000
SIDE = 256
_MODULE = "gpubloom.server.pictures.reencode"
_QUALITY = 85
_SECONDS = 20
_CPU_SECONDS = 10
# Forty million pixels of four bytes, twice, and Python.
_MEMORY_BYTES = 1 << 30


class NotAPicture(Exception):
    """The file cannot become a picture."""

    code = "not_a_picture"


class PictureTooLarge(NotAPicture):
    """The file has too many bytes or pixels."""

    code = "picture_too_large"


async def reencode(content: bytes, policy: Policy) -> bytes:
    """The picture in a file. Raises NotAPicture. `policy` is the operator's BLOOM_SANDBOX."""
    if len(content) > LARGEST_BYTES:
        raise PictureTooLarge
    request = {"content": base64.b64encode(content).decode(), "sandbox": policy}
    try:
        answer = await children.answer(_MODULE, request, seconds=_SECONDS)
        if "problem" in answer:
            raise PictureTooLarge if answer["problem"] == PictureTooLarge.code else NotAPicture
        return base64.b64decode(answer["picture"])
    except children.ChildFailed as error:
        # Out of memory or time: a file that was made to be expensive.
        raise NotAPicture from error


def encoded(content: bytes) -> bytes:
    """The middle of the first frame, upright, as WebP."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise PictureTooLarge
        # A photograph is unpacked at a fraction of its size where its format can do so.
        image.draft("RGB", (SIDE * 2, SIDE * 2))
        image.load()
        upright = ImageOps.exif_transpose(image)
    kind = "RGBA" if upright.has_transparency_data else "RGB"
    square = ImageOps.fit(upright.convert(kind), (SIDE, SIDE), Image.Resampling.LANCZOS)
    # A new image: what stands beside the pixels of the old one stays behind.
    picture = Image.frombytes(kind, square.size, square.tobytes())
    output = io.BytesIO()
    picture.save(output, "WEBP", quality=_QUALITY)
    return output.getvalue()


def main() -> None:
    """One file, one picture."""
    request = json.load(sys.stdin)
    # Codecs are loaded before nothing more can be opened.
    Image.init()
    confine_reader([], limits=Limits(_CPU_SECONDS, memory_bytes=_MEMORY_BYTES), policy=request["sandbox"])
    try:
        answer: dict[str, Any] = {
            "picture": base64.b64encode(encoded(base64.b64decode(request["content"]))).decode()
        }
    except (NotAPicture, Image.DecompressionBombError) as refused:
        answer = {"problem": getattr(refused, "code", PictureTooLarge.code)}
    except Exception:  # noqa: BLE001 - decoders fail in ways of their own on damaged files
        answer = {"problem": NotAPicture.code}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
