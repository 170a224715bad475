"""The ClientHello of docs/formats/channel.md: what it offers, and the proof of the key in it.

RFC 8446: records 5.1, ClientHello 4.1.2, binders 4.2.11.2, the key schedule 7.1.
"""
import hashlib
import hmac
import struct

HANDSHAKE, CHANGE_CIPHER_SPEC, APPLICATION = 22, 20, 23
CLIENT_HELLO = 1
GROUPS, VERSIONS, PSK_MODES, KEY_SHARE, PSK, EARLY_DATA = 10, 43, 45, 51, 41, 42
AES_128_GCM_SHA256, X25519, TLS_1_3, PSK_DHE_KE = 0x1301, 29, 0x0304, 1


def extract(salt, key):
    return hmac.digest(salt, key, "sha256")


def expand(key, info, count):
    made, block = b"", b""
    while len(made) < count:
        block = hmac.digest(key, block + info + bytes([len(made) // 32 + 1]), "sha256")
        made += block
    return made[:count]


def expand_label(key, label, context, count):
    label = b"tls13 " + label
    return expand(key, struct.pack(">HB", count, len(label)) + label +
                  bytes([len(context)]) + context, count)


def epoch_key(key, epoch):
    return expand(extract(bytes(32), key), b"tutti v1 epoch" + struct.pack("<I", epoch), 32)


class Reader:
    """Big-endian numbers and vectors, one after the other."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def take(self, count):
        self.at += count
        if self.at > len(self.data):
            raise ValueError("a vector reaches past the end")
        return self.data[self.at - count:self.at]

    def number(self, count):
        return int.from_bytes(self.take(count), "big")

    def vector(self, count):
        return self.take(self.number(count))

    def rest(self):
        return len(self.data) - self.at


def numbers(data):
    return [value for value, in struct.iter_unpack(">H", data)]


class ClientHello:
    def __init__(self, record):
        """record: the whole TLS record, head and all."""
        reader = Reader(record)
        if reader.number(1) != HANDSHAKE:
            raise ValueError("not a record of a handshake")
        reader.number(2)
        self.message = reader.vector(2)
        if reader.rest():
            raise ValueError("more than one record")
        reader = Reader(self.message)
        if reader.number(1) != CLIENT_HELLO:
            raise ValueError("not a ClientHello")
        reader = Reader(reader.vector(3))
        reader.take(2 + 32)  # the version of old, random
        reader.vector(1)     # session
        self.suites = numbers(reader.vector(2))
        reader.vector(1)     # compression
        self.read_extensions(Reader(reader.vector(2)))

    def read_extensions(self, reader):
        self.extensions = {}
        while reader.rest():
            kind = reader.number(2)
            self.extensions[kind] = reader.vector(2)
        self.versions = numbers(Reader(self.extensions[VERSIONS]).vector(1))
        self.groups = numbers(Reader(self.extensions[GROUPS]).vector(2))
        self.modes = list(Reader(self.extensions[PSK_MODES]).vector(1))
        shares = Reader(Reader(self.extensions[KEY_SHARE]).vector(2))
        self.shares = []
        while shares.rest():
            self.shares.append((shares.number(2), len(shares.vector(2))))
        keys = Reader(self.extensions[PSK])
        identities, binders = Reader(keys.vector(2)), Reader(keys.vector(2))
        self.identities, self.binders = [], []
        while identities.rest():
            self.identities.append(identities.vector(2))
            identities.take(4)  # the age of a ticket
        while binders.rest():
            self.binders.append(binders.vector(1))

    def binder_of(self, key):
        """What the only binder must be if the key is this one."""
        binders = 2 + sum(1 + len(binder) for binder in self.binders)
        transcript = hashlib.sha256(self.message[:-binders]).digest()
        early = extract(bytes(32), key)
        empty = hashlib.sha256(b"").digest()
        secret = expand_label(early, b"ext binder", empty, 32)
        return hmac.digest(expand_label(secret, b"finished", b"", 32), transcript, "sha256")


def split_handshake(data, encrypted):
    """([records of TLS], what follows): so many of the records are encrypted ones."""
    found = []
    while encrypted > 0 or not found:
        kind, _, length = struct.unpack_from(">BHH", data)
        found.append(bytes(data[:5 + length]))
        if len(found[-1]) != 5 + length:
            raise ValueError("a record of TLS is not whole")
        data = data[5 + length:]
        encrypted -= kind == APPLICATION
    return found, data
