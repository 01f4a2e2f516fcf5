"""A snapshot with something in every field, as docs/traincard.md describes it."""

import math
from typing import Any

START = 1_763_172_532.0
HOSTILE = '</script><script>document.title = "owned"</script><img src=x onerror=alert(1)>'

_GROUPS = {"loss": "loss", "learning_rate": "learning_rate", "grad_norm": "gradient_norm"}


def example_snapshot(
    *, status: str = "running", steps: int = 4_000, points: int = 500, gpus: int = 2
) -> dict[str, Any]:
    """A run of two attempts on one machine; `status="failed"` adds what a failure leaves behind."""
    metrics = [
        metric("train/loss", steps, points, _loss, restart_at=steps // 2),
        metric("eval/loss", steps, 12, lambda x: _loss(x) + 0.2),
        metric("train/learning_rate", steps, points, lambda x: 1e-3 * (1 - x)),
        metric("train/grad_norm", steps, points, lambda x: 1 + abs(math.sin(x * 90))),
        metric("train/tokens_per_second", steps, points, lambda x: 5300 + 40 * math.sin(x * 70)),
        metric("train/samples_per_second", steps, points, lambda x: 12 + math.sin(x * 50) / 5),
        metric("eval/accuracy", steps, 12, lambda x: 0.3 + x / 3),
        metric("train/router_entropy{expert=3}", steps, points, lambda x: 2 - x),
    ]
    return {
        "v": 1,
        "made_at": START + 3_600,
        "name": "qwen-finetune",
        "status": _status(status, steps),
        "findings": [
            {
                "kind": "degraded",
                "severity": "critical",
                "sentence": "Rank 1 is silent: nothing heard for 42 s.",
                "evidence": {"rank": 1},
                "since": START + 3_000,
            },
            {
                "kind": "throttled",
                "severity": "warning",
                "sentence": "GPU 0 is at 87 °C and has lowered its clock.",
                "evidence": {"gpu": 0},
                "since": None,
            },
        ],
        "attempts": [],
        "discontinuities": [
            {
                "attempt": 2,
                "step": steps // 2,
                "previous_step": steps // 2 + 100,
                "repeated_steps": 100,
                "reason": "preempted",
                "t": START + 1_800,
            }
        ],
        "metrics": metrics,
        "metrics_left_out": 0,
        "system": _system(gpus, points),
        "ranks": [_rank(0, "alive"), _rank(1, "silent")],
        "rank_variance": [
            {
                "name": "train/step_seconds",
                "mean": 0.61,
                "lowest": {"rank": 0, "value": 0.6},
                "highest": {"rank": 1, "value": 0.62},
                "spread": 0.033,
            }
        ],
        "checkpoints": _checkpoints(),
        "logs": {"lines": _lines(), "total": 5_000, "errors": 2},
        "failure": _failure(steps) if status == "failed" else None,
    }


def metric(name: str, steps: int, points: int, value: Any, restart_at: int | None = None) -> dict[str, Any]:
    """A series as the snapshot holds it; with `restart_at`, a second attempt takes over there."""
    fractions = [i / max(1, points - 1) for i in range(points)]
    lines = []
    if restart_at is None:
        lines.append(_line(1, [int(fraction * steps) for fraction in fractions], steps, value))
    else:
        # Both attempts did these steps: the first one's stay visible.
        lines.append(
            _line(
                1, [int(p * steps) for p in fractions if p * steps <= restart_at + steps / 40], steps, value
            )
        )
        lines.append(_line(2, [int(p * steps) for p in fractions if p * steps >= restart_at], steps, value))
    last = {"step": lines[-1]["x"][-1], "value": lines[-1]["y"][-1]}
    base = name.partition("/")[2]
    return {
        "name": name,
        "title": base,
        "group": _GROUPS.get(base, "other"),
        "last": last,
        "best": last,
        "lines": lines,
    }


def _line(attempt: int, x: list[int], steps: int, value: Any) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "rank": 0,
        "x": x,
        "y": [float(f"{value(step / steps):.7g}") for step in x],
        "t": [START + step / 2 for step in x],
    }


def _loss(fraction: float) -> float:
    return 1.2 + 2 * math.exp(-6 * fraction) + 0.05 * math.sin(fraction * 700)


def _status(status: str, steps: int) -> dict[str, Any]:
    return {
        "status": status,
        "phase": "train",
        "step": steps,
        "total_steps": steps * 2,
        "epoch": 1.5,
        "epochs": 3,
        "started_at": START,
        "updated_at": START + 3_600,
        "elapsed_seconds": 3_600.0,
        "eta_seconds": 3_700.0 if status == "running" else None,
        "global_batch_size": 32,
        "world_size": 2,
        "attempt": 2,
        "restart_count": 1,
        "resumed_from_step": steps // 2,
        "dropped": {},
        "damaged_lines": 0,
        "facts": {"global_batch_size": 32, "model": "Qwen2.5-0.5B", "parameters": 494_032_768},
    }


def _system(gpus: int, points: int) -> dict[str, Any]:
    times = [round(START + i * 3600 / points, 1) for i in range(points)]
    last: dict[str, float] = {
        "cpu/utilization": 41.0,
        "ram/used": 101e9,
        "ram/total": 128e9,
        "process/ram": 40e9,
        "disk/used": 310e9,
        "disk/total": 500e9,
        "disk/read": 3e6,
        "disk/written": 120e6,
    }
    for gpu in range(gpus):
        values = {"utilization": 97.0, "memory_used": 71e9, "memory_total": 80e9, "temperature": 61.0 + gpu}
        last |= {f"gpu/{gpu}/{name}": value for name, value in {**values, "power": 642.0}.items()}
    per_gpu = (
        ("utilization", "GPU utilization", "%", 95.0),
        ("memory_used", "GPU memory", "bytes", 71e9),
        ("temperature", "GPU temperature", "°C", 60.0),
        ("power", "GPU power", "W", 640.0),
    )
    series = [
        {
            "name": f"gpu/{name}",
            "title": title,
            "unit": unit,
            "lines": [
                {
                    "host": "node-1",
                    "gpu": gpu,
                    "x": times,
                    "y": [round(level - gpu + math.sin(t), 4) for t in times],
                }
                for gpu in range(gpus)
            ],
            "aggregate": {"how": "mean", "x": times, "y": [level for _ in times]},
        }
        for name, title, unit, level in per_gpu
    ]
    for name, title, unit, level in (
        ("cpu/utilization", "CPU", "%", 41.0),
        ("ram/used", "Memory", "bytes", 101e9),
        ("disk/written", "Disk writing", "bytes/s", 120e6),
    ):
        series.append(
            {
                "name": name,
                "title": title,
                "unit": unit,
                "lines": [{"host": "node-1", "gpu": None, "x": times, "y": [level for _ in times]}],
                "aggregate": None,
            }
        )
    node = {
        "host": "node-1",
        "ranks": [0, 1],
        "gpus": [{"index": gpu, "name": "NVIDIA H200"} for gpu in range(gpus)],
        "last": last,
    }
    return {"nodes": [node], "series": series}


def _rank(rank: int, state: str) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": "node-1",
        "pid": 4711 + rank,
        "attempt": 2,
        "state": state,
        "since": START,
        "last_seen": START + 3_590,
        "expect_next_in": 60.0,
        "step": 4_000,
        "step_seconds": 0.61,
        "status": "running",
        "error": None,
    }


def _checkpoints() -> dict[str, Any]:
    items = [
        {
            "step": step,
            "path": f"checkpoints/step-{step:08d}",
            "size": 988_000_000,
            "t": START + step,
            "attempt": 1,
            "metrics": {"eval/loss": 1.9 - step / 5_000},
            "metadata": None,
            "best": step == 2_000,
            "removed": step == 500,
        }
        for step in (500, 1_000, 2_000)
    ]
    return {"best": "checkpoints/step-00002000", "items": items}


def _lines() -> list[dict[str, Any]]:
    texts = [(f"step {step} loss {2 - step / 900:.3f}", "info") for step in range(300)]
    texts += [
        ("the tokenizer has no padding token; the end token is used", "warning"),
        (HOSTILE, "info"),
        (
            "Traceback (most recent call last):\n"
            '  File "train.py", line 12, in <module>\n    step(batch)\n'
            "ValueError: the needle in the haystack",
            "error",
        ),
        ("error: the loader was slow", "error"),
    ]
    return [
        {"t": START + index, "rank": 0, "attempt": 2, "level": level, "line": text}
        for index, (text, level) in enumerate(texts)
    ]


def _failure(steps: int) -> dict[str, Any]:
    return {
        "status": "failed",
        "message": "CUDA out of memory. Tried to allocate 2.00 GiB",
        "type": "torch.OutOfMemoryError",
        "traceback": 'Traceback (most recent call last):\n  File "train.py", line 3, in step\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        "cause": "gpu_out_of_memory",
        "advice": "The GPU ran out of memory. Use a smaller batch size or max sequence length.",
        "rank": 1,
        "attempt": 2,
        "t": START + 3_600,
        "step": steps,
        "last_metrics": {
            "train/loss": {"step": steps, "value": 1.284},
            "eval/loss": {"step": 3_900, "value": None},
        },
        "last_system": {"gpu/0/memory_used": 79.6e9, "cpu/utilization": 41.0},
    }
