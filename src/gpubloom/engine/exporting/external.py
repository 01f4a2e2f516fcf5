"""llama.cpp's own converter, where the operator has one: for families that are not written here."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpubloom.engine.exporting.layouts import Precision

VARIABLE = "BLOOM_GGUF_CONVERTER"
_NAME = "convert_hf_to_gguf.py"
_OUT_TYPES: dict[Precision, str] = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
_LAST_WORDS = 400


def find_converter() -> Path | None:
    """The script that BLOOM_GGUF_CONVERTER names, or one on the PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise ValueError(f"{VARIABLE} names {named}, which is no file.")
        return Path(named)
    found = shutil.which(_NAME)
    return None if found is None else Path(found)


def convert(
    converter: Path, merged: Path, target: Path, precision: Precision, keep_going: Callable[[], None]
) -> None:
    """Runs the converter on a merged model folder; ValueError with its last words when it fails."""
    command = [sys.executable, str(converter), str(merged), "--outfile", str(target)]
    log = target.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--outtype", _OUT_TYPES[precision]],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                keep_going()
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    said = log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_WORDS:]
    log.unlink()
    if process.returncode != 0 or not target.is_file():
        raise ValueError(f"{converter} failed: {said or f'it ended with {process.returncode}'}")
