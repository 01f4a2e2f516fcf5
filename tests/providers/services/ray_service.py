"""A fake of a Ray cluster's Jobs API that answers and remembers; nothing runs in it."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class RayService:
    """`troubles` are taken one by one by the requests to start a job: a status, "cut" or "hang"."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.packages: dict[str, bytes] = {}
        self.posted: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.troubles: list[int | str] = []
        self.nodes: list[dict[str, Any]] = []
        self.over = threading.Event()
        service = self

        class Handler(_Handler):
            ray = service

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self, wanted: dict[str, Any]) -> str:
        key = wanted["submission_id"]
        self.jobs[key] = {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": key,
            "status": "RUNNING",
            "entrypoint": wanted["entrypoint"],
            "message": "Job is currently running.",
            "start_time": int(time.time() * 1000),
            "end_time": None,
            "metadata": {},
            "runtime_env": wanted["runtime_env"],
        }
        return str(key)

    def end(self, key: str, status: str, message: str = "") -> None:
        self.jobs[key] |= {"status": status, "message": message, "end_time": int(time.time() * 1000)}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    ray: RayService

    def do_GET(self) -> None:
        self.ray.headers.append(dict(self.headers))
        path = self.path.partition("?")[0]
        match path.strip("/").split("/"):
            case ["api", "version"]:
                version = {"version": "4", "ray_version": "2.60.0", "ray_commit": "c", "session_name": "s"}
                self._answer(200, version)
            case ["api", "packages", _, name]:
                self._answer(200 if name in self.ray.packages else 404, {})
            case ["api", "v0", "nodes"]:
                self._answer(200, {"result": True, "data": {"result": {"result": self.ray.nodes}}})
            case ["api", "jobs"]:
                self._answer(200, list(self.ray.jobs.values()))
            case ["api", "jobs", key] if key in self.ray.jobs:
                self._answer(200, self.ray.jobs[key])
            case _:
                self._answer(404, f"{path} does not exist")

    def do_PUT(self) -> None:
        self.ray.packages[self.path.rsplit("/", 1)[1]] = self._body()
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self._body().decode()
        if self.path.endswith("/stop"):
            key = self.path.split("/")[-2]
            if key not in self.ray.jobs:
                self._answer(404, "no such job")
                return
            self.ray.end(key, "STOPPED")
            self._answer(200, {"stopped": True})
            return
        self.ray.posted.append(body)
        wanted = json.loads(body)
        trouble = self.ray.troubles.pop(0) if self.ray.troubles else None
        if isinstance(trouble, int):
            self._answer(trouble, f"trouble with {body}")
        elif trouble == "hang":
            self.ray.over.wait(30)
        elif wanted["submission_id"] in self.ray.jobs:
            self._answer(500, f"Job with submission_id {wanted['submission_id']} already exists")
        else:
            key = self.ray.start(wanted)
            if trouble != "cut":
                self._answer(200, {"job_id": key, "submission_id": key})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Says nothing."""
