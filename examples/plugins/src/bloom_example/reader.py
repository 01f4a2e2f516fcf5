"""A dataset reader: every section of an .ini file is a row, its keys are the columns."""

from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path


def read(path: Path) -> Iterator[dict[str, str]]:
    parser = ConfigParser(interpolation=None)
    with path.open(encoding="utf-8") as file:
        parser.read_file(file)
    for section in parser.sections():
        yield dict(parser[section])
