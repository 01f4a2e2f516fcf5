"""What is asked for is done at once, and what it gave is told by `get`."""

import contextlib
import enum
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid
from types import SimpleNamespace

from sky import exceptions

FOLDER = pathlib.Path(os.environ["FAKE_SKY"])


class Status(enum.Enum):
    INIT = "INIT"
    UP = "UP"
    AUTOSTOPPING = "AUTOSTOPPING"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


def _asked(call, **arguments):
    with (FOLDER / "asked.jsonl").open("a") as file:
        file.write(json.dumps({"call": call, **arguments}) + "\n")
    trouble = FOLDER / "troubles" / call
    if not trouble.exists():
        return None
    kind = trouble.read_text()
    trouble.unlink()
    if kind == "unavailable":
        raise exceptions.ApiServerConnectionError("Could not connect to the API server.")
    if kind == "bad_credentials":
        raise exceptions.ApiServerAuthenticationError("Authentication is required.")
    if kind == "hang":
        time.sleep(3600)
    return kind


def _requested(name, value=None, problem=None, cluster=None, status=None):
    identifier = uuid.uuid4().hex
    record = {"name": name, "value": value, "problem": problem, "cluster": cluster}
    record["status"] = status or ("SUCCEEDED" if problem is None else "FAILED")
    (FOLDER / "requests" / identifier).write_text(json.dumps(record))
    return identifier


def get(request):
    record = json.loads((FOLDER / "requests" / request).read_text())
    if record["problem"] is not None:
        kind, arguments = record["problem"]
        raise getattr(exceptions, kind)(*arguments)
    value = record["value"]
    if record["name"] == "sky.status":
        return [dict(found, status=Status(found["status"])) for found in value]
    if record["name"] == "sky.job_status":
        return {1: None if value is None else Status(value)}
    if record["name"] == "list_accelerators":
        return {gpu: [SimpleNamespace(**row) for row in rows] for gpu, rows in value.items()}
    return value


def api_status(request_ids=None):
    names = request_ids or [path.name for path in (FOLDER / "requests").iterdir()]
    found = []
    for name in names:
        path = FOLDER / "requests" / name
        record = json.loads(path.read_text()) if path.exists() else None
        if record and (request_ids or record["status"] == "RUNNING"):
            found.append(
                SimpleNamespace(
                    request_id=name,
                    name=record["name"],
                    status=record["status"],
                    cluster_name=record["cluster"],
                )
            )
    return found


def api_cancel(request_ids, silent=False):
    for request in request_ids:
        path = FOLDER / "requests" / request
        path.write_text(json.dumps(dict(json.loads(path.read_text()), status="CANCELLED")))
    return _requested("sky.api_cancel")


def api_info():
    return {"user": {"name": "ada"}}


def enabled_clouds():
    _asked("enabled_clouds", token=bool(os.environ.get("SKYPILOT_SERVICE_ACCOUNT_TOKEN")))
    return _requested("enabled_clouds", json.loads((FOLDER / "clouds").read_text()))


def list_accelerators(clouds):
    _asked("list_accelerators", clouds=clouds)
    return _requested("list_accelerators", json.loads((FOLDER / "accelerators").read_text()))


def launch(task, cluster_name, down, idle_minutes_to_autostop):
    print("SkyPilot talks while it works.")
    kind = _asked("launch", task=task.config, name=cluster_name, down=down, idle=idle_minutes_to_autostop)
    wanted = "No cloud has it at the moment." if kind == "no_capacity" else "Your quota is used up."
    if kind in ("no_capacity", "quota"):
        return _requested(
            "sky.launch", problem=["ResourcesUnavailableError", [wanted, ["tried"]]], cluster=cluster_name
        )
    if kind == "nowhere":
        return _requested(
            "sky.launch", problem=["ResourcesUnavailableError", ["Catalog has none."]], cluster=cluster_name
        )
    if kind == "queued":
        return _requested("sky.launch", cluster=cluster_name, status="RUNNING")
    machine = FOLDER / "clusters" / cluster_name
    machine.mkdir()
    environment = {
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(machine),
        "BLOOM_JOB_FOLDER": str(machine / "job"),
        "RENTED_MACHINE": os.environ["FAKE_SKY_MARK"],
        **task.secrets,
    }
    (machine / "run.sh").write_text(task.config["run"])
    with (machine / "output").open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", 'bash run.sh; echo $? > code'],
            cwd=machine, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    (machine / "pid").write_text(str(process.pid))
    if kind == "cut":
        os._exit(1)
    return _requested("sky.launch", cluster=cluster_name)


def _there(name):
    if not (FOLDER / "clusters" / name).exists():
        raise exceptions.ClusterDoesNotExist(f"Cluster {name!r} does not exist.")
    return FOLDER / "clusters" / name


def status(cluster_names, refresh):
    _asked("status", names=cluster_names, refresh=refresh.value)
    found = []
    for machine in sorted((FOLDER / "clusters").iterdir()):
        if cluster_names is None or machine.name in cluster_names:
            unhealthy = (machine / "unhealthy").exists()
            shown = machine / "status"
            found.append(
                {
                    "name": machine.name,
                    "status": "INIT" if unhealthy else shown.read_text() if shown.exists() else "UP",
                    "init_kind": "unhealthy" if unhealthy else None,
                    "init_status_reason": "The node is gone." if unhealthy else None,
                    "launched_at": int(machine.stat().st_ctime),
                    "cloud": "RunPod",
                    "region": "US",
                    "handle": None,
                }
            )
    return _requested("sky.status", found)


def job_status(name):
    machine = _there(name)
    code = (machine / "code").read_text().strip() if (machine / "code").exists() else ""
    return _requested("sky.job_status", "RUNNING" if not code else "SUCCEEDED" if code == "0" else "FAILED")


def down(name):
    _asked("down", name=name)
    machine = _there(name)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int((machine / "pid").read_text()), signal.SIGKILL)
    machine.rename(FOLDER / "gone" / f"{name}-{uuid.uuid4().hex}")
    return _requested("sky.down")
