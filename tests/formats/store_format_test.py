"""docs/formats/store.md against the launcher's store, asked by a client, and a store's file."""
import os
import re
import socket
import struct
import subprocess
import tempfile
import unittest

import clear_records
from format_job import BINARIES, free_port
from layouts import Layout, tables
from store_wire import HEAD, HELLO, NUMBERS, REQUEST, Client, Request, Server, unpack_texts
from xxh3 import xxh3

TUTTI = os.path.join(BINARIES, "bin", "tutti")
FILES = os.path.join(BINARIES, "tests", "format_files")
KEY = os.path.join(BINARIES, "tests.key")
FILE = Layout("store.md", "file")
# The text that the table's first row shows, and zeros.
FILE_MAGIC = re.match(r"`([^`]+)`", FILE.fields[0].what).group(1).encode().decode(
    "unicode_escape").encode().ljust(FILE.fields[0].bytes, b"\0")
TIMEOUT, ARGUMENT = -8, -1
CHANGES = {"set", "add", "compare_set", "delete", "append"}


class Served(unittest.TestCase):
    """The store of a job that does nothing."""

    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        command = [TUTTI, "run", "-n", "1", "--master-port", str(cls.port), "--key-file", KEY,
                   "sh", "-c", "echo up; exec sleep 600"]
        cls.job = subprocess.Popen(command, env=dict(os.environ, TUTTI_PROTECT="off"),
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        cls.job.stdout.readline()

    @classmethod
    def tearDownClass(cls):
        cls.job.terminate()
        cls.job.wait()
        cls.job.stdout.close()

    def ask(self, name, *args, **fields):
        reply = self.client.ask(name, *args, **fields)
        self.assertIsNotNone(reply, f"the server hung up after {name}")
        return reply

    def check(self, expected, name, *args, **fields):
        """expected: (status, number, values)."""
        reply = self.ask(name, *args, **fields)
        self.assertEqual((reply.status, reply.number, reply.values), expected, name)

    def setUp(self):
        self.client = Client("127.0.0.1", self.port)
        self.addCleanup(self.client.connection.socket.close)

    def test_every_operation(self):
        check = self.check
        check((0, 0, []), "set", [b"t/a", b"t/b"], [b"1", b"\0\xff"])
        check((0, 0, [b"\0\xff", b"1"]), "get", [b"t/b", b"t/a"], wait_ms=10)
        check((0, 42, []), "add", [b"t/a"], number=41)
        check((0, 0, [b"42"]), "get", [b"t/a"], wait_ms=10)
        check((0, 0, [b"new"]), "compare_set", [b"t/b"], [b"\0\xff", b"new"])
        check((0, 0, [b"new"]), "compare_set", [b"t/b"], [b"\0\xff", b"newer"])
        check((0, 0, [b"expected"]), "compare_set", [b"t/none"], [b"expected", b"x"])
        check((0, 0, []), "wait", [b"t/a", b"t/b"], wait_ms=10)
        check((0, 1, []), "check", [b"t/a", b"t/b"])
        check((0, 0, []), "check", [b"t/a", b"t/none"])
        check((0, 0, []), "append", [b"t/b"], [b"+"])
        check((0, 0, [b"new+"]), "watch", [b"t/b"], [b"new"], wait_ms=10)
        check((0, 2, []), "num_keys", [b"t/"])
        listed = self.ask("list", [b"t/"])
        self.assertEqual((listed.status, listed.number), (0, 2))
        self.assertEqual(unpack_texts(listed.values[0], 2), [b"t/a", b"t/b"])
        check((0, 1, []), "delete", [b"t/a", b"t/none"])
        check((0, 1, []), "num_keys", [b"t/"])
        self.assertGreaterEqual(self.ask("num_keys").number, 1)
        self.assertEqual(set(NUMBERS), {row[0] for row in tables("store.md")["operations"]})

    def test_a_will_is_carried_out_when_the_connection_ends(self):
        other = Client("127.0.0.1", self.port)
        for value in (b"first", b"last"):
            self.assertEqual(other.ask("will", [b"will"], [value]).status, 0)
        other.connection.socket.close()
        self.check((0, 0, [b"last"]), "watch", [b"will"], [b""], wait_ms=10000)

    def test_a_failure_has_one_value_its_text(self):
        for args, fields, status in ((("get", [b"f/none"]), {"wait_ms": 20}, TIMEOUT),
                                     (("wait", [b"f/none"]), {"wait_ms": 20}, TIMEOUT)):
            reply = self.ask(*args, **fields)
            self.assertEqual((reply.status, reply.number, len(reply.values)), (status, 0, 1))
            self.assertIn(b"f/none", reply.values[0])
        self.ask("set", [b"f/text"], [b"text"])
        reply = self.ask("add", [b"f/text"], number=1)
        self.assertEqual((reply.status, len(reply.values)), (ARGUMENT, 1))

    def test_bytes_that_break_a_rule_end_the_connection(self):
        good = Request("set", [b"k"], [b"v"]).encode()
        body = good[HEAD:]
        other = {"bytes": len(body), "operation": NUMBERS["set"], "number of keys": 1}
        for change in ({"bytes": 2**26 + 12 * 4096 + 1}, {"operation": 0}, {"operation": 13},
                       {5: b"\1"}, {"number of keys": 2}, {"number of keys": 0}, {24: 1},
                       {"bytes": len(body) - 1}):
            client = Client("127.0.0.1", self.port)
            with self.subTest(change=change), client.connection.socket:
                self.assertIsNone(client.send(REQUEST.encode({**other, **change}) + body))
        self.assertEqual(Client("127.0.0.1", self.port).send(good).status, 0)

    def test_another_hello_ends_the_connection(self):
        with socket.create_connection(("127.0.0.1", self.port), 10) as connected:
            connection = clear_records.Connection(connected)
            connection.send(HELLO.replace(b"1", b"2"))
            self.assertIsNone(connection.receive(1))

    def test_a_wrong_checksum_ends_the_connection(self):
        record = bytearray(clear_records.record(HELLO))
        record[-1] ^= 1
        with socket.create_connection(("127.0.0.1", self.port), 10) as connected:
            connected.sendall(record)
            self.assertIsNone(clear_records.Connection(connected).receive(1))


class Files(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "store")

    def records(self):
        """The requests of the file."""
        with open(self.path, "rb") as file:
            data = file.read()
        head = FILE.decode(data)
        self.assertEqual(head[0], FILE_MAGIC)
        self.assertEqual(head["XXH3-64"], xxh3(data[:24]))
        at, found = head["start"], []
        while at < len(data):
            end = at + HEAD + REQUEST.decode(data[at:])["bytes"]
            self.assertEqual(struct.unpack_from("<Q", data, end)[0], xxh3(data[at:end]))
            found.append(Request.decode(data[at:at + HEAD], data[at + HEAD:end]))
            at = end + 8
        return found

    def run_files(self, *args):
        done = subprocess.run([FILES, *args], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_records_give_the_contents(self):
        self.run_files("store", self.path)
        requests, store = self.records(), Server()
        self.addCleanup(store.close)
        for request in requests:
            self.assertIn(request.name, CHANGES)
            self.assertEqual(request.wait_ms, 0)
            store.perform(request)
        self.assertEqual([request.name for request in requests],
                         ["set", "add", "add", "compare_set", "append", "set", "delete", "set"])
        self.assertEqual(store.contents, {b"name": b"other end", b"count": b"-2", b"a": b"1",
                                          b"bb": b"22"})

    def write(self, requests, start=32, rest=b""):
        """A file of these requests; garbage lies before start."""
        head = FILE_MAGIC + struct.pack("<Q", start)
        data = head + struct.pack("<Q", xxh3(head)) + b"\xaa" * (start - 32)
        for request in requests:
            encoded = request.encode()
            data += encoded + struct.pack("<Q", xxh3(encoded))
        with open(self.path, "wb") as file:
            file.write(data + rest)

    def test_a_file_written_from_the_document_is_read(self):
        self.write([Request("set", [b"key"], [b"value"]), Request("append", [b"key"], [b"s"])], 96)
        self.assertEqual(self.run_files("read", self.path, "key"), "values\n")

    def test_a_last_record_that_was_cut_short_is_passed_over(self):
        cut = Request("set", [b"key"], [b"other"]).encode()
        for count in (1, HEAD, len(cut) - 1, len(cut) + 7):
            self.write([Request("set", [b"key"], [b"value"])],
                       rest=(cut + struct.pack("<Q", xxh3(cut)))[:count])
            self.assertEqual(self.run_files("read", self.path, "key"), "value\n")
            self.run_files("store", self.path)
            self.assertEqual(len(self.records()), 1 + 8)

    def test_a_wrong_checksum_is_an_error(self):
        self.write([Request("set", [b"key"], [b"value"])])
        for at in (5, 16, 24, 40, 70):
            with open(self.path, "r+b") as file:
                data = bytearray(file.read())
                data[at] ^= 1
                damaged = self.path + ".damaged"
                with open(damaged, "wb") as other:
                    other.write(data)
            done = subprocess.run([FILES, "read", damaged, "key"], capture_output=True, timeout=30)
            self.assertEqual(done.returncode, 1, at)


if __name__ == "__main__":
    unittest.main(verbosity=2)
