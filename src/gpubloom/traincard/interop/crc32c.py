"""CRC-32C (Castagnoli) and the masked form that TensorBoard's records carry. Pure Python."""


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
