"""What holds for every test: nothing leaves this machine, and Ctrl-C is not ignored."""

import signal
import sys
from ipaddress import ip_address

import pytest

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

# A shell that starts the tests in the background lets them ignore Ctrl-C, and their children inherit that;
# with a handler here, children begin with the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that stay together on one worker go first, or one would sit alone with them at the end."""
    groups = {item: mark.args[0] for item in items if (mark := item.get_closest_marker("xdist_group"))}
    items.sort(key=lambda item: item not in groups)
    if config.getoption("loadgroup", False):
        for item, group in groups.items():
            # pytest-xdist 3.8 writes this to a field that pytest 9.2 no longer reads: no group held together.
            item._id = type(item.id).parse(f"{item.nodeid}@{group}")
            assert item.nodeid.endswith(f"@{group}")
