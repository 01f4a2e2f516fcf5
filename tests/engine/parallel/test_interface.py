"""Gloo is led to the network by which the other processes are reached, not to this machine's own name."""

import os
import subprocess
import sys

import pytest

from gpubloom.engine.parallel import rendezvous
from gpubloom.engine.parallel.rendezvous import interface_to, lead_gloo_to

# A network of its own with two ways out of the machine; what is sent there arrives nowhere.
_TWO_NETWORKS = """
for number in 1 2; do
    ip link add far$number type veth peer name near$number
    ip addr add 10.77.$number.1/24 dev far$number
    ip link set far$number up
    ip link set near$number up
done
exec "$@"
"""
_ASK = """
import runpy, sys
asked = runpy.run_path(sys.argv[1])
for address in sys.argv[2:]:
    print(address, asked["interface_to"](address, 29500))
"""


def test_processes_on_one_machine_are_left_to_gloo_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    lead_gloo_to("127.0.0.1", 29500)
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    assert interface_to("no-such-host.invalid", 29500) is None


def test_other_machines_are_reached_by_the_interface_that_has_the_way() -> None:
    inside = ["unshare", "--map-root-user", "--net", "sh", "-ec", _TWO_NETWORKS, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespaces here")
    addresses = ["10.77.1.9", "10.77.2.9", "10.99.0.9"]
    command = [*inside, sys.executable, "-c", _ASK, str(rendezvous.__file__), *addresses]
    asked = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(line.split() for line in asked.splitlines())
    assert found == {"10.77.1.9": "far1", "10.77.2.9": "far2", "10.99.0.9": "None"}


def test_an_interface_that_a_person_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "interface_to", lambda host, port: "found0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "chosen0")
    lead_gloo_to("10.0.0.1", 29500)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "chosen0"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    lead_gloo_to("10.0.0.1", 29500)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "found0"
