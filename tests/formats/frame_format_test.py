"""docs/formats/frame.md and channel.md against what two ranks over tcp say to each other.

The store of this process puts a proxy's address into the ranks' doors, so it sees all connections.
"""
import os
import re
import signal
import unittest

import clear_records
import frame_streams
from format_job import CALLS, Job, NAMES, content, until
from frame_streams import CTS, DATA, DESCRIPTOR, RTS
from layouts import Layout, fnv1a, key_pattern, tables
from tcp_proxy import Proxy

RUNNING = 2
GROUP = fnv1a(b"world")
CALL_LANE, MESSAGE_LANE = 2 * GROUP % 2**64, 2 * GROUP % 2**64 + 1


class Frames(unittest.TestCase):
    def setUp(self):
        self.proxies = []
        self.addCleanup(lambda: [proxy.close() for proxy in self.proxies])

    def rewrite(self, key, value):
        if b"/listen/" not in key:
            return value
        info = frame_streams.CARD.decode(value)
        self.assertEqual((info["magic"], info["family"]), (frame_streams.CARD.magic, 4))
        proxy = Proxy(info["port"], ".".join(str(byte) for byte in info["address"][:4]))
        self.proxies.append(proxy)
        fields = {field.offset: info[field.offset] for field in frame_streams.CARD.fields}
        address = bytes([127, 0, 0, 1]) + bytes(12)
        return frame_streams.CARD.encode({**fields, "port": proxy.port, "address": address})

    def run_job(self, **settings):
        with Job(rewrite=self.rewrite, TUTTI_WIRES="tcp", **settings) as job:
            job.hear("first")
            job.go_on()
            job.hear("second")
            self.assertEqual(job.end(), [0, 0])
            self.assertEqual(job.store.errors, [])
            self.check_keys(job.store)
            self.cards = [frame_streams.CARD.decode(job.store.wait_for(b"/peer/%d" % rank)[1])
                          for rank in (0, 1)]
        return self.connections()

    def check_keys(self, store):
        """Ranks put nothing into the store but what the documents list."""
        known = key_pattern("frame.md", "keys"), key_pattern("shm.md", "board")
        for key in map(bytes.decode, store.contents):
            end = re.sub(r"^world\.1/", "", key)
            self.assertTrue(re.fullmatch(r"init/world/\d", key) or
                            any(is_known(end) for is_known in known), key)
        lengths = [(re.match(r"`(\w+/)", row[0]).group(1), int(row[1]))
                   for row in tables("frame.md")["keys"]]
        for key, value in store.contents.items():
            for start, count in lengths:
                if key.decode().startswith("world.1/" + start):
                    self.assertEqual(len(value), count, key)

    def connections(self):
        found = [conversation for proxy in self.proxies for conversation in proxy.conversations]
        for conversation in found:
            conversation.wait()
        return [frame_streams.Connection(conversation) for conversation in found]

    def check_hellos(self, connections, streams):
        for connection in connections:
            hello = connection.hello
            self.assertEqual(hello["magic"], frame_streams.HELLO.magic)
            self.assertEqual((hello["epoch"], hello["streams"]), (0, streams))
            self.assertEqual(hello["rank of the sender"] + hello["rank of the receiver"], 1)
            self.assertEqual(hello["world"], self.cards[0]["token"])
            self.assertEqual(hello["0"], bytes(8))
            self.assertIn(hello["channel"], (CALL_LANE, MESSAGE_LANE))
            if hello["stream"] == 0:
                goaway = frame_streams.GOAWAY.decode(connection.answered)
                self.assertEqual(len(connection.answered), frame_streams.GOAWAY.bytes)
                self.assertEqual((goaway["magic"], goaway["0"]),
                                 (frame_streams.GOAWAY.magic, 0))
                self.assertEqual(goaway["reason"] >> 32, 1)  # END: left in peace
            else:
                self.assertEqual(connection.answered, b"")

    def check_frames(self, data, sender):
        seen, fingerprints, last = {}, {}, 0
        for frame, follows in frame_streams.frames(data):
            sequence = frame["sequence"]
            name, count, dtype, reduction, root = CALLS[sequence - 1]
            self.assertGreaterEqual(sequence, last)
            self.assertEqual(frame["index"], seen.get(sequence, 0))
            seen[sequence], last = frame["index"] + 1, sequence
            call = DESCRIPTOR.decode(frame[32])
            self.assertEqual((call["collective"], call["count"], call["root"]),
                             (NAMES["call"][name], count, root))
            self.assertEqual((call["dtype$"], call["reduction"]),
                             (NAMES["dtype"][dtype], NAMES["reduction"][reduction]))
            self.assertEqual((call["group"], call["epoch"]), (GROUP, 0))
            self.assertEqual((call["width"], call["name"]), (0, bytes(15)))
            fingerprints.setdefault(sequence, set()).add(frame["fingerprint"])
            if name == "broadcast":
                self.assertEqual(sender, root)
        self.assertTrue(all(len(found) == 1 for found in fingerprints.values()))
        return {sequence: found.pop() for sequence, found in fingerprints.items()}

    def check_messages(self, to, back):
        (short, bytes_), (long, none), (data, rest) = to
        self.assertEqual([header["kind"] for header, _ in to], [RTS, RTS, DATA])
        self.assertEqual((short["tag"], short["bytes"], bytes_), (7, 16, content(16, 0)))
        self.assertEqual((long["tag"], long["bytes"], none), (8, 16384, b""))
        self.assertEqual((data["id"], rest), (long["id"], content(16384, 0)))
        self.assertNotEqual(short["id"], long["id"])
        (clear, none), = back
        self.assertEqual((clear["kind"], clear["id"], none), (CTS, long["id"], b""))
        for header, _ in to + back:
            self.assertEqual((header["group"], header["epoch"], header["address"]), (GROUP, 0, 0))
            self.assertEqual((header[10], header[48]), (bytes(2), bytes(16)))
        for header in (short, long):
            self.assertEqual(header["dtype"], NAMES["dtype"]["i32"])

    def check(self, streams):
        connections = self.run_job(TUTTI_TCP_STREAMS=str(streams))
        self.check_hellos(connections, streams)
        channels = frame_streams.join(connections)
        fingerprints = {}
        for sender in (0, 1):
            found = self.check_frames(channels[sender, 1 - sender, CALL_LANE], sender)
            for sequence, fingerprint in found.items():
                self.assertEqual(fingerprints.setdefault(sequence, fingerprint), fingerprint)
        self.assertEqual(sorted(fingerprints), [1, 2, 3, 4, 5, 6])
        payload = b"".join(follows for frame, follows in
                           frame_streams.frames(channels[0, 1, CALL_LANE])
                           if frame["sequence"] == 6)
        self.assertEqual(payload, content(560000, 0))
        self.check_messages(frame_streams.messages(channels[0, 1, MESSAGE_LANE]),
                            frame_streams.messages(channels[1, 0, MESSAGE_LANE]))

    def test_one_stream(self):
        self.check(1)

    def test_three_streams(self):
        self.check(3)

    def test_a_call_that_waits_is_on_the_board(self):
        with Job(TUTTI_WIRES="tcp", TUTTI_REPORT_MS="100") as job:
            job.hear("first")
            job.ranks[1].go_on()
            _, report = job.store.wait_for(b"wait/report/1")
            head = Layout("shm.md", "head").decode(report)
            self.assertEqual(len(report), 256)
            self.assertEqual((head["magic"], head["sequence"]), (Layout("shm.md", "head").magic, 6))
            self.assertEqual((head["state"], head["how many"], head["which"][0], head["0"]),
                             (RUNNING, 1, 0, 0))
            call = DESCRIPTOR.decode(head[24])
            self.assertEqual((call["collective"], call["count"]),
                             (NAMES["call"]["broadcast"], 70000))
            self.assertRegex(head["the call's site"].split(b"\0")[0].decode(), r"format_ranks")
            _, text = job.store.wait_for(b"wait/state/1")
            self.assertLessEqual(len(text), 255)
            self.assertRegex(text.decode(), r"broadcast #\d+ i64\[70000\]")
            self.check_keys(job.store)
            job.ranks[0].go_on()
            job.hear("second")
            until(lambda: job.store.wait_for(b"wait/state/1")[1] == b"", "rank 1 still waits")
            self.assertEqual(job.end(), [0, 0])

    def test_a_dead_rank_says_no_goaway(self):
        with Job(rewrite=self.rewrite, TUTTI_WIRES="tcp") as job:
            job.hear("first")
            job.ranks[1].go_on()
            os.kill(job.ranks[0].process.pid, signal.SIGKILL)
            job.ranks[1].hear("failed")
        answers = {connection.answered for connection in self.connections()
                   if connection.hello["rank of the receiver"] == 0}
        self.assertEqual(answers, {b""})


class Checksum(unittest.TestCase):
    def test_of_the_document(self):
        self.assertEqual(clear_records.crc32c(b"123456789"), 0xe3069283)


if __name__ == "__main__":
    unittest.main(verbosity=2)
