"""A launch as a task of SkyPilot, the form in which its YAML files are written.

The address that a job starts from is no part of it: it is a secret of its own, handed over beside the task.
Also: the prices in SkyPilot's catalogues as rows of the price table.
"""

import math
import shlex
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Literal

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import Launch

# The names that SkyPilot's catalogues have for a GPU; without an entry here it is ours without blanks.
_SKY_NAMES = {
    "A100 40GB": ("A100",),
    "A100 80GB": ("A100-80GB", "A100-80GB-SXM"),
    "H100": ("H100", "H100-SXM"),
    "H100 PCIe": ("H100",),
    "H200": ("H200", "H200-SXM"),
    "A10": ("A10", "A10G"),
    "RTX A6000": ("RTXA6000", "A6000"),
    "RTX A4000": ("RTXA4000", "A4000"),
    "RTX 5090": ("RTX5090",),
    "RTX 4090": ("RTX4090",),
    "RTX 3090": ("RTX3090",),
    "RTX 3060": ("RTX3060",),
}
_OUR_NAMES = {sky: ours for ours, names in reversed(_SKY_NAMES.items()) for sky in names}
# Clouds of the price table that SkyPilot calls otherwise.
_CLOUDS = {"digitalocean": "do"}
# What an offer may say instead of a region; no cloud has one of that name.
_PARTS_OF_THE_WORLD = {"us", "eu", "asia"}

# What joins several machines. `ray`: the command runs on the first one, in a Ray cluster of all.
# `torchrun`: it runs on all of them, with the variables that torchrun reads.
Join = Literal["ray", "torchrun"]

_SETUP = """\
set -e
export PATH="$HOME/.local/bin:$PATH"
own="$HOME/bloom-python"
enough() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }
if [ ! -x "$own/bin/python" ]; then
  # The agent needs Python 3.11; many images have an older one.
  if ! { enough && python3 -m venv "$own"; }; then
    command -v uv >/dev/null || python3 -m pip install --quiet --user uv
    uv venv --quiet --seed --clear --python 3.12 "$own"
  fi
fi
"""

_PATH = 'export PATH="$HOME/bloom-python/bin:$PATH"\n'

_TORCHRUN = """\
export PET_NNODES="$SKYPILOT_NUM_NODES" PET_NODE_RANK="$SKYPILOT_NODE_RANK"
export PET_NPROC_PER_NODE="$SKYPILOT_NUM_GPUS_PER_NODE"
export PET_MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)" PET_MASTER_PORT=29500
"""

# SkyPilot has a Ray of its own on port 6380, and `ray stop` would end that one, too: ours is ended by its
# process, and those on the other machines end when they miss the first one.
_RAY = """\
first="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"
if [ "$SKYPILOT_NODE_RANK" != 0 ]; then
  for try in $(seq 60); do
    ray start --address="$first:6379" --num-gpus="$SKYPILOT_NUM_GPUS_PER_NODE" --block && exit 0
    sleep 10
  done
  echo "[bloom] This machine could not join the head node at $first within ten minutes." >&2
  exit 1
fi
ray start --head --port=6379 --num-gpus="$SKYPILOT_NUM_GPUS_PER_NODE" --disable-usage-stats --block &
head=$!
trap 'kill "$head"' EXIT
export RAY_ADDRESS="$first:6379"
python3 - <<'BLOOM_WAIT' || exit 1
import os, sys, time
import ray
wanted = int(os.environ["SKYPILOT_NUM_NODES"])
for _ in range(120):
    try:
        ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
        there = sum(node["Alive"] for node in ray.nodes())
        ray.shutdown()
    except Exception:
        there = 0
    if there >= wanted:
        sys.exit()
    time.sleep(5)
sys.exit(f"[bloom] Only {there} of {wanted} machines joined within ten minutes.")
BLOOM_WAIT
"""


def task_of(launch: Launch, join: Join = "ray") -> dict[str, Any]:
    """The task, as SkyPilot reads it from YAML or JSON."""
    resources: dict[str, Any] = {
        "accelerators": dict.fromkeys(sky_names(launch.gpu), launch.gpus),
        "disk_size": max(launch.disk_gb, 50),
        "use_spot": launch.spot,
    }
    if launch.region is not None:
        resources["infra"] = launch.region
    packages = [*launch.packages, *(["ray[default]"] if launch.nodes > 1 and join == "ray" else [])]
    setup = _SETUP
    if packages:
        setup += f'"$own/bin/python" -m pip install --quiet --no-input -- {shlex.join(packages)}\n'
    return {
        "name": launch.key,
        "num_nodes": launch.nodes,
        "resources": resources,
        "secrets": {"BLOOM_START": None},
        "setup": setup,
        "run": _PATH + _joined(launch, join) + _bounded(launch),
    }


def sky_names(gpu: str) -> tuple[str, ...]:
    return _SKY_NAMES.get(gpu, (gpu.replace(" ", ""),))


def our_name(sky_name: str) -> str:
    return _OUR_NAMES.get(sky_name, sky_name)


def region_of(provider: str, region: str | None = None) -> str | None:
    """What `Launch.region` is for SkyPilot, of an offer that is reached through it: a cloud, and perhaps a
    region of that cloud; None: whatever is cheapest."""
    if provider == "skypilot":
        return region
    cloud = _CLOUDS.get(provider, provider)
    return cloud if region is None or region in _PARTS_OF_THE_WORLD else f"{cloud}/{region}"


def _joined(launch: Launch, join: Join) -> str:
    if launch.nodes == 1:
        return ""
    return _RAY if join == "ray" else _TORCHRUN


def _bounded(launch: Launch) -> str:
    """SkyPilot has no longest time of its own."""
    if launch.longest_seconds is None:
        return f"{launch.command}\n"
    seconds = math.ceil(launch.longest_seconds)
    return f"timeout --signal=TERM --kill-after=300 {seconds} sh -c {shlex.quote(launch.command)}\n"


# Clouds of the price table that SkyPilot rents from; the region of SkyPilot's own rows names their cloud.
_KNOWN = {"vast": "vast", "do": "digitalocean"}
_SOURCE = "SkyPilot's catalogue of {cloud}"


def price_rows(found: Iterable[Mapping[str, Any]], today: date) -> list[PriceRow]:
    """The cheapest of each thing to buy."""
    cheapest: dict[object, PriceRow] = {}
    kinds: tuple[tuple[Literal["on_demand", "spot"], str], ...] = (
        ("on_demand", "hourly"),
        ("spot", "spot_hourly"),
    )
    for machine in found:
        for kind, field in kinds:
            row = _row(machine, kind, machine[field], today)
            if row is not None:
                # Regions differ in price, and SkyPilot takes the cheapest unless told otherwise.
                key = row.provider, (row.region or "").partition("/")[0], row.gpu, row.gpus, row.kind
                if key not in cheapest or row.hourly < cheapest[key].hourly:
                    cheapest[key] = row
    return list(cheapest.values())


def _row(
    machine: Mapping[str, Any], kind: Literal["on_demand", "spot"], hourly: float | None, today: date
) -> PriceRow | None:
    whole = float(machine["gpus"]).is_integer() and machine["gpus"] >= 1
    if not hourly or not whole or not machine["memory_gb"]:
        return None
    cloud = machine["cloud"].lower()
    known = _KNOWN.get(cloud)
    return PriceRow(
        provider=known or "skypilot",
        gpu=our_name(machine["gpu"]),
        gpus=int(machine["gpus"]),
        memory_gb=machine["memory_gb"],
        region=None if known else cloud,
        kind=kind,
        hourly=hourly,
        source=_SOURCE.format(cloud=machine["cloud"]),
        read_on=today,
    )
