"""Addresses from which the checkpoints of a card can be downloaded.

A path in S3 becomes a signed address, made with the credentials of the step, for as long as S3 allows; of a
folder the file with the weights is linked. A file on this machine becomes a file address, which a browser
follows from a page that was opened from disk. What cannot be reached gets no link.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 7 * 24 * 3600
_NEWEST = 50
_LISTED = 200
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


class CheckpointLinks:
    """Signs each path once; a failure costs the link and is not tried again."""

    def __init__(self) -> None:
        self._signed: dict[str, str | None] = {}
        self._client: Any = None

    def add_to(self, content: dict[str, Any], run_dir: Path) -> None:
        """Gives the newest checkpoints of a card their addresses."""
        for item in content["checkpoints"]["items"][-_NEWEST:]:
            if item.get("removed") or item.get("link"):
                continue
            if (link := self._link(str(item["path"]), run_dir)) is not None:
                item["link"] = link

    def _link(self, path: str, run_dir: Path) -> str | None:
        if path.startswith("s3://"):
            if path not in self._signed:
                try:
                    self._signed[path] = self._sign(path)
                except Exception:  # noqa: BLE001 - no library, no right, no network: the path is shown without a link
                    self._signed[path] = None
            return self._signed[path]
        if "://" in path:
            return None
        file = _weights_in(run_dir / path)
        return file.absolute().as_uri() if file is not None else None

    def _sign(self, path: str) -> str | None:
        bucket, key = urlsplit(path).netloc, urlsplit(path).path.lstrip("/")
        client = self._s3()
        found = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=_LISTED).get("Contents", [])
        names = [
            one["Key"] for one in found if one["Key"] == key or one["Key"].startswith(f"{key.rstrip('/')}/")
        ]
        name = key if key in names else _first_weights(names)
        if name is None:
            return None
        signed: str = client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": name}, ExpiresIn=_SECONDS
        )
        return signed

    def _s3(self) -> Any:
        if self._client is None:
            import boto3  # type: ignore[import-untyped]
            from botocore.config import Config  # type: ignore[import-untyped]

            # Seconds, not minutes: a card must not wait for a network that is not there.
            config = Config(
                connect_timeout=3, read_timeout=5, retries={"max_attempts": 1}, signature_version="s3v4"
            )
            endpoint = os.environ.get("METAFLOW_S3_ENDPOINT_URL") or None
            self._client = boto3.client("s3", endpoint_url=endpoint, config=config)
        return self._client


def _first_weights(names: list[str]) -> str | None:
    return next(
        (name for suffix in _WEIGHTS for name in names if name.endswith(suffix)), names[0] if names else None
    )


def _weights_in(path: Path) -> Path | None:
    if path.is_file():
        return path
    if not path.is_dir():
        return None
    name = _first_weights(sorted(file.name for file in path.iterdir() if file.is_file()))
    return None if name is None else path / name
