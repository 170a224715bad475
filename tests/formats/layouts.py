"""Tables of docs/formats, taken out of the documents, and structures decoded by them.

A comment in the document names each table. A row's second cell is its type: u8 to u64, i32, i64, a
number of bytes, each also repeated (`u64 × 3`), or anything else, which is whatever follows.
"""
import os
import re
import struct

FORMATS = os.path.join(os.environ["TUTTI_SOURCE_DIR"], "docs", "formats")
SIZES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}


def document(name):
    with open(os.path.join(FORMATS, name), encoding="utf-8") as file:
        return file.read()


def tables(name):
    """{name of a table: [[cells]]}: a comment in front of it names it."""
    found, names, rows = {}, [], []
    for line in document(name).splitlines() + [""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            rows.append([cell.strip().replace("\\|", "|") for cell in cells])
            continue
        if rows and names:
            found[names.pop()] = rows[2:]
        rows = []
        names += re.findall(r"^<!-- table: (\S+) -->$", line)
    if names:
        raise ValueError(f"{name}: no table follows the names {names}")
    return found


def key_pattern(name, which):
    """What matches the end of a key in one of the tables of keys, as bytes."""
    keys = [re.match(r"`([^`]+)`", row[0]).group(1) for row in tables(name)[which]]
    patterns = [re.sub(r"<rank[^>]*>", r"\\d+", key) for key in keys]
    return re.compile("(?:" + "|".join(patterns) + ")").fullmatch


def number_of(text, size):
    """The value of `21760 + 16 × size`."""
    total = 0
    for term in text.replace("size", str(size)).split("+"):
        product = 1
        for factor in term.split("×"):
            product *= int(factor)
        total += product
    return total


class Field:
    def __init__(self, offset, kind, what, size=0):
        self.offset, self.what, self.format = number_of(offset, size), what, None
        base, _, repeat = re.sub(r" bytes$", "", kind).partition(" × ")
        self.count = number_of(repeat, size) if repeat else 1
        self.is_list = bool(repeat)
        if base in SIZES:
            self.format = "<%d%s" % (self.count, SIZES[base])
            self.bytes = struct.calcsize(self.format)
        else:  # a number of bytes, or whatever follows
            self.bytes = int(base) * self.count if base.isdigit() else 0

    def value(self, data):
        raw = data[self.offset:self.offset + self.bytes]
        if self.format is None:
            return raw
        values = struct.unpack(self.format, raw)
        return values if self.is_list else values[0]


class Values:
    """What a structure holds, by the words that a row's text begins with, or by offset."""

    def __init__(self, layout, data):
        self.layout, self.data = layout, data

    def __getitem__(self, key):
        return self.layout.field(key).value(self.data)

    def part(self, key, name):
        """A part of a number that the row describes as `this << 32 | that << 8 | the rest`."""
        value, above = self[key], 64
        for part in self.layout.field(key).what.split("|"):
            about, _, shift = part.strip().partition(" << ")
            shift = int(re.match(r"\d+", shift).group()) if shift else 0
            if about.endswith(name) or name in about and not shift:
                return (value >> shift) & (1 << above - shift) - 1
            above = shift
        raise KeyError(f"{self.layout.name}: {key} has no {name}")


class Layout:
    """The structure that a table describes."""

    def __init__(self, name, which, size=0):
        self.name = f"{name}: table {which}"
        self.fields = [Field(offset, kind, what, size)
                       for offset, kind, what in tables(name)[which]]

    @property
    def bytes(self):
        return self.fields[-1].offset + self.fields[-1].bytes

    @property
    def magic(self):
        """What the first row says that the structure begins with."""
        return int(re.search(r"magic (0x[0-9a-f]+)", self.fields[0].what).group(1), 16)

    def decode(self, data):
        return Values(self, data)

    def field(self, key):
        found = [field for field in self.fields
                 if key == field.offset or re.match(rf"{key}(?!\w)", field.what)]
        if len(found) != 1:
            raise KeyError(f"{self.name}: {len(found)} rows for {key}")
        return found[0]

    def encode(self, values):
        """The bytes with these values: {offset or words: value}; the rest is 0."""
        data = bytearray(self.bytes)
        for key, value in values.items():
            field = self.field(key)
            if field.format is None:
                assert len(value) <= field.bytes, (self.name, field.offset)
                data[field.offset:field.offset + len(value)] = value
            else:
                values_of = value if field.is_list else (value,)
                struct.pack_into(field.format, data, field.offset, *values_of)
        return bytes(data)

    def gaps(self, start=0):
        """Where the rows leave a hole or lie over each other: [(end of one, offset of next)]."""
        ends = [start] + [field.offset + field.bytes for field in self.fields]
        return [(end, field.offset) for end, field in zip(ends, self.fields)
                if end != field.offset]

    def misaligned(self):
        return [field.offset for field in self.fields
                if field.format and field.offset % struct.calcsize("<" + field.format[-1])]


def fnv1a(data):
    """FNV-1a of 64 bits."""
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value
