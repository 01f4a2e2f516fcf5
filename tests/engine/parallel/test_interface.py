"""Gloo is led to the network by which the other processes are reached, not to this machine's own name."""

import os
import subprocess
import sys

import pytest

from gpubloom.engine.parallel import interface
from gpubloom.engine.parallel.interface import interface_to, lead_gloo_to

# In a process of its own: tests may connect to nobody but loopback, and choosing a way counts as connecting.
_ASK = """
import runpy, sys
asked = runpy.run_path(sys.argv[1])
for name, address in asked["_addresses"]():
    print(name, asked["interface_to"](address, 29500))
"""


def test_processes_on_one_machine_are_left_to_gloo_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    lead_gloo_to("127.0.0.1", 29500)
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    assert interface_to("no-such-host.invalid", 29500) is None


def test_other_machines_are_reached_by_the_interface_that_has_the_way() -> None:
    command = [sys.executable, "-c", _ASK, str(interface.__file__)]
    asked = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(line.split() for line in asked.splitlines())
    assert found.pop("lo") == "None"
    assert all(found[name] == name for name in found), found


def test_an_interface_that_a_person_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "interface_to", lambda host, port: "found0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "chosen0")
    lead_gloo_to("10.0.0.1", 29500)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "chosen0"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    lead_gloo_to("10.0.0.1", 29500)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "found0"
