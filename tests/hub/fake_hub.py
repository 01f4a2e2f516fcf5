"""A model hub on the loopback address: the calls that huggingface_hub makes to fetch and to push.

Repository info, files with HEAD, ranges and redirects to a store of its own, creating repositories,
preupload, the LFS batch with uploads in one piece or in parts, and commits. It checks hashes and tokens as
the real one does.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test_token"
# Files of this size and all safetensors are stored apart, as large files are.
_LARGE = 10_000
_PART = 65_536
_REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"


@dataclass
class Repo:
    kind: str
    private: bool = False
    gated: bool = False
    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{}])

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1]

    def revision(self, number: int = -1) -> str:
        index = number % len(self.commits)
        text = json.dumps(
            [index, sorted((n, hashlib.sha256(c).hexdigest()) for n, c in self.commits[index].items())]
        )
        return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class FakeHub:
    """What the hub holds, and what it was asked."""

    url: str
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    store: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    # The connection breaks after so many bytes of a file's content, once for each entry.
    cut_after: list[int] = field(default_factory=list)
    # Large uploads come in parts of this size.
    part_size: int | None = None

    def add(self, name: str, files: dict[str, bytes], kind: str = "model", **about: Any) -> Repo:
        self.repos[kind, name] = Repo(kind, commits=[dict(files)], **about)
        return self.repos[kind, name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route("GET")

    def do_HEAD(self) -> None:
        self._route("HEAD")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def _route(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((method, self.path, dict(self.headers)))
        self.body = self._read_body()
        for verbs, pattern, handle in _ROUTES:
            if method in verbs and (match := re.fullmatch(pattern, path)):
                handle(self, **match.groupdict())
                return
        self._json(404, {"error": f"the fake hub has no {method} {path}"})

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().strip(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _json(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def knows_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repo(self, kind: str, name: str, *, content: bool = False) -> Repo | None:
        """The repository, or an answer that says why not, as the hub words it."""
        if self.headers.get("Authorization") not in (None, f"Bearer {TOKEN}"):
            self._json(
                401, {"error": "x"}, {"X-Error-Message": "Invalid credentials in Authorization header"}
            )
            return None
        repo = self.hub.repos.get((kind, name))
        if repo is None or (repo.private and not self.knows_token):
            self._json(404 if self.knows_token else 401, {"error": "x"}, {"X-Error-Code": "RepoNotFound"})
            return None
        if repo.gated and not self.knows_token:
            self._json(403, {"error": "x"}, {"X-Error-Code": "GatedRepo"})
            return None
        return repo

    def info(self, kinds: str, repo: str, revision: str | None = None) -> None:
        kind = kinds.rstrip("s")
        found = self._repo(kind, repo)
        if found is None:
            return
        number = _number(found, revision)
        if number is None:
            self._json(404, {"error": "x"}, {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [_sibling(name, content) for name, content in sorted(found.commits[number].items())]
        about = {"id": repo, "sha": found.revision(number), "private": found.private, "siblings": siblings}
        self._json(
            200, about | {"gated": found.gated, "tags": [], "downloads": 0, "likes": 0, "disabled": False}
        )

    def tree(self, kinds: str, repo: str, revision: str) -> None:
        found = self._repo(kinds.rstrip("s"), repo)
        if found is None:
            return
        number = _number(found, revision)
        files = {} if number is None else found.commits[number]
        self._json(
            200,
            [
                {"type": "file", "path": name, "size": len(content), "oid": _blob(content)}
                for name, content in sorted(files.items())
            ],
        )

    def resolve(self, repo: str, revision: str, file: str, kinds: str | None = None) -> None:
        found = self._repo((kinds or "models/").rstrip("s/"), repo)
        if found is None:
            return
        number = _number(found, revision)
        content = None if number is None else found.commits[number].get(file)
        if content is None or number is None:
            self._json(404, {"error": "x"}, {"X-Error-Code": "EntryNotFound"})
            return
        about = {"X-Repo-Commit": found.revision(number), "Accept-Ranges": "bytes"}
        if _is_large(file, content):
            sha = hashlib.sha256(content).hexdigest()
            self.hub.store[sha] = content
            self.send_response(302)
            linked = {"X-Linked-ETag": f'"{sha}"', "X-Linked-Size": str(len(content))}
            for name, value in {**about, **linked, "Location": f"{self.hub.url}/store/{sha}"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._content(content, about | {"ETag": f'"{_blob(content)}"'})

    def stored(self, sha: str) -> None:
        self._content(self.hub.store[sha], {"ETag": f'"{sha}"', "Accept-Ranges": "bytes"})

    def _content(self, content: bytes, headers: dict[str, str]) -> None:
        begin = 0
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            begin = int(match[1])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        rest = content[begin:]
        if self.hub.cut_after and len(rest) > self.hub.cut_after[0]:
            self.wfile.write(rest[: self.hub.cut_after.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(rest)

    def create(self) -> None:
        if not self.knows_token:
            self._json(
                401, {"error": "x"}, {"X-Error-Message": "Invalid credentials in Authorization header"}
            )
            return
        asked = json.loads(self.body)
        kind, name = asked.get("type") or "model", f"{asked['organization']}/{asked['name']}"
        url = f"{self.hub.url}/{name}" if kind == "model" else f"{self.hub.url}/{kind}s/{name}"
        if (kind, name) in self.hub.repos:
            self._json(409, {"error": "You already created this repo", "url": url})
            return
        self.hub.add(
            name, {}, kind, private=asked.get("visibility") == "private" or bool(asked.get("private"))
        )
        self._json(200, {"url": url, "name": name, "id": "0"})

    def preupload(self, kinds: str, repo: str, revision: str) -> None:
        if self._repo(kinds.rstrip("s"), repo) is None:
            return
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs"
                if _is_large(file["path"], b"x" * min(file["size"], _LARGE))
                else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(self.body)["files"]
        ]
        self._json(200, {"files": files})

    def batch(self, repo: str, kinds: str | None = None) -> None:
        objects: list[dict[str, Any]] = []
        for wanted in json.loads(self.body)["objects"]:
            oid, size = wanted["oid"], wanted["size"]
            header: dict[str, str] = {}
            upload = f"{self.hub.url}/upload/{oid}"
            if self.hub.part_size and size > self.hub.part_size:
                count = -(-size // self.hub.part_size)
                header = {"chunk_size": str(self.hub.part_size)}
                header |= {str(n): f"{self.hub.url}/part/{oid}/{n}" for n in range(1, count + 1)}
                upload = f"{self.hub.url}/complete/{oid}"
            actions = {"upload": {"href": upload, "header": header}}
            there = oid in self.hub.store
            objects.append({"oid": oid, "size": size} | ({} if there else {"actions": actions}))
        self._json(200, {"transfer": "basic", "objects": objects})

    def upload(self, oid: str) -> None:
        self._keep(oid, self.body)

    def part(self, oid: str, number: str) -> None:
        self.hub.parts.setdefault(oid, {})[int(number)] = self.body
        self._json(200, {}, {"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'})

    def complete(self, oid: str) -> None:
        held = self.hub.parts.pop(oid)
        assert [part["partNumber"] for part in json.loads(self.body)["parts"]] == sorted(held)
        self._keep(oid, b"".join(held[number] for number in sorted(held)))

    def _keep(self, oid: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != oid:
            self._json(400, {"error": "the content has another hash"})
            return
        self.hub.store[oid] = content
        self._json(200, {})

    def commit(self, kinds: str, repo: str, revision: str) -> None:
        found = self._repo(kinds.rstrip("s"), repo)
        if found is None:
            return
        if not self.knows_token:
            self._json(403, {"error": "x"})
            return
        files = dict(found.files)
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.store[value["oid"]]
        found.commits.append(files)
        oid = found.revision()
        self._json(200, {"commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "commitOid": oid})

    def yaml_is_fine(self) -> None:
        self._json(200, {"warnings": [], "errors": []})


_KINDS = r"(?P<kinds>models|datasets)"
_ROUTES: list[tuple[tuple[str, ...], str, Any]] = [
    (("GET",), rf"/api/{_KINDS}/{_REPO}(?:/revision/(?P<revision>.+))?", _Handler.info),
    (("GET",), rf"/api/{_KINDS}/{_REPO}/tree/(?P<revision>[^/]+)", _Handler.tree),
    (
        ("GET", "HEAD"),
        rf"/(?:(?P<kinds>datasets)/)?{_REPO}/resolve/(?P<revision>[^/]+)/(?P<file>.+)",
        _Handler.resolve,
    ),
    (("GET", "HEAD"), r"/store/(?P<sha>\w+)", _Handler.stored),
    (("POST",), r"/api/repos/create", _Handler.create),
    (("POST",), rf"/api/{_KINDS}/{_REPO}/preupload/(?P<revision>.+)", _Handler.preupload),
    (("POST",), rf"/(?:(?P<kinds>datasets)/)?{_REPO}\.git/info/lfs/objects/batch", _Handler.batch),
    (("PUT",), r"/upload/(?P<oid>\w+)", _Handler.upload),
    (("PUT",), r"/part/(?P<oid>\w+)/(?P<number>\d+)", _Handler.part),
    (("POST",), r"/complete/(?P<oid>\w+)", _Handler.complete),
    (("POST",), rf"/api/{_KINDS}/{_REPO}/commit/(?P<revision>.+)", _Handler.commit),
    (("POST",), r"/api/validate-yaml", _Handler.yaml_is_fine),
]


def _number(repo: Repo, revision: str | None) -> int | None:
    if revision in (None, "main"):
        return len(repo.commits) - 1
    return next((n for n in range(len(repo.commits)) if repo.revision(n) == revision), None)


def _is_large(path: str, content: bytes) -> bool:
    return len(content) >= _LARGE or path.endswith((".safetensors", ".parquet"))


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    about: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": _blob(content)}
    if _is_large(name, content):
        about["lfs"] = {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "pointerSize": 130,
        }
    return about


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = FakeHub(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
