"""Settings of a bucket that the library obstore makes host names of, besides the endpoint.

A region is part of Amazon's host names. A key of Google may name another server; the fields are meant for
emulators. Whoever may give such settings could reach the operator's network through them.
"""

import json
import re

from gpubloom.egress.policy import EgressRefused

_REGION = re.compile(r"[a-zA-Z0-9-]{1,60}")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,221}")


def check_bucket_name(name: str) -> None:
    """EgressRefused: no bucket can have this name."""
    if not _NAME.fullmatch(name):
        raise EgressRefused("The bucket name is not valid: letters, digits, dots, hyphens and underscores.")


def check_region(region: str) -> None:
    """EgressRefused: no region can have this name."""
    if not _REGION.fullmatch(region):
        raise EgressRefused("The region is not valid. It looks like eu-central-1 or auto.")


def check_google_key(key: str) -> None:
    """EgressRefused: the key of a service account leads to another server than Google's."""
    try:
        fields = json.loads(key)
    except (ValueError, RecursionError):
        # The library says what is wrong with it.
        return
    if isinstance(fields, dict) and fields.keys() & {"gcs_base_url", "disable_oauth"}:
        raise EgressRefused("The key names another server than Google's. Download a new key from Google.")
