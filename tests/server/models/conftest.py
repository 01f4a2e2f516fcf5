"""A tiny model and a hub on the loopback address, as the hub's own tests have them."""

from tests.hub.conftest import hub, tiny_model  # noqa: F401 - pytest finds fixtures by name
