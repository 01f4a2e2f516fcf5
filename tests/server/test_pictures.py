"""Profile pictures: what is kept of an uploaded image, who sees it, and pictures of sign-in providers."""

import base64
import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from gpubloom.server.accounts.tables import User
from gpubloom.server.pictures.tables import ProfilePicture
from tests.server.installation import Browser, Installation, Server

KINDS = ["PNG", "JPEG", "WEBP", "GIF"]


@pytest.fixture
def server(installation: Installation, admin: User) -> Iterator[Server]:
    with installation.serve() as running:
        yield running


@pytest.fixture
def member(installation: Installation) -> User:
    return installation.add_user("Alice Smith", email="alice.smith@example.com")


def image_file(kind: str = "PNG", size: tuple[int, int] = (640, 480), **options: Any) -> bytes:
    output = io.BytesIO()
    image = Image.new("RGB", size, "#7C3AED")
    # The left edge is cut off when the middle is kept.
    image.paste("#10B981", (0, 0, 40, size[1]))
    image.save(output, kind, **options)
    return output.getvalue()


def upload(browser: Browser, content: bytes) -> Any:
    return browser.put("/api/me/picture", json={"content": base64.b64encode(content).decode()})


def shown(browser: Browser, address: str) -> Image.Image:
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/webp"
    return Image.open(io.BytesIO(answer.content))


@pytest.mark.parametrize("form", KINDS)
def test_an_image_becomes_a_square_of_one_size(server: Server, member: User, form: str) -> None:
    browser = server.signed_in(member)
    answer = upload(browser, image_file(form))
    assert answer.status_code == 200, answer.text
    address = answer.json()["image"]
    assert browser.get("/api/me").json()["image"] == address
    picture = shown(browser, address)
    assert (picture.format, picture.size) == ("WEBP", (256, 256))
    middle = picture.convert("RGB").crop((128, 128, 129, 129)).tobytes()
    assert list(middle) == pytest.approx([0x7C, 0x3A, 0xED], abs=8)
    again = upload(browser, image_file(form, (300, 300))).json()["image"]
    assert again != address, "another picture has another address"


def test_metadata_and_orientation_do_not_stay(server: Server, member: User) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "Secret Camera", 6
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Location", "at home")
    browser = server.signed_in(member)
    for content in (image_file("JPEG", exif=exif), image_file("PNG", pnginfo=notes)):
        stored = browser.get(upload(browser, content).json()["image"]).content
        assert b"Secret" not in stored
        assert b"at home" not in stored
        picture = Image.open(io.BytesIO(stored))
        assert not picture.getexif()
        assert not {"exif", "xmp", "icc_profile"} & set(picture.info)


def _bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes whose header promises many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (_bomb(30_000, 30_000), "picture_too_large"),
        (_bomb(2**31 - 1, 2**31 - 1), "picture_too_large"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * ((4 << 20) - 7), "picture_too_large"),
        (image_file("PNG")[:400], "not_a_picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "not_a_picture"),
        (image_file("TIFF"), "not_a_picture"),
        (b"GIF89a", "not_a_picture"),
    ],
    ids=["bomb", "larger than any", "bytes", "cut off", "svg", "tiff", "empty gif"],
)
def test_what_is_no_small_image_is_refused(server: Server, member: User, content: bytes, code: str) -> None:
    browser = server.signed_in(member)
    answer = upload(browser, content)
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    assert (error["field"], error["code"]) == ("content", code)
    assert browser.get("/api/me").json()["image"] is None


def test_what_is_no_base64_and_what_is_larger_than_a_request_is_refused(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    answer = browser.put("/api/me/picture", json={"content": "not base64!"})
    assert answer.json()["errors"][0]["code"] == "not_base64"
    answer = browser.put("/api/me/picture", json={"content": "A" * (8 << 20)})
    assert answer.status_code == 413


def test_a_picture_is_seen_by_its_owner_and_admins_only(
    server: Server, installation: Installation, admin: User, member: User
) -> None:
    mine, theirs = server.signed_in(member), server.signed_in(installation.add_user("Mallory"))
    address = upload(mine, image_file()).json()["image"]
    assert theirs.get(address).status_code == 404
    assert server.browser().get(address).status_code == 401
    seen = server.signed_in(admin)
    assert seen.get(address).status_code == 200
    [listed] = [person for person in seen.get("/api/users").json()["items"] if person["id"] == str(member.id)]
    assert listed["image"] == address


def test_browsers_keep_one_version_for_ever_and_ask_for_any_other(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    address = upload(browser, image_file()).json()["image"]
    assert browser.get(address).headers["cache-control"] == "private, max-age=31536000, immutable"
    other = browser.get(address.partition("?")[0])
    assert other.headers["cache-control"] == "private, no-cache"


def test_a_removed_picture_is_gone(server: Server, installation: Installation, member: User) -> None:
    browser = server.signed_in(member)
    address = upload(browser, image_file()).json()["image"]
    answer = browser.delete("/api/me/picture")
    assert (answer.status_code, answer.json()["image"]) == (200, None)
    assert browser.get(address).status_code == 404
    assert installation.all(ProfilePicture) == []
    assert {"user.picture_changed", "user.picture_removed"} <= set(installation.actions())
    assert browser.delete("/api/me/picture").status_code == 200, "removing nothing is no error"


def test_an_api_token_changes_no_picture(server: Server, member: User) -> None:
    program = server.program(member, "read", "write")
    assert upload(program, image_file()).status_code == 403
