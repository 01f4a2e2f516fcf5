"""Secrets at rest: only the right key opens them, in the right context, unchanged."""

from pathlib import Path

import pytest

from gpubloom.server.security.secrets import CannotOpen, Vault


@pytest.mark.parametrize("text", ["", "x", "hf_" + "a" * 34, "日本 🌸" * 100, "z" * 10_000])
def test_what_was_sealed_opens_and_does_not_show(tmp_path: Path, text: str) -> None:
    vault = Vault.of(tmp_path)
    sealed = vault.seal(text, "hub_token:1")
    assert Vault.of(tmp_path).open(sealed, "hub_token:1") == text
    assert len(text) < 8 or text not in sealed
    assert sealed != vault.seal(text, "hub_token:1"), "the same text never looks the same"


def test_nothing_opens_in_another_context_with_another_key_or_changed(tmp_path: Path) -> None:
    vault = Vault.of(tmp_path / "one")
    sealed = vault.seal("a secret that is long enough", "hub_token:1")
    with pytest.raises(CannotOpen):
        vault.open(sealed, "hub_token:2")
    with pytest.raises(CannotOpen):
        Vault.of(tmp_path / "two").open(sealed, "hub_token:1")
    for index in range(2, len(sealed) - 2):
        other = "A" if sealed[index] != "A" else "B"
        with pytest.raises(CannotOpen):
            vault.open(sealed[:index] + other + sealed[index + 1 :], "hub_token:1")
    for broken in ("", "1:", "2:" + sealed[2:], "1:not base64!", "1:" + "QUJD"):
        with pytest.raises(CannotOpen):
            vault.open(broken, "hub_token:1")


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    sealed = Vault.of(tmp_path).seal("text", "here")
    key = tmp_path / "secret.key"
    assert key.stat().st_mode & 0o077 == 0
    assert len(key.read_bytes()) == 32
    assert Vault.of(tmp_path).open(sealed, "here") == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]
    key.write_bytes(b"short")
    with pytest.raises(CannotOpen, match="backup"):
        Vault.of(tmp_path)
