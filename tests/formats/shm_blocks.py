"""The heaps of a host's ranks, as docs/formats/shm.md has them, and a rank that joins them."""
import array
import ctypes
import fcntl
import mmap
import os
import platform
import socket
import struct

from layouts import Layout

RANK_BLOCK = Layout("shm.md", "rank-block")
DATAGRAM = Layout("shm.md", "datagram")
SLOT = Layout("shm.md", "slot")
DESCRIPTOR = Layout("shm.md", "descriptor")
RECORD = Layout("shm.md", "record")
RING = Layout("shm.md", "ring")
MAGIC = RANK_BLOCK.magic
VERSION = int(RANK_BLOCK.fields[1].what.removeprefix("version "))
SLOTS, RECORDS = 8, 64
POSTED, RUNNING, DONE, FAILED = range(1, 5)
CALL, SEND, RECEIVE = range(3)
HELLO, SEGMENT, BYE, WAKE = range(1, 5)
FUTEX = {"x86_64": 202, "aarch64": 98}


def split(place):
    """(segment, offset)."""
    return (place >> 48) - 1, place & (1 << 48) - 1


class Heap:
    def __init__(self, segments):
        self.maps = []
        for file in segments:
            with file:
                self.maps.append(mmap.mmap(file.fileno(), 0))

    def read(self, place, count):
        segment, offset = split(place)
        if offset % 128 or not 0 <= segment < len(self.maps):
            raise ValueError(f"{place:#x} is no place of a block")
        if offset + count > len(self.maps[segment]):
            raise ValueError(f"{place:#x}: {count} bytes reach past the segment")
        return self.maps[segment][offset:offset + count]


class Slot:
    def __init__(self, data):
        fields = SLOT.decode(data)
        self.sequence, self.fingerprint = fields["sequence"], fields["fingerprint"]
        self.flags, self.zero = fields["flags"], fields["0"]
        self.head, self.extra = fields["head"], fields["extra"]
        call = DESCRIPTOR.decode(fields[64])
        self.count, self.tag, self.group = call["count"], call["tag"], call["group"]
        self.leaf_map, self.epoch, self.leaves = call["leaf map"], call["epoch"], call["leaves"]
        self.call, self.dtype, self.out_dtype = (call[word] for word in
                                                 ("collective", "dtype$", "dtype of the output"))
        self.reduction, self.root = call["reduction"], call["root"]
        self.custom = (call["width"], call["name"])

    def payload(self, count):
        return (self.head if count <= len(self.head) else self.extra)[:count]


class Record:
    def __init__(self, data):
        fields = RECORD.decode(data)
        self.stamp, self.sequence, self.count, self.tag, self.site = (
            fields[word] for word in ("stamp", "sequence", "count", "tag", "site"))
        self.peer, self.reduction, self.dtype, self.call, self.kind = (
            fields.part("root or peer", word) for word in
            ("peer", "reduction", "dtype", "collective", "0 call"))
        self.state = fields.part(r"\(round", "started")
        self.round, self.zero = fields.part(r"\(round", "(round + 1)") - 1, fields["0"]


class FlagBlock:
    def __init__(self, data, size):
        fields = Layout("shm.md", "flag-block", size).decode(data)
        slots, records = fields["call slots"], fields["records"]
        self.slots = [Slot(slots[at:]) for at in range(0, len(slots), SLOT.bytes)]
        self.done, self.phase, self.inside = fields["done"], fields["phase"], fields["inside"]
        self.records_ever = fields["how many records"]
        self.records = [Record(records[at:]) for at in range(0, len(records), RECORD.bytes)]
        self.where = Record(fields["where: a record"])
        self.where_group = fields["where: the group's name"].split(b"\0")[0]
        self.rings, self.quiet = fields["the places of the rings"], fields["quiet"]
        self.failure, self.left, self.blamed = (fields.part("failure", word) for word in
                                                ("status", "left", "blamed"))

    def slot(self, sequence):
        return self.slots[sequence % SLOTS]

    def record(self, number):
        return self.records[number % RECORDS]

    def failed(self):
        """(status, whether it has left, blamed rank or -1)."""
        return self.failure - (self.failure >> 31 << 32), self.left, self.blamed - 1


class Peer:
    """What a rank of a job shows: its heap, and its flag block in the world."""

    def __init__(self, segments, place, size):
        self.heap, self.place, self.size = Heap(segments), place, size

    def flags(self):
        count = Layout("shm.md", "flag-block", self.size).bytes
        self.data = self.heap.read(self.place, count)
        return FlagBlock(self.data, self.size)


def peers_of(job, size=2):
    """The peers of a job whose ranks have said something."""
    found = []
    for number, rank in job.ranks.items():
        _, place = job.store.wait_for(b"/flags/%d" % number)
        found.append(Peer(rank.heap(), int.from_bytes(place, "little"), size))
    return found



def make_segment(size):
    """A segment as the document wants it: (descriptor, map)."""
    made = os.memfd_create("segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(made, size)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return made, mmap.mmap(made, size)


class JoinedRank:
    """Rank 1 of a world of two, played by this process; rank 0 runs in the job."""

    FLAGS_AT = 4096

    def __init__(self, job):
        self.store, self.own = job.store, None
        key, card = self.store.wait_for(b"/peer/0")
        self.world = key[:-len(b"/peer/0")]
        layout = Layout("frame.md", "peer-info")
        fields = layout.decode(card)
        self.put(b"/peer/1", layout.encode({**{field.offset: fields[field.offset] for field in
                                                  layout.fields}, "token": 0x1234}))
        self.token = os.urandom(16)
        self.put(b"/node_peer/1", os.urandom(16) + self.token)
        _, meeting = self.store.wait_for(b"/node_peer/0")
        self.greet(meeting[:16])
        self.peer = self.receive_heap()
        self.put(b"/flags/1", struct.pack("<Q", self.place(self.FLAGS_AT)))
        _, place = self.store.wait_for(b"/flags/0")
        self.peer = Peer(self.peer, int.from_bytes(place, "little"), 2)

    def put(self, key, value):
        with self.store.changed:
            self.store.contents[self.world + key] = value
            self.store.changed.notify_all()

    @staticmethod
    def place(offset):
        return 1 << 48 | offset

    def greet(self, name):
        descriptor, self.own = make_segment(1 << 20)
        block = RANK_BLOCK.encode({"magic": MAGIC, "version": VERSION, "rank": 1,
                                   "process id": os.getpid()})
        self.own[128:128 + len(block)] = block
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(b"\0tutti-" + name.hex().encode())
        self.tell(HELLO, {"HELLO: segments that follow": 1, "HELLO: place": self.place(128),
                          "HELLO: the sender's token": self.token})
        rights = array.array("i", [descriptor])
        self.tell(SEGMENT, {"SEGMENT: bytes": len(self.own)},
                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(descriptor)

    def tell(self, kind, fields=None, rights=()):
        self.socket.sendmsg([DATAGRAM.encode({"magic": DATAGRAM.magic, "kind": kind, "rank": 1,
                                              **(fields or {})})], rights)

    def receive(self):
        """(the fields of a datagram of rank 0, the descriptors that came with it)."""
        data, ancillary, _, _ = self.socket.recvmsg(DATAGRAM.bytes + 1, 256)
        if len(data) != DATAGRAM.bytes:
            raise ValueError(f"a datagram of {len(data)} bytes")
        found = array.array("i")
        for _, _, rights in ancillary:
            found.frombytes(rights)
        fields = DATAGRAM.decode(data)
        if (fields["magic"], fields["rank"], any(fields["0"])) != (DATAGRAM.magic, 0, False):
            raise ValueError(f"not a datagram of rank 0: {data!r}")
        return fields, list(found)

    def receive_heap(self):
        self.hello, rights = self.receive()
        if self.hello["kind"] != HELLO or rights:
            raise ValueError(f"not a HELLO: {self.hello}")
        segments = []
        while len(segments) < self.hello["HELLO: segments that follow"]:
            fields, rights = self.receive()
            if (fields["kind"], fields[12], len(rights)) != (SEGMENT, len(segments), 1):
                raise ValueError(f"not the next SEGMENT: {fields}")
            segments.append(os.fdopen(rights[0], "r+b", buffering=0))
            self.seals = fcntl.fcntl(rights[0], fcntl.F_GET_SEALS)
            if os.fstat(rights[0]).st_size != fields["SEGMENT: bytes"]:
                raise ValueError(f"a segment is not of another size")
        return segments

    def set_word(self, word, value):
        offset = Layout("shm.md", "flag-block", 2).field(word).offset
        struct.pack_into("<Q", self.own, self.FLAGS_AT + offset, value)

    def call(self, sequence, slot, payload=b""):
        """Publishes a call whose descriptor is that of rank 0, and wakes rank 0."""
        at = self.FLAGS_AT + sequence % SLOTS * SLOT.bytes
        data = bytearray(slot[:SLOT.bytes])
        data[24:64], data[128:] = bytes(40), bytes(1920)
        start = 24 if len(payload) <= 40 else 128
        data[start:start + len(payload)] = payload
        self.own[at + 8:at + SLOT.bytes] = bytes(data[8:])
        struct.pack_into("<Q", self.own, at, sequence)
        self.wake()

    def finish(self, sequence):
        self.set_word("done", sequence)
        self.wake()

    def wake(self):
        segment, offset = split(self.hello["HELLO: place"])
        bell = self.peer.heap.maps[segment]
        struct.pack_into("<I", bell, offset + 128, 0)
        word = ctypes.c_uint32.from_buffer(bell, offset + 128)
        futex = FUTEX[platform.machine()]
        ctypes.CDLL(None).syscall(futex, ctypes.byref(word), 1, 1 << 30, 0, 0, 0)
        del word
        self.tell(WAKE)

    def leave(self):
        self.tell(BYE)
        self.socket.close()
