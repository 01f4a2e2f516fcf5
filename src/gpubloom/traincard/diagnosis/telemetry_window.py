"""The last minutes of telemetry, as the diagnoses ask for it."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpubloom.traincard.number_encoding import decode_number
from gpubloom.traincard.reading import Reading

WINDOW_SECONDS = 120.0
_FEWEST_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of one machine."""

    rank: int
    host: str | None
    index: int
    hosts: int

    @property
    def words(self) -> str:
        return f"GPU {self.index}" if self.hosts < 2 or not self.host else f"GPU {self.index} of {self.host}"


def values(
    reading: Reading, rank: int, name: str, seconds: float = WINDOW_SECONDS
) -> list[tuple[float, float]]:
    """Time and value of one reading of a rank's machine, oldest first, within the last `seconds` of it."""
    looks = reading.looks.get(rank)
    if not looks:
        return []
    newest = looks[-1][0]
    found = []
    for t, look in looks:
        value = decode_number(look.get(name))
        if newest - t <= seconds and isinstance(value, (int, float)):
            found.append((t, float(value)))
    return found


def mean(reading: Reading, rank: int, name: str, seconds: float = WINDOW_SECONDS) -> float | None:
    """The mean of the last minutes; None when there are too few values to say."""
    found = [value for _, value in values(reading, rank, name, seconds)]
    return sum(found) / len(found) if len(found) >= _FEWEST_LOOKS else None


def last(reading: Reading, rank: int, name: str) -> float | None:
    """The newest value; None when the last look did not have it."""
    looks = reading.looks.get(rank)
    value = decode_number(looks[-1][1].get(name)) if looks else None
    return float(value) if isinstance(value, (int, float)) else None


def fixed(reading: Reading, rank: int, name: str) -> float | None:
    """What a machine described once, such as a GPU's highest clock."""
    value = reading.facts.get(rank, {}).get(name)
    return float(value) if isinstance(value, (int, float)) else None


def gpus(reading: Reading) -> Iterator[Gpu]:
    """Every GPU that the last telemetry of its machine told about."""
    hosts = len({reading.ranks[rank].host for rank in reading.looks})
    for rank, looks in sorted(reading.looks.items()):
        indices = {name.split("/")[1] for name in looks[-1][1] if name.startswith("gpu/")}
        for index in sorted(int(word) for word in indices if word.isdecimal()):
            yield Gpu(rank, reading.ranks[rank].host, index, hosts)


def gpu_use(reading: Reading) -> float | None:
    """The mean utilization of all GPUs in the last minutes, from 0 to 1; None when none tells."""
    found = [mean(reading, gpu.rank, f"gpu/{gpu.index}/utilization") for gpu in gpus(reading)]
    known = [use for use in found if use is not None]
    return sum(known) / len(known) / 100 if known else None
