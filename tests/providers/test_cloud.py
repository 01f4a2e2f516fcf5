"""What providers say of themselves, compared with what is asked of them."""

from typing import Any

import pytest

from gpubloom.providers.registry import provider_names, provider_spec
from tests.providers.launches import launch


@pytest.mark.parametrize("name", provider_names())
@pytest.mark.parametrize(
    ("asked", "capability"),
    [({"nodes": 2}, "several_nodes"), ({"gpus": 2}, "several_gpus"), ({"spot": True}, "spot")],
)
def test_a_launch_that_a_place_cannot_have_is_refused_with_its_reason(
    name: str, asked: dict[str, Any], capability: str
) -> None:
    capabilities = provider_spec(name).capabilities
    assert capabilities.why_not(launch()) is None
    assert capabilities.why_not(launch(**asked)) == getattr(capabilities, capability).reason
