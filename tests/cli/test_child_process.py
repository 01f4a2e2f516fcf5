"""Threads of a training sleep on a busy machine and spin on a quiet one, unless a person said otherwise."""

import os

import pytest

from gpubloom.cli.child_process import thread_waiting


@pytest.mark.parametrize(
    ("load", "environment", "added"),
    [
        (0.1, {}, {}),
        (1000.0, {}, {"OMP_WAIT_POLICY": "PASSIVE"}),
        (1000.0, {"OMP_WAIT_POLICY": "ACTIVE"}, {}),
        (1000.0, {"GOMP_SPINCOUNT": "5"}, {}),
    ],
)
def test_waiting_depends_on_the_load(
    monkeypatch: pytest.MonkeyPatch, load: float, environment: dict[str, str], added: dict[str, str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    assert thread_waiting(environment) == added
