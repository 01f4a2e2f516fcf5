"""The files of a job, uploaded once, and the one command that starts the job on any instance."""

import base64
import hashlib
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpubloom.agent import JobSpec
from gpubloom.agent.bundle import build_agent
from gpubloom.agent.remote.start import Start, StoredFile
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.mailbox import REACH_LIFE_SECONDS, Mailbox
from gpubloom.storage.run_store import RunStore
from gpubloom.traincard.sync.files import list_files

# There is a control.json from the beginning: without the right to list, a bucket answers for a missing object
# as for a forbidden one.
_NO_CONTROL = {"v": 1, "version": 0, "want": "run", "set": {}, "save": 0}

# Fetches the agent, checks it, and becomes it. Everything else is the agent's.
_START = """\
import base64, hashlib, http.client, json, os, pathlib, shutil, sys, time, urllib.error, urllib.request

START = json.loads({start!r})
AGENT = next(file for file in START["files"] if file["role"] == "agent")
python = sys.executable
if sys.version_info < (3, 11):
    newer = [shutil.which("python3.%d" % minor) for minor in (13, 12, 11)]
    python = next((path for path in newer if path), None)
if not python:
    sys.exit("[bloom-agent] The agent needs Python 3.11 or newer. Install it, for example as python3.11.")
folder = os.environ.get("BLOOM_JOB_FOLDER") or pathlib.Path.home() / "bloom-jobs" / START["job_id"]
folder = pathlib.Path(folder) / ("attempt-%d" % START["attempt"])
folder.mkdir(parents=True, exist_ok=True, mode=0o700)
agent = folder / "bloom-agent.pyz"
# The files of a mounted volume have no address of a host.
mounted = "file://" + os.environ.get("BLOOM_VOLUME", "") + "/"
address = AGENT["address"]
if address.startswith("volume:"):
    address = mounted + address[len("volume:"):]
for pause in (1, 2, 4, 8, 15, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 0):
    try:
        request = urllib.request.Request(address, headers={{"User-Agent": "gpubloom"}})
        content = urllib.request.urlopen(request, timeout=60).read()
        break
    except (OSError, http.client.HTTPException) as problem:
        code = getattr(problem, "code", 500)
        if code < 500 or not pause:
            sys.exit("[bloom-agent] Cannot download the agent: " + type(problem).__name__ + " " + str(code))
        time.sleep(pause)
if hashlib.sha256(content).hexdigest() != AGENT["sha256"]:
    sys.exit("[bloom-agent] The agent file is damaged: its SHA-256 differs from the stored file.")
agent.write_bytes(content)
(folder / "start.json").touch(mode=0o600)
(folder / "start.json").write_text(json.dumps(START))
# What stands behind the # never leaves this machine: it is the job's secrets.
secrets = os.environ.pop("BLOOM_START", "").partition("#")[2]
if secrets:
    (folder / "secrets.json").touch(mode=0o600)
    (folder / "secrets.json").write_bytes(base64.urlsafe_b64decode(secrets))
os.execv(python, [python, str(agent), "remote", str(folder)])
"""


@dataclass(frozen=True)
class Bundle:
    """What a job needs on an instance. `folder`: the run directory as it is here, a script's files
    included; the receiver continues it. `wheel`: gpubloom, for a job that imports it. `spec.run_dir` is set
    on the instance.

    `timing`: fields of `Start` that differ from its defaults.
    """

    spec: JobSpec
    folder: Path
    wheel: Path | None = None
    timing: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SentBundle:
    """`address` is all an instance needs; it goes into its environment as BLOOM_START. What prepares the
    instance reports to `report_address`, by PUT.

    `renew`: the same files under addresses that are signed again, for a launch that is tried again later.
    """

    address: str
    sha256: str
    report_address: str = ""
    renew: "Callable[[], SentBundle] | None" = field(default=None, repr=False, compare=False)

    def address_with(self, secrets: Mapping[str, str]) -> str:
        """The address with the values of the job's secrets in its fragment, which no request contains. So
        they are where the address is, and neither in the bucket nor in a log."""
        if not secrets:
            return self.address
        content = json.dumps(dict(secrets)).encode()
        return f"{self.address}#{base64.urlsafe_b64encode(content).decode()}"

    @property
    def command(self) -> str:
        """For a shell: starts the job, given BLOOM_START. It holds no address: process lists show none."""
        program = (
            "import hashlib,os,urllib.request as u;"
            "r=u.Request(os.environ['BLOOM_START'],headers={'User-Agent':'gpubloom'});"
            "s=u.urlopen(r,timeout=60).read();"
            f"assert hashlib.sha256(s).hexdigest()=='{self.sha256}','The start script was changed.';"
            "exec(s)"
        )
        return f"python3 -c {shlex.quote(program)}"


def send_bundle(store: RunStore, bundle: Bundle, *, mailbox: Mailbox | None = None) -> SentBundle:
    """Stores what is not stored yet and opens the mailbox. A second call for an attempt that runs only signs
    new addresses."""
    layout = JobLayout(bundle.spec.job_id, bundle.spec.attempt)
    mailbox = mailbox or Mailbox(store, layout)
    stored: list[tuple[str, str, str, bool]] = []
    with tempfile.TemporaryDirectory() as temporary:
        job = Path(temporary, "job.json")
        job.write_text(replace(bundle.spec, run_dir=Path("/")).to_json())
        sources = [("agent", "bloom-agent.pyz", build_agent(Path(temporary))), ("job", "job.json", job)]
        if bundle.wheel is not None:
            sources.append(("wheel", bundle.wheel.name, bundle.wheel))
        # What a mirror leaves out, locks and the agent's folder, means nothing on another machine either.
        sources += [("run", name, bundle.folder / name) for name in sorted(list_files(bundle.folder))]
        missing: dict[str, Path] = {}
        for role, name, path in sources:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if not store.has(layout.bundle_file(digest)):
                missing[layout.bundle_file(digest)] = path
            stored.append((role, name, digest, os.access(path, os.X_OK)))
        store.put_files(missing)
    if not store.has(layout.control):
        store.put(layout.control, json.dumps(_NO_CONTROL).encode())
    if not store.has(layout.mailbox):
        mailbox.write(1)

    def sign() -> SentBundle:
        addresses = store.addresses(
            "GET", [layout.bundle_file(digest) for _, _, digest, _ in stored], REACH_LIFE_SECONDS
        )
        [report] = store.addresses("PUT", [layout.start_report], REACH_LIFE_SECONDS)
        start = Start(
            job_id=bundle.spec.job_id,
            attempt=bundle.spec.attempt,
            mailbox=mailbox.address(),
            files=[
                StoredFile(role, name, digest, address, executable)
                for (role, name, digest, executable), address in zip(stored, addresses, strict=True)
            ],
            report=report,
            **bundle.timing,
        )
        text = _START.format(start=start.to_json()).encode()
        digest = hashlib.sha256(text).hexdigest()
        store.put(layout.start(digest), text)
        [address] = store.addresses("GET", [layout.start(digest)], REACH_LIFE_SECONDS)
        return SentBundle(address, digest, report, sign)

    return sign()
