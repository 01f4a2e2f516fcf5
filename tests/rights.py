"""Commands that may not read every file, also where root runs the tests."""

import os
import shutil

import pytest


def without_rights_of_root() -> list[str]:
    """What to put before a command, so that the permissions of files hold for it."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root reads everything, and setpriv is not installed")
    without = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"]
