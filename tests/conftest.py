"""What holds for every test: nothing leaves this machine, Ctrl-C is not ignored, any order will do."""

import gc
import os
import random
import signal
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_NAMES = {"localhost", ""}


def _refuse_other_machines(event: str, arguments: tuple[object, ...]) -> None:
    if event != "socket.connect":
        return
    address = arguments[1]
    # A string is a socket file; only pairs name a machine.
    if not isinstance(address, tuple) or not isinstance(address[0], str):
        return
    host = address[0]
    try:
        local = host in _NAMES or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        local = False
    if not local:
        raise PermissionError(f"a test tried to reach {host}: fakes stand on the loopback address")


sys.addaudithook(_refuse_other_machines)

# What is imported and collected lives until the end. Searching it for garbage takes a quarter of the time
# that collecting all tests takes.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# Fakes stand on the loopback address, which nothing may reach by default.
os.environ["BLOOM_EGRESS_ALLOW"] = "127.0.0.0/8,::1,localhost"
# The line that a Reporter prints at its start would stand in what most tests compare.
os.environ["BLOOM_ANNOUNCE"] = "off"
# Its event comes at its own time, between the events that most tests compare.
os.environ["BLOOM_WHAT_RAN"] = "off"

# Two test processes share the cores; threads that wait for each other by spinning take them from the other.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell that starts the tests in the background lets them ignore Ctrl-C, and their children inherit that;
# with a handler here, children begin with the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """Commands of the server that run in the test's process close their files to others."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("GPU Bloom")
    group.addoption(
        "--order-seed", type=int, metavar="N", help="run modules, and the tests of each, in random order"
    )
    group.addoption(
        "--timeout-factor",
        type=float,
        default=1.0,
        metavar="X",
        help="let every test take so many times as long, on a busy machine",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis: examples have no time limit, and are the same every time unless the order is random."""
    # Before test modules are imported: their own settings are made from these.
    settings.register_profile(
        "suite",
        deadline=None,
        derandomize=config.getoption("order_seed") is None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    # Before pytest brings tests of one parameter of a shared fixture together.
    if (seed := config.getoption("order_seed")) is not None:
        _shuffle(items, seed)
    yield
    _allow_more_time(config, items)
    _keep_groups_together(config, items)


def _shuffle(items: list[pytest.Item], seed: int) -> None:
    """Modules in random order, and the tests of each; modules stay together: their fixtures are shared."""
    order = random.Random(seed)
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    tests = list(modules.values())
    order.shuffle(tests)
    for each in tests:
        order.shuffle(each)
    items[:] = [item for each in tests for item in each]


def _allow_more_time(config: pytest.Config, items: list[pytest.Item]) -> None:
    factor = config.getoption("timeout_factor")
    if factor == 1.0:
        return
    usual = float(config.getoption("timeout") or config.getini("timeout") or 0)
    for item in items:
        own = item.get_closest_marker("timeout")
        assert own is None or (len(own.args) == 1 and not own.kwargs), item.nodeid
        seconds = usual if own is None else own.args[0]
        item.add_marker(pytest.mark.timeout(seconds * factor), append=False)


def _keep_groups_together(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that stay together on one worker go first, or one would sit alone with them at the end."""
    groups = {item: mark.args[0] for item in items if (mark := item.get_closest_marker("xdist_group"))}
    items.sort(key=lambda item: item not in groups)
    if config.getoption("loadgroup", False):
        for item, group in groups.items():
            # pytest-xdist 3.8 writes this to a field that pytest 9.2 no longer reads: no group held together.
            item._id = type(item.id).parse(f"{item.nodeid}@{group}")
            assert item.nodeid.endswith(f"@{group}")
