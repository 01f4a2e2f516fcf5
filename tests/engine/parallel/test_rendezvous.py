"""Rendezvous: processes that do not belong together, or do not come together, say so in time.

Gloo uses the network interface that leads to the other processes, not the address of this machine's own name.
"""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpubloom.engine.parallel import RankEnv, join, rendezvous
from gpubloom.engine.parallel.process_layout import shared_out
from gpubloom.engine.parallel.rendezvous import set_gloo_interface
from gpubloom.plan import TrainConfig
from tests.errors import raises
from tests.ports import free_port

TWO = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
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


def environments(**more: str) -> tuple[dict[str, str], dict[str, str]]:
    port = str(free_port())
    return {**TWO, "RANK": "0", "MASTER_PORT": port}, {**TWO, "RANK": "1", "MASTER_PORT": port, **more}


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"WORLD_SIZE": "2"}, "RANK and MASTER_ADDR and MASTER_PORT"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({**TWO, "RANK": "2", "MASTER_PORT": "9"}, "RANK is 2, but WORLD_SIZE is 2"),
        (
            {**TWO, "RANK": "1", "MASTER_PORT": "9", "LOCAL_WORLD_SIZE": "3"},
            "LOCAL_WORLD_SIZE is 3, but WORLD_SIZE is 2",
        ),
        (
            {**TWO, "RANK": "1", "MASTER_PORT": "9", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "1"},
            "LOCAL_RANK is 1, but LOCAL_WORLD_SIZE is 1",
        ),
    ],
)
def test_variables_that_contradict_each_other_are_named(variables: dict[str, str], sentence: str) -> None:
    with raises(ValueError, code="invalid_rank_env", match=sentence):
        RankEnv.read(variables)


def test_a_number_of_processes_other_than_the_configs_is_refused() -> None:
    with raises(ValueError, code="world_size_mismatch", match="3 .* WORLD_SIZE is 2"):
        shared_out(TrainConfig(processes=3), 2)
    with raises(ValueError, code="world_size_mismatch", match="1 .* WORLD_SIZE is 2"):
        shared_out(TrainConfig(processes=1), 2)
    assert shared_out(TrainConfig(batch_size=6), 2).batch_size == 6


def test_processes_chosen_by_measuring_share_the_rows_of_a_batch() -> None:
    assert shared_out(TrainConfig(device="cpu", processes="auto", batch_size=6), 2).batch_size == 3
    with raises(ValueError, code="batch_not_divisible"):
        shared_out(TrainConfig(device="cpu", processes="auto", batch_size=6), 4)


@pytest.mark.long
def test_a_first_process_that_is_not_there_is_waited_for_so_long() -> None:
    _, second = environments()
    with raises(ValueError, code="rendezvous_timeout", match="Rank 1 .* 1 s"):
        join(second, on_gpu=False, seconds=1.0)


def resolve_nothing(monkeypatch: pytest.MonkeyPatch, number: int, reason: str) -> None:
    def fails(*asked: object, **more: object) -> None:
        raise socket.gaierror(number, reason)

    monkeypatch.setattr(socket, "getaddrinfo", fails)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_first_process_whose_host_does_not_exist_is_not_waited_for(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_nothing(monkeypatch, socket.EAI_NONAME, "Name or service not known")
    environment = {**environments()[rank], "MASTER_ADDR": "no-such-host.invalid"}
    # Were it waited for, this test would run out of time.
    with raises(ValueError, code="host_not_found", match="no-such-host.invalid"):
        join(environment, on_gpu=False, seconds=3600.0)


def test_a_name_server_that_is_away_is_waited_for_and_the_wait_is_announced(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    resolve_nothing(monkeypatch, socket.EAI_AGAIN, "Temporary failure in name resolution")
    _, second = environments(MASTER_ADDR="master.example")
    with raises(ValueError, code="rendezvous_timeout", match="Temporary failure"):
        join(second, on_gpu=False, seconds=0.5)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "Rank 1 waits up to 0.5 s for rank 0 at master.example" in told


def test_a_process_that_is_waited_for_on_another_machine_is_named_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    first, _ = environments()
    own_name = socket.gethostname()
    with raises(ValueError, code="rendezvous_timeout"):
        join({**first, "MASTER_ADDR": own_name}, on_gpu=False, seconds=0.5)
    assert f"Rank 0 waits up to 0.5 s for rank 1 at {own_name}" in capfd.readouterr().err


def test_a_process_that_never_joins_is_named() -> None:
    first, _ = environments()
    with raises(
        ValueError,
        code="rendezvous_timeout",
        match="Rank 1 .* 1 s",
    ):
        join({**first, "BLOOM_JOIN_SECONDS": "1"}, on_gpu=False)


def test_a_port_that_is_in_use_is_named() -> None:
    first, _ = environments()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", int(first["MASTER_PORT"])))
        taken.listen()
        with raises(ValueError, code="port_in_use", match=first["MASTER_PORT"]):
            join(first, on_gpu=False, seconds=2.0)


@pytest.mark.parametrize(
    ("versions", "run", "sentence"),
    [
        ({"gpubloom": "0.0.9", "torch": "2.13"}, "a", "gpubloom 0.0.9"),
        ({"gpubloom": "1", "torch": "2.0"}, "a", "torch 2.0"),
        ({"gpubloom": "1", "torch": "2.13"}, "b", "Rank|rank"),
    ],
)
def test_processes_of_different_software_or_runs_refuse_each_other_in_the_same_words(
    versions: dict[str, str], run: str, sentence: str
) -> None:
    both = environments()

    def meet(number: int) -> str:
        own = {"gpubloom": "1", "torch": "2.13"} if number == 0 else versions
        with raises(ValueError, code="ranks_differ", match=sentence) as refused:
            join(both[number], on_gpu=False, seconds=10.0, run="a" if number == 0 else run, versions=own)
        return str(refused.value)

    with ThreadPoolExecutor(2) as threads:
        assert len(set(threads.map(meet, (0, 1)))) == 1


def test_other_numbers_of_processes_are_seen_by_all() -> None:
    first, second = environments(WORLD_SIZE="3")
    with ThreadPoolExecutor(2) as threads:
        for result in [
            threads.submit(join, rank_env, on_gpu=False, seconds=10.0) for rank_env in (first, second)
        ]:
            with raises(ValueError, code="ranks_differ", match="WORLD_SIZE is 3 .* 2 "):
                result.result()


class _Route:
    """A socket on a machine whose way to every other host leaves by one address."""

    own_address = "10.1.2.3"

    def __init__(self, *arguments: object) -> None:
        pass

    def __enter__(self) -> "_Route":
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def connect(self, address: tuple[str, int]) -> None:
        if address[0].endswith(".invalid"):
            raise socket.gaierror("Name or service not known")

    def getsockname(self) -> tuple[str, int]:
        return self.own_address, 50_000


@pytest.mark.parametrize(
    ("host", "own_address", "interface"),
    [
        ("10.1.2.9", "10.1.2.3", "eth1"),
        # Processes on one machine are left to Gloo itself, although lo has the address.
        ("127.0.0.1", "127.0.0.1", None),
        # The address belongs to no interface, or the name to no host.
        ("10.1.2.9", "10.1.2.4", None),
        ("no-such-host.invalid", "10.1.2.3", None),
    ],
)
def test_gloo_uses_the_interface_of_the_route_to_the_other_processes(
    host: str, own_address: str, interface: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [("lo", "127.0.0.1"), ("eth0", "192.0.2.1"), ("eth1", "10.1.2.3")]
    monkeypatch.setattr(rendezvous, "_addresses", lambda: iter(addresses))
    monkeypatch.setattr(_Route, "own_address", own_address)
    monkeypatch.setattr(rendezvous.socket, "socket", _Route)
    # Set first, so that what the call below sets is undone as well.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    del os.environ["GLOO_SOCKET_IFNAME"]
    set_gloo_interface(host, 29500)
    assert os.environ.get("GLOO_SOCKET_IFNAME") == interface


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
    set_gloo_interface("10.0.0.1", 29500)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "chosen0"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    set_gloo_interface("10.0.0.1", 29500)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "found0"
