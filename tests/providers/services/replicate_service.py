"""Replicate on the loopback address. A training really calls train() of the model that we write for Cog.

    with ReplicateService() as service:
        monkeypatch.setenv("BLOOM_REPLICATE_URL", service.url)
        provider_spec("replicate").open(service.credentials)

A training is billed from when train() is called until it returns. Secret inputs are shown to nobody later.
"""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from gpubloom.providers.replicate.cog_model import model_files
from tests.providers.services.replicate_contract import replicate_misfits
from tests.providers.services.spec import misfits, published
from tests.providers.services.web import (
    RETRY_AFTER_SECONDS,
    Exchange,
    Rental,
    Reply,
    Request,
    Trouble,
    WebService,
)

SPEC = "replicate-openapi.yml"
HOST = "https://api.replicate.com"
VERSION = "5c7d5dc6dd8bf75c1acaa8565735e7986bc5b66206b55cca93cb72c9bf15ccaa"
PAGE_SIZE = 3

# Replicate's library, as far as our model uses it.
_COG = """
from pathlib import Path

class Secret:
    def __init__(self, value): self._value = value
    def get_secret_value(self): return self._value
    def __repr__(self): return "**********"

def Input(description="", default=None): return default

class BaseModel:
    def __init__(self, **fields): self.__dict__.update(fields)
"""
# What Cog does with a training: calls it, keeps what this process itself prints, and raises in it when it is
# cancelled: from another thread, so between two instructions, and not while a call blocks.
_RUN = """
import ctypes, json, os, signal, sys, threading, time
from pathlib import Path
import cog, train

class Cancelled(BaseException): pass
main = threading.get_ident()
def interrupt():
    time.sleep(0.2)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Cancelled))
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=interrupt).start())
sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
nowhere = os.open(os.devnull, os.O_WRONLY)
os.dup2(nowhere, 1)
os.dup2(nowhere, 2)
Path("pid").write_text(str(os.getpid()))
given = json.loads(Path("input.json").read_text())
given["start"] = cog.Secret(given["start"])
ended = {"status": "succeeded"}
try:
    ended["weights"] = str(train.train(**given).weights)
except Cancelled:
    ended["status"] = "canceled"
except Exception as problem:
    ended = {"status": "failed", "error": str(problem)}
part = Path("ended.part")
part.write_text(json.dumps(ended))
part.rename("ended.json")
"""


class ReplicateService(WebService):
    address_variable = "BLOOM_REPLICATE_URL"
    api_key = "r8_Hidden-Replicate-Token"
    launch_call = "/trainings"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.destinations = {"somebody/results"}

    @property
    def credentials(self) -> dict[str, str]:
        return {
            "api_key": self.api_key,
            "model": f"somebody/bloom:{VERSION}",
            "destination": "somebody/results",
            "gpu": "L40S",
        }

    def check(self, exchange: Exchange) -> Iterator[str]:
        yield from replicate_misfits(exchange)
        spec = published(SPEC)
        # It describes no failures, and gives no form to the answers about trainings and models.
        if spec is not None and exchange.reply.status < 400:
            yield from misfits(spec, HOST, exchange)

    def failure(self, trouble: Trouble, request: Request) -> Reply:
        match trouble:
            case "quota":
                return _error(402, "You have insufficient credit to run this model.")
            case "bad_credentials":
                return _error(401, "You did not pass a valid authentication token")
            case "refused":
                return _error(422, f"Input validation failed: {json.dumps(request.body)}")
            case "rate_limited":
                reply = _error(429, "Request was throttled.")
                return Reply(429, reply.body, (("Retry-After", str(RETRY_AFTER_SECONDS)),))
        return _error(503, "Something broke.")

    def answer(self, request: Request) -> Reply:
        call = f"{request.method} {request.path}"
        if call == "GET /v1/account":
            return Reply(200, {"type": "user", "username": "somebody", "name": "Some Body"})
        if call == "GET /v1/trainings":
            return self._page(int(request.query.get("cursor", 0)))
        if found := re.fullmatch(r"GET /v1/models/([^/]+)/([^/]+)", call):
            if f"{found[1]}/{found[2]}" not in self.destinations:
                return _GONE
            return Reply(200, {"owner": found[1], "name": found[2], "url": f"{HOST}/{found[1]}/{found[2]}"})
        if found := re.fullmatch(r"(GET|POST) /v1/models/somebody/bloom/versions/([^/]+)(/trainings)?", call):
            if found[2] != VERSION:
                return _GONE
            if found[3]:
                return self._train(request.body)
            return Reply(200, {"id": VERSION, "created_at": _moment(self.now())})
        if found := re.fullmatch(r"(GET|POST) /v1/trainings/([^/]+?)(/cancel)?", call):
            rental = self.instances.get(found[2])
            if rental is None:
                return _GONE
            if found[3]:
                self._cancel(rental)
            return Reply(200, self._shown(rental))
        return _GONE

    def _train(self, body: dict[str, Any]) -> Reply:
        if body["destination"] not in self.destinations:
            return _GONE
        files = {
            "train.py": model_files()["train.py"],
            "cog.py": _COG,
            "run.py": _RUN,
            "input.json": json.dumps(body["input"]),
        }
        written = "".join(f"cat >{name} <<'THE_END'\n{text}\nTHE_END\n" for name, text in files.items())
        script = f'cd "$HOME"\numask 077\n{written}exec python3 run.py\n'
        shown = {**body["input"], "start": "[REDACTED]"}
        rental = self.rent(self.identifier("zz4ibbonubfz7carwief"), shown["key"], script, shown)
        return Reply(201, self._shown(rental))

    def forget(self, instance_id: str) -> None:
        """The service does not show it any more."""
        self.end(self.instances[instance_id])
        self.instances.pop(instance_id)

    def _cancel(self, rental: Rental) -> None:
        folder = rental.machine.folder
        if self._ended(rental) is None and (folder / "pid").exists():
            os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
            deadline = time.monotonic() + 120
            while self._ended(rental) is None and time.monotonic() < deadline:
                time.sleep(0.02)
        self.end(rental)

    def _ended(self, rental: Rental) -> dict[str, Any] | None:
        record = rental.machine.folder / "ended.json"
        if record.exists():
            self.end(rental)
            found: dict[str, Any] = json.loads(record.read_text())
            return found
        return {"status": "canceled"} if rental.ended else None

    def _page(self, start: int) -> Reply:
        newest = list(reversed(self.instances.values()))
        after = start + PAGE_SIZE
        more = f"https://elsewhere.invalid/v1/trainings?cursor={after}" if after < len(newest) else None
        shown = [self._shown(rental) for rental in newest[start:after]]
        for training in shown:
            training.pop("logs")
        return Reply(200, {"next": more, "previous": None, "results": shown})

    def _shown(self, rental: Rental) -> dict[str, Any]:
        ended = self._ended(rental)
        if rental.taken_away:
            ended = {"status": "failed", "error": "The machine went away; see https://replicate.test/x?sig=1"}
        running = rental.machine.started_at is not None
        status = ended["status"] if ended else "processing" if running else "starting"
        weights = (ended or {}).get("weights")
        return {
            "id": rental.id,
            "model": "somebody/bloom",
            "version": VERSION,
            "status": status,
            "source": "api",
            "input": rental.description,
            "output": {"version": f"somebody/results:{VERSION}", "weights": weights} if weights else None,
            "error": (ended or {}).get("error"),
            "logs": rental.machine.text,
            "metrics": {"predict_time": self.billed_seconds(rental.id)} if ended else None,
            "created_at": _moment(rental.launched_at + self.clock_ahead_seconds),
            "started_at": _moment(rental.active_at + self.clock_ahead_seconds) if running else None,
            "completed_at": _moment((rental.ended_at or 0) + self.clock_ahead_seconds) if ended else None,
            "urls": {
                "get": f"{HOST}/v1/trainings/{rental.id}",
                "cancel": f"{HOST}/v1/trainings/{rental.id}/cancel",
            },
        }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _error(status: int, detail: str) -> Reply:
    return Reply(status, {"title": "Failed", "detail": detail, "status": status})


_GONE = _error(404, "The requested resource could not be found.")
