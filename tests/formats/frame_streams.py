"""What ranks of two hosts say to each other, as docs/formats/frame.md has it."""
import clear_records
from layouts import Layout

CARD = Layout("frame.md", "peer-info")
HELLO = Layout("frame.md", "hello")
GOAWAY = Layout("frame.md", "goaway")
FRAME = Layout("frame.md", "frame")
MESSAGE = Layout("frame.md", "message")
DESCRIPTOR = Layout("shm.md", "descriptor")
CHUNK = 262144
SHORT = 4096
RTS, CTS, DATA, FIN = range(1, 5)


def plain(data):
    """The bytes of clear records, which must be whole."""
    stream = clear_records.Stream()
    stream.feed(data)
    if stream.raw:
        raise ValueError(f"{len(stream.raw)} bytes of a record that is not whole")
    return bytes(stream.plain)


class Connection:
    def __init__(self, conversation):
        said = plain(conversation.said)
        self.hello = HELLO.decode(said[:HELLO.bytes])
        self.data = said[HELLO.bytes:]
        self.answered = plain(conversation.answered)


def join(connections):
    """{(sender, receiver, channel): bytes}, the streams of each put together."""
    found = {}
    for connection in connections:
        hello = connection.hello
        key = (hello["rank of the sender"], hello["rank of the receiver"], hello["channel"])
        streams = found.setdefault(key, [b""] * hello["streams"])
        streams[hello["stream"]] = connection.data
    return {key: interleave(streams) for key, streams in found.items()}


def interleave(streams):
    whole, rest, turn = bytearray(), [memoryview(stream) for stream in streams], 0
    while len(rest[turn]):
        whole += rest[turn][:CHUNK]
        rest[turn] = rest[turn][CHUNK:]
        turn = (turn + 1) % len(rest)
    if any(len(left) for left in rest):
        raise ValueError("a stream goes on where another has ended")
    return bytes(whole)


def cut(data, layout, follows):
    """[(fields, bytes behind them)]; follows(fields) says how many these are."""
    found, at = [], 0
    while at < len(data):
        fields = layout.decode(data[at:at + layout.bytes])
        if fields["magic"] != layout.magic:
            raise ValueError(f"byte {at}: magic {fields['magic']:#x}")
        at += layout.bytes
        count = follows(fields)
        if at + count > len(data):
            raise ValueError(f"byte {at}: {count} bytes do not follow")
        found.append((fields, data[at:at + count]))
        at += count
    return found


def frames(data):
    return cut(data, FRAME, lambda fields: fields["bytes"])


def messages(data):
    def follows(fields):
        brings = fields["kind"] == DATA or fields["kind"] == RTS and fields["bytes"] <= SHORT
        return fields["bytes"] if brings else 0
    return cut(data, MESSAGE, follows)
