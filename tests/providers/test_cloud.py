"""What providers say of themselves, compared with what is asked of them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpubloom.providers.cloud import Fault
from gpubloom.providers.modal.connection import modal_fault
from gpubloom.providers.ray.provider import fault_of
from gpubloom.providers.registry import provider_names, provider_spec
from gpubloom.providers.skypilot.process import skypilot_fault
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


def _modal_fault(said: str, secrets: Sequence[str]) -> Fault:
    pytest.importorskip("modal")
    return modal_fault(RuntimeError(said), "start a sandbox", secrets)


@pytest.mark.parametrize(
    "fault",
    [
        _modal_fault,
        lambda said, secrets: fault_of(RuntimeError(said), "start the job", secrets),
        lambda said, secrets: skypilot_fault({"types": ["Problem"], "text": said}, secrets),
    ],
    ids=["modal", "ray", "skypilot"],
)
def test_no_fault_repeats_a_secret_of_several_lines(fault: Callable[[str, Sequence[str]], Fault]) -> None:
    key = "-----BEGIN KEY-----\nhidden\n-----END KEY-----"
    assert "hidden" not in str(fault(f"The variable {key} is too long.", [key]))
