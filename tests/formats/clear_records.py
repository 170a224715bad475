"""Clear records of docs/formats/channel.md: a stream of bytes, cut into checked pieces."""
import struct

RECORD_BYTES_MAX = 524288


def make_table():
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        rows.append(byte)
    return rows


TABLE = make_table()


def crc32c(data):
    value = 0xffffffff
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 255]
    return value ^ 0xffffffff


def record(data):
    return struct.pack("<II", len(data), crc32c(data)) + data


def records(data):
    return b"".join(record(data[at:at + RECORD_BYTES_MAX])
                    for at in range(0, len(data), RECORD_BYTES_MAX))


class Stream:
    """Takes the bytes of a connection, one direction; gives those of the records that are whole."""

    def __init__(self):
        self.raw, self.plain, self.count = bytearray(), bytearray(), 0

    def feed(self, data):
        self.raw += data
        while len(self.raw) >= 8:
            length, checksum = struct.unpack_from("<II", self.raw)
            if not 1 <= length <= RECORD_BYTES_MAX:
                raise ValueError(f"a record of {length} bytes")
            if len(self.raw) < 8 + length:
                return
            piece = bytes(self.raw[8:8 + length])
            if crc32c(piece) != checksum:
                raise ValueError(f"record {self.count}: the checksum is wrong")
            self.plain += piece
            self.count += 1
            del self.raw[:8 + length]

    def take(self, count):
        """The next bytes, or None if fewer have come."""
        if len(self.plain) < count:
            return None
        piece = bytes(self.plain[:count])
        del self.plain[:count]
        return piece


class Connection:
    """A socket that speaks clear records both ways."""

    def __init__(self, connected):
        self.socket, self.stream = connected, Stream()

    def send(self, data):
        self.socket.sendall(records(data))

    def receive(self, count):
        """So many bytes; None at the end of the connection."""
        while (data := self.stream.take(count)) is None:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:  # it ended with bytes of ours unread
                return None
            if not more:
                return None
            self.stream.feed(more)
        return data
