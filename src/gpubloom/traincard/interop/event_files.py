"""TensorBoard's event files, without TensorBoard: records with checksums around small protobuf messages.

A record is: length (8 bytes), its checksum, the message, its checksum (masked CRC-32C, in pure Python). A
file that ends within a record is what a killed writer leaves; all records before that are good. Of the
messages only scalars are known here; a field with another number is skipped, as protobuf wants it.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

_VALUE = 1
_LONGEST_RECORD = 1 << 28
# Data types of a tensor that hold one number, and how it lies in `tensor_content`.
_CONTENT_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}


def _make_tables() -> list[list[int]]:
    first = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        first.append(value)
    tables = [first]
    for _ in range(7):
        tables.append([first[value & 0xFF] ^ (value >> 8) for value in tables[-1]])
    return tables


_TABLES = _make_tables()


def crc32c(data: bytes) -> int:
    """Eight bytes at a time: a long run's records are tens of megabytes."""
    t0, t1, t2, t3, t4, t5, t6, t7 = _TABLES
    crc = 0xFFFFFFFF
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        low = crc ^ int.from_bytes(data[at : at + 4], "little")
        high = int.from_bytes(data[at + 4 : at + 8], "little")
        crc = (
            t7[low & 0xFF] ^ t6[(low >> 8) & 0xFF] ^ t5[(low >> 16) & 0xFF] ^ t4[low >> 24]
            ^ t3[high & 0xFF] ^ t2[(high >> 8) & 0xFF] ^ t1[(high >> 16) & 0xFF] ^ t0[high >> 24]
        )  # fmt: skip
    for byte in data[whole:]:
        crc = t0[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """A checksum of data that itself contains checksums is weak, so TensorBoard turns and shifts it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# Field numbers of Event, Summary, Summary.Value and TensorProto.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 1, 2, 3, 5
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _LONGS = 1, 4, 5, 6, 7, 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Scalars:
    """The scalars of one event."""

    time: float
    step: int
    values: Mapping[str, float]


def write_record(file: IO[bytes], message: bytes) -> None:
    length = struct.pack("<Q", len(message))
    file.write(length + struct.pack("<I", masked_crc32c(length)))
    file.write(message + struct.pack("<I", masked_crc32c(message)))


def write_version(file: IO[bytes], time: float) -> None:
    """The record that every event file begins with."""
    write_record(file, _double(_WALL_TIME, time) + _text(_FILE_VERSION, "brain.Event:2"))


def write_scalars(file: IO[bytes], scalars: Scalars) -> None:
    """One event; values lose digits there, TensorBoard keeps single precision."""
    summary = b"".join(
        _message(_VALUE, _text(_TAG, tag) + _float(_SIMPLE_VALUE, value))
        for tag, value in scalars.values.items()
    )
    step = _varint(_STEP << 3 | _VARINT) + _varint(scalars.step & 0xFFFFFFFFFFFFFFFF)
    write_record(file, _double(_WALL_TIME, scalars.time) + step + _message(_SUMMARY, summary))


def read_scalars(file: IO[bytes]) -> Iterator[Scalars]:
    """The scalars of a file, up to where it ends or is damaged."""
    for message in read_records(file):
        event = _fields(message)
        values: dict[str, float] = {}
        for summary in event.get(_SUMMARY, []):
            for value in _fields(summary).get(_VALUE, []):
                fields = _fields(value)
                number = _scalar(fields)
                if number is not None and _TAG in fields:
                    values[fields[_TAG][-1].decode("utf-8", "replace")] = number
        if values:
            time = struct.unpack("<d", event[_WALL_TIME][-1])[0] if _WALL_TIME in event else 0.0
            yield Scalars(time, _signed(event.get(_STEP, [0])[-1]), values)


def read_records(file: IO[bytes]) -> Iterator[bytes]:
    """Messages of a file. Ends at the first record that is cut off or does not match its checksum."""
    while len(head := file.read(12)) == 12:
        length, check = struct.unpack("<QI", head)
        if masked_crc32c(head[:8]) != check or length > _LONGEST_RECORD:
            return
        body = file.read(length + 4)
        if len(body) < length + 4 or masked_crc32c(body[:-4]) != struct.unpack("<I", body[-4:])[0]:
            return
        yield body[:-4]


def _scalar(fields: Mapping[int, list[Any]]) -> float | None:
    if _SIMPLE_VALUE in fields:
        return float(struct.unpack("<f", fields[_SIMPLE_VALUE][-1])[0])
    if _TENSOR not in fields:
        return None
    tensor = _fields(fields[_TENSOR][-1])
    kind = tensor.get(_DTYPE, [0])[-1]
    content = tensor.get(_CONTENT, [b""])[-1]
    if kind in _CONTENT_FORMATS and len(content) == struct.calcsize(_CONTENT_FORMATS[kind]):
        return float(struct.unpack(_CONTENT_FORMATS[kind], content)[0])
    for field, form in ((_FLOATS, "<f"), (_DOUBLES, "<d")):
        if (found := tensor.get(field)) and len(found[-1]) == struct.calcsize(form):
            return float(struct.unpack(form, found[-1])[0])
    for field in (_INTS, _LONGS):
        if found := tensor.get(field):
            # A number by itself, or a packed list: then only a list of one is a scalar.
            if isinstance(found[-1], int):
                return float(_signed(found[-1]))
            value, end = _read_varint(found[-1], 0)
            if end == len(found[-1]):
                return float(_signed(value))
    return None


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message by number; what is cut off at the end is left out."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, kind = key >> 3, key & 7
        value: Any
        if kind == _VARINT:
            value, at = _read_varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
            value, at = message[at : at + size], at + size
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            break
        if at > len(message):
            break
        found.setdefault(number, []).append(value)
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, len(data) + 1


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode("utf-8", "replace"))


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        # Larger than single precision holds: infinite there.
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(number << 3 | _FIXED32) + packed
