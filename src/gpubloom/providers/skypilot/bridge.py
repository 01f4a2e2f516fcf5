"""Runs in SkyPilot's own Python, which knows nothing of GPU Bloom: a question per line, an answer per line.

    {"id": 1, "verb": "launch", "arguments": {…}}  →  {"id": 1, "result": …} or {"id": 1, "problem": {…}}

Secrets come in through the pipe, so no file and no process list has them. Whatever SkyPilot prints goes to
stderr: answers have the real stdout for themselves.
"""

# SkyPilot's Python may be older than ours.
from __future__ import annotations

import json
import math
import os
import queue
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def clouds() -> list[str]:
    """Those that may be used; starts a server on this machine if that is where SkyPilot's is."""
    from sky.client import sdk

    return list(sdk.get(sdk.enabled_clouds()))


def owner() -> str | None:
    from sky.client import sdk

    user = sdk.api_info()["user"]
    return None if user is None else str(user["name"])


def prices(clouds: list[str]) -> list[dict[str, Any]]:
    from sky.client import sdk

    found = sdk.get(sdk.list_accelerators(clouds=clouds))
    return [
        {
            "cloud": row.cloud,
            "region": row.region,
            "gpu": row.accelerator_name,
            "gpus": row.accelerator_count,
            "memory_gb": _number(row.device_memory),
            "hourly": _number(row.price),
            "spot_hourly": _number(row.spot_price),
        }
        for rows in found.values()
        for row in rows
    ]


def best(task: dict[str, Any], clouds: list[str]) -> dict[str, Any]:
    """What SkyPilot's optimizer takes for a task. Its server does not tell, so it is asked here, about the
    clouds that the server may use."""
    from unittest import mock

    from sky.optimizer import Optimizer
    from sky.utils import dag_utils, registry

    enabled = [registry.CLOUD_REGISTRY.from_str(cloud) for cloud in clouds]
    dag = dag_utils.convert_entrypoint_to_dag(_task(task))
    with mock.patch("sky.check.get_cached_enabled_clouds_or_refresh", return_value=enabled):
        Optimizer.optimize(dag, quiet=True)
    (planned,) = dag.tasks
    chosen = planned.best_resources
    ((gpu, gpus),) = chosen.accelerators.items()
    return {
        "cloud": str(chosen.cloud),
        "region": chosen.region,
        "gpu": gpu,
        "gpus": gpus,
        "nodes": planned.num_nodes,
        "instance_type": chosen.instance_type,
        "hourly": chosen.get_cost(3600) * planned.num_nodes,
    }


def launch(task: dict[str, Any], secrets: dict[str, str], name: str) -> str:
    """Ask for a cluster, which is terminated when the task has ended. The answer is a request's id."""
    from sky.client import sdk

    return str(
        sdk.launch(
            _task(task).update_secrets(secrets), cluster_name=name, down=True, idle_minutes_to_autostop=1
        )
    )


def request(request: str) -> dict[str, Any]:
    """What became of it: going, done, failed (and why), or unknown."""
    from sky.client import sdk

    found = sdk.api_status(request_ids=[request])
    if not found:
        return {"state": "unknown"}
    status = found[0].status
    if status in ("PENDING", "WAITING", "RUNNING"):
        return {"state": "going"}
    if status == "SUCCEEDED":
        return {"state": "done"}
    try:
        sdk.get(request)
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is the answer
        return {"state": "failed", "problem": _described(problem)}
    return {
        "state": "failed",
        "problem": {"types": ["RequestCancelled"], "text": "The launch was cancelled."},
    }


def launches() -> list[dict[str, str]]:
    """What has been asked for and is not there yet."""
    from sky.client import sdk

    going = [found for found in sdk.api_status() if found.name == "sky.launch" and found.cluster_name]
    return [{"name": found.cluster_name, "request": found.request_id} for found in going]


def drop(request: str) -> None:
    from sky.client import sdk

    sdk.get(sdk.api_cancel([request], silent=True))


def clusters(name: str | None = None) -> list[dict[str, Any]]:
    """One is looked at at its cloud, all are told as they were last seen."""
    from sky import StatusRefreshMode
    from sky.client import sdk

    mode = StatusRefreshMode.NONE if name is None else StatusRefreshMode.AUTO
    records = sdk.get(sdk.status(None if name is None else [name], refresh=mode))
    return [
        {
            "name": record["name"],
            "status": record["status"].value,
            "unhealthy": record["init_kind"] == "unhealthy",
            "detail": _COLOURS.sub("", record["init_status_reason"] or ""),
            "launched_at": record["launched_at"],
            "cloud": record["cloud"],
            "region": record["region"],
            "hourly": _hourly(record["handle"]),
        }
        for record in records
    ]


def job(name: str) -> str | None:
    from sky.client import sdk

    (status,) = sdk.get(sdk.job_status(name)).values()
    return None if status is None else str(status.value)


def down(name: str) -> str:
    from sky.client import sdk

    return str(sdk.down(name))


def validate(task: dict[str, Any]) -> dict[str, Any]:
    """What SkyPilot understood of a task; a problem where it refuses it."""
    understood = _task(task)
    return {
        "name": understood.name,
        "nodes": understood.num_nodes,
        "resources": sorted(str(resources) for resources in understood.resources),
        "secrets": sorted(understood.secrets),
    }


VERBS: dict[str, Callable[..., Any]] = {
    verb.__name__: verb
    for verb in (
        clouds,
        owner,
        prices,
        best,
        launch,
        request,
        launches,
        drop,
        clusters,
        job,
        down,
        validate,
    )
}


def _task(task: dict[str, Any]) -> Any:
    import sky

    # An empty secret is one that is handed over later; until then SkyPilot wants a word in its place.
    secrets = {name: value or "later" for name, value in task.get("secrets", {}).items()}
    return sky.Task.from_yaml_config({**task, "secrets": secrets})


def _hourly(handle: Any) -> float | None:
    if handle is None:
        return None
    try:
        return float(handle.launched_resources.get_cost(3600) * handle.launched_nodes)
    except Exception:  # noqa: BLE001 - a price list that cannot be read must not hide a machine that runs
        return None


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _described(problem: BaseException) -> dict[str, Any]:
    return {
        "types": [kind.__name__ for kind in type(problem).__mro__],
        "text": _COLOURS.sub("", str(problem)),
        # Whether any cloud was really asked, or none has such a machine at all.
        "tried": bool(getattr(problem, "failover_history", None)),
    }


def _listen(questions: queue.Queue[str]) -> None:
    for line in sys.stdin:
        questions.put(line)
    # Nobody is there any more to hear an answer, and SkyPilot may try for hours to find one.
    os._exit(0)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    while True:
        question = json.loads(questions.get())
        answer: dict[str, Any] = {"id": question["id"]}
        try:
            answer["result"] = VERBS[question["verb"]](**question["arguments"])
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever it is, it is the answer
            answer["problem"] = _described(problem)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
