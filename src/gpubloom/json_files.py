"""JSON objects in files that people and models bring."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError

# The file may come from anybody, and is read as a whole.
_LARGEST_JSON_BYTES = 64 << 20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file a person named."""
    try:
        if path.stat().st_size > _LARGEST_JSON_BYTES:
            raise InputError("unreadable_file", f"{path} is too large for a JSON file.")
        # Editors on Windows put a byte order mark before the text.
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError("config_not_found", f"The file {path} does not exist. Check its name.") from None
    except OSError as problem:
        raise InputError(
            "unreadable_file", f"{path} cannot be read: {problem.strerror}. Name a JSON file."
        ) from None
    except UnicodeDecodeError:
        raise InputError("unreadable_file", f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except ValueError as problem:
        raise InputError("not_json", f"{path} is not JSON: {problem}.") from None
    except RecursionError:
        raise InputError("not_json", f"{path} is nested too deeply.") from None
    if not isinstance(value, dict):
        raise InputError("not_json_object", f"{path} must contain a JSON object.")
    return value


def read_optional_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that may be absent or damaged, and is empty then."""
    with suppress(InputError):
        return read_json(path)
    return {}
