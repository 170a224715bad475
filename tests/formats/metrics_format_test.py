"""Files of tutti/metrics.h, read by others: records by the rules of TFRecord and of protocol
buffers alone, JSON and CSV by Python's readers, and all of it by TensorBoard's EventAccumulator
where PyPI's tensorboard is (tools/peers torch)."""
import csv
import glob
import json
import os
import struct
import subprocess
import tempfile
import unittest
import zlib

BINARIES = os.environ["TUTTI_BINARY_DIR"]
SOURCE = os.environ["TUTTI_SOURCE_DIR"]
PROGRAM = os.path.join(BINARIES, "tests", "metrics_files")
PEER = os.path.join(SOURCE, "build", "peers", "torch", "bin", "python")

# What TensorBoard itself makes of the folder, as JSON.
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0})
a.Reload()
tags = a.Tags()
print(json.dumps({
    "scalars": {t: [(e.step, e.value) for e in a.Scalars(t)] for t in tags["scalars"]},
    "histograms": {t: [(e.step, e.histogram_value.num, e.histogram_value.min,
                        sum(e.histogram_value.bucket)) for e in a.Histograms(t)]
                   for t in tags["histograms"]},
    "images": {t: [(e.step, e.width, e.height) for e in a.Images(t)] for t in tags["images"]},
    "texts": {t: [(e.step, e.tensor_proto.string_val[0].decode()) for e in a.Tensors(t)]
              for t in tags["tensors"]},
}))
"""

# The same of one that is open while a training goes on at step 4, as the server reads.
WATCHER = """
import json, subprocess, sys
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1])
a.Reload()
subprocess.run([sys.argv[2], sys.argv[1], "4"], check=True, timeout=60)
a.Reload()
print(json.dumps({t: [e.step for e in a.Tensors(t)] for t in ("train/loss", "lr")}))
"""


def crc32c(data):
    """Bit by bit, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    while data:
        (length,) = struct.unpack_from("<Q", data)
        assert struct.unpack_from("<I", data, 8)[0] == masked(data[:8])
        event = data[12:12 + length]
        assert struct.unpack_from("<I", data, 12 + length)[0] == masked(event)
        yield event
        data = data[16 + length:]


def fields(message):
    """Number of the field, value: integers, bytes, or 4 and 8 bytes."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield tag >> 3, message[at:at + size]
            at += size


def png_rows(data):
    """Width, height, channels, and the rows without their filters, which must be none."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, head, body = 8, None, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        chunk = data[at + 8:at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + chunk)
        head = struct.unpack(">IIBBBBB", chunk) if kind == b"IHDR" else head
        body += chunk if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, color = head[:4]
    assert depth == 8
    channels = {0: 1, 2: 3, 6: 4}[color]
    rows = zlib.decompress(body)
    size = 1 + width * channels
    assert all(rows[row * size] == 0 for row in range(height))
    return width, height, channels, b"".join(
        rows[row * size + 1:(row + 1) * size] for row in range(height))


class Metrics(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="metrics_")
        self.addCleanup(place.cleanup)
        self.folder = os.path.join(place.name, "run")
        subprocess.run([PROGRAM, self.folder], check=True, timeout=60)

    def events(self):
        for path in sorted(glob.glob(os.path.join(self.folder, "events.out.tfevents.*"))):
            yield from (dict(fields(record)) for record in records(path))

    def values(self):
        """Step, name, and the value's fields, of each event that has some."""
        for event in self.events():
            if 5 not in event:
                continue
            value = dict(fields(dict(fields(event[5]))[1]))
            yield event[2], value[1].decode(), value

    def test_records_hold_every_number(self):
        first = next(self.events())
        self.assertEqual(first[3], b"brain.Event:2")
        self.assertGreater(struct.unpack("<d", first[1])[0], 1.7e9)
        losses = [(step, struct.unpack("<f", value[2])[0]) for step, name, value in self.values()
                  if name == "train/loss"]
        self.assertEqual(losses, [(step, struct.unpack("f", struct.pack("f", 1 / (step + 1)))[0])
                                  for step in range(10)])

    def test_a_histogram_says_where_its_values_are(self):
        (value,) = [value for _, name, value in self.values() if name == "weights"]
        histogram = dict(fields(value[5]))
        doubles = {key: struct.unpack(f"<{len(data) // 8}d", data)
                   for key, data in histogram.items()}
        self.assertEqual([doubles[key][0] for key in range(1, 6)], [-2, 2, 5, 0, 10])
        limits, counts = doubles[6], doubles[7]
        self.assertEqual((len(limits), sum(counts)), (len(counts), 5))
        for number in (-2, -1, 0, 1, 2):
            at = next(at for at, limit in enumerate(limits) if number <= limit)
            self.assertEqual(counts[at], 1)

    def test_pictures_are_png(self):
        found = {name: png_rows(dict(fields(value[4]))[4]) for _, name, value in self.values()
                 if name in ("rgb", "gray")}
        self.assertEqual(found["rgb"], (2, 2, 3, bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 1, 2, 3])))
        self.assertEqual(found["gray"], (4, 1, 1, bytes([0, 0, 128, 255])))

    def test_lines_are_json_and_csv(self):
        with open(os.path.join(self.folder, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["value"] for line in lines if line["name"] == "lr"],
                         [0.5 * step for step in range(10)])
        self.assertIn({"count": 5, "not_finite": 0, "min": -2, "max": 2, "mean": 0,
                       "std": 1.4142135623731}, [
                           {key: round(line[key], 13) for key in line
                            if key not in ("step", "time", "name")}
                           for line in lines if line["name"] == "weights"])
        with open(os.path.join(self.folder, "metrics.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 20)
        self.assertEqual([float(row["value"]) for row in rows if row["name"] == "train/loss"],
                         [1 / (step + 1) for step in range(10)])

    def test_what_is_cut_away_comes_once(self):
        subprocess.run([PROGRAM, self.folder, "4"], check=True, timeout=60)
        steps = [(step, name) for step, name, _ in self.values()]
        self.assertEqual(steps, [(step, name) for step in range(4) for name in ("train/loss", "lr")]
                         + [(2, "settings"), (3, "weights"), (4, "train/loss")])

    def ask_tensorboard(self, script):
        has_peer = subprocess.run([PEER, "-c", "import tensorboard"], capture_output=True,
                                  check=False).returncode == 0 if os.path.exists(PEER) else False
        if not has_peer:
            self.skipTest("no tensorboard: tools/peers torch installs it")
        done = subprocess.run([PEER, "-c", script, self.folder, PROGRAM], check=True, timeout=100,
                              capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    def test_tensorboard_that_is_open_goes_on(self):
        self.assertEqual(self.ask_tensorboard(WATCHER),
                         {"train/loss": list(range(5)), "lr": list(range(4))})

    def test_tensorboard_reads_it(self):
        read = self.ask_tensorboard(READER)
        self.assertEqual(read["scalars"]["lr"], [[step, 0.5 * step] for step in range(10)])
        self.assertEqual(len(read["scalars"]["train/loss"]), 10)
        self.assertEqual(read["histograms"], {"weights": [[3, 5, -2, 5]]})
        self.assertEqual(read["images"], {"rgb": [[4, 2, 2]], "gray": [[5, 4, 1]]})
        self.assertEqual(read["texts"], {"settings": [[2, "--lr 0.5"]]})


if __name__ == "__main__":
    unittest.main(verbosity=2)
