"""A mirror on the loopback address, as somebody without the internet would run one for rented machines.

/simple/NAME/         a package index (PEP 503) over a folder of wheels
/whl/cu130/NAME/      the same as the index of PyTorch; the build is the one that runs here
/python/builds.json   a list of Pythons for uv, and the archive that it names
/debian/…             Debian's packages, fetched once from the mirror that apt uses here
"""

import hashlib
import json
import re
import shutil
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from tests.bare import recipe


class Mirror:
    """`with` starts it. `environment` is what leads rented machines here."""

    def __init__(self, cache: Path) -> None:
        self.wheels, self.archive, self.cache = recipe.wheels(), recipe.python_archive(), cache
        self.asked: list[str] = []
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                """Tests are quiet."""

            def do_HEAD(self) -> None:
                self._answer(head=True)

            def do_GET(self) -> None:
                self._answer(head=False)

            def _answer(self, *, head: bool) -> None:
                path = unquote(urlsplit(self.path).path)
                mirror.asked.append(path)
                found = mirror.find(path)
                self.send_response(200 if found is not None else 404)
                size = 0 if found is None else found.stat().st_size if isinstance(found, Path) else len(found)
                kind = "application/octet-stream" if isinstance(found, Path) else "text/html"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                if head or found is None:
                    return
                if isinstance(found, bytes):
                    self.wfile.write(found)
                    return
                with found.open("rb") as file:
                    shutil.copyfileobj(file, self.wfile, 1 << 18)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For the server whose machines are rented."""
        return {
            "BLOOM_PACKAGE_INDEX": f"{self.url}/simple",
            "BLOOM_TORCH_INDEX": f"{self.url}/whl",
            "BLOOM_PYTHON_BUILDS": f"{self.url}/python/builds.json",
        }

    def find(self, path: str) -> bytes | Path | None:
        """What is at a path: a page, or a file."""
        match path.strip("/").split("/"):
            case ["simple", name] | ["whl", "cu130", name]:
                return self._page(name)
            case ["files", name] if (self.wheels / name).is_file():
                return self.wheels / name
            case ["files", name] if name.endswith(".whl.metadata"):
                return _metadata(self.wheels / name.removesuffix(".metadata"))
            case ["python", "builds.json"]:
                return self._builds()
            case ["python", "python.tar.gz"]:
                return self.archive
            case ["debian", *parts] if ".." not in parts:
                return self._of_debian("/".join(parts))
        return None

    def _page(self, name: str) -> bytes | None:
        found = [path.name for path in self.wheels.iterdir() if _normal(path.name.split("-")[0]) == name]
        links = (f'<a href="/files/{quote(each)}" data-core-metadata="true">{each}</a>' for each in found)
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if found else None

    def _builds(self) -> bytes:
        major, minor = map(int, recipe.PYTHON.split("."))
        build = {
            "name": "cpython",
            "arch": {"family": "x86_64", "variant": None},
            "os": "linux",
            "libc": "gnu",
            "major": major,
            "minor": minor,
            "patch": 2,
            "prerelease": "",
            "url": f"{self.url}/python/python.tar.gz",
            "sha256": hashlib.sha256(self.archive.read_bytes()).hexdigest(),
            "variant": None,
            "build": "1",
        }
        return json.dumps({f"cpython-{major}.{minor}.2-linux-x86_64-gnu": build}).encode()

    def _of_debian(self, path: str) -> Path | None:
        kept = self.cache / quote(path, safe="")
        if not kept.exists():
            part = kept.with_name(f"{kept.name}.{threading.get_ident()}.part")
            if not recipe.fetch(f"{recipe.apt_mirror()}/{quote(path)}", part):
                return None
            part.replace(kept)
        return kept


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _metadata(wheel: Path) -> bytes | None:
    if not wheel.is_file():
        return None
    with zipfile.ZipFile(wheel) as opened:
        name = next(each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        return opened.read(name)
