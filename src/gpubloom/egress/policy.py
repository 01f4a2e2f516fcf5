"""Which addresses outgoing connections may reach.

A member may name an address, such as that of a Ray cluster. Without this policy the server would open the
doors of its own network for them: services on loopback, neighbours, a cloud's metadata service. So a name is
resolved first, every address that it has must be public, and the connection goes to an address that was
checked: a name that resolves differently the second time (DNS rebinding) gains nothing.

The operator allows more with BLOOM_EGRESS_ALLOW: host names, addresses or networks, separated by commas.
Addresses that the operator gave elsewhere, such as HF_ENDPOINT, are passed as `listed`.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from gpubloom.errors import InputError

VARIABLE = "BLOOM_EGRESS_ALLOW"
SCHEMES = ("http", "https")
_PORTS = {"http": 80, "https": 443}
# IPv6 addresses that stand for an IPv4 address: NAT64 and 6to4. IPv4-mapped ones are unwrapped.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("2002::/16"))

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class EgressRefused(InputError):
    """The policy does not allow a connection to this address."""

    def __init__(self, sentence: str) -> None:
        super().__init__("egress_refused", sentence)


def read_allowed(words: str) -> tuple[frozenset[str], tuple[Network, ...]]:
    """The hosts and the networks of BLOOM_EGRESS_ALLOW."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for word in (part.strip().strip("[]").lower() for part in words.split(",")):
        if not word:
            continue
        try:
            networks.append(ip_network(word, strict=False))
        except ValueError:
            if "/" in word or ":" in word or any(character.isspace() for character in word):
                raise InputError(
                    "invalid_egress",
                    f"{word!r} is neither a host name nor an address nor a network such as 10.0.0.0/8.",
                ) from None
            hosts.add(word.rstrip("."))
    return frozenset(hosts), tuple(networks)


@dataclass(frozen=True)
class Policy:
    """What is allowed besides public addresses."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of_operator(cls, *listed: str, environment: Mapping[str, str] = os.environ) -> "Policy":
        """BLOOM_EGRESS_ALLOW, and the hosts of addresses that the operator gave in other settings."""
        hosts, networks = read_allowed(environment.get(VARIABLE, ""))
        more = {host.lower() for each in listed if each and (host := urlsplit(each).hostname)}
        return cls(hosts | more, networks)

    def check_address(self, address: str) -> tuple[str, int]:
        """Host and port of an address with an allowed scheme; a literal IP address is checked already."""
        try:
            parts = urlsplit(address)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise EgressRefused("This is not a valid address.") from None
        if parts.scheme.lower() not in SCHEMES or not host:
            allowed = " or ".join(f"{scheme}://" for scheme in SCHEMES)
            raise EgressRefused(f"This address cannot be used: it must start with {allowed} and name a host.")
        self.check_host(host)
        return host, port or _PORTS.get(parts.scheme.lower(), 0)

    def check_host(self, host: str) -> None:
        """Refuses literal IP addresses that are not allowed; names are checked when they are resolved."""
        if self.is_listed(host):
            return
        try:
            literal = ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return
        self._check(literal, host)

    def resolve(self, host: str, port: int) -> list[str]:
        """The addresses to connect to, all of them allowed."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not self.is_listed(host):
            for address in addresses:
                self._check(ip_address(address.partition("%")[0]), host)
        return addresses

    def create_connection(
        self, address: tuple[str, int], timeout: Any = None, source_address: Any = None
    ) -> socket.socket:
        """As `socket.create_connection`, to addresses that were checked."""
        problem: OSError | None = None
        for resolved in self.resolve(*address):
            try:
                return socket.create_connection((resolved, address[1]), timeout, source_address)
            except OSError as failure:
                problem = failure
        raise problem or OSError(f"{address[0]} has no address")

    def is_listed(self, host: str) -> bool:
        """Whether the operator named this host."""
        return host.lower().rstrip(".") in self.hosts

    def is_private(self, host: str) -> bool:
        """Whether a host is one that the operator allowed by name, or an address outside the Internet."""
        if self.is_listed(host):
            return True
        try:
            return not is_public(ip_address(host.strip("[]").partition("%")[0]))
        except ValueError:
            return False

    def _check(self, address: Address, host: str) -> None:
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address.version == network.version and address in network for network in self.networks):
            return
        if not is_public(address):
            raise EgressRefused(
                f"{host} has an address in a private or reserved network. Ask the operator of this server to "
                f"allow it with {VARIABLE}."
            )


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public Internet."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.is_site_local or any(address in network for network in _TRANSLATED):
            return False
    return address.is_global and not (
        address.is_multicast
        or address.is_loopback
        or address.is_link_local
        or address.is_private
        or address.is_reserved
        or address.is_unspecified
    )
