"""docs/formats/shm.md against what two ranks share: their heaps, read while a call waits."""
import os
import re
import signal
import struct
import unittest

import shm_blocks
from format_job import CALLS, Job, NAMES, content, until
from layouts import Layout, fnv1a, key_pattern
from shm_blocks import CALL, DONE, RECEIVE, SEND

# Of format_ranks: what each record must say.
RECORDS = CALLS[:4] + [(7, 4, "i32"), (8, 4096, "i32")] + CALLS[4:]
FIRST, LAST = 7, 8
MESSAGE = Layout("frame.md", "message")
RTS, CTS, DATA, FIN = range(1, 5)


class FlagBlocks(unittest.TestCase):
    def start(self, **settings):
        job = self.enterContext(Job(TUTTI_WIRES="shm", **settings))
        job.hear("first")
        return job, shm_blocks.peers_of(job)

    def check_record(self, record, number, rank, state):
        expected = RECORDS[number - 1]
        self.assertEqual(record.stamp, number)
        self.assertEqual((record.count, record.state, record.zero), (expected[1], state, 0))
        self.assertNotEqual(record.site, 0)
        self.assertEqual(record.dtype, NAMES["dtype"][expected[2]])
        if isinstance(expected[0], str):
            sequence = 1 + sum(isinstance(call[0], str) for call in RECORDS[:number - 1])
            self.assertEqual((record.kind, record.sequence, record.tag), (CALL, sequence, 0))
            self.assertEqual((record.call, record.reduction, record.peer),
                             (NAMES["call"][expected[0]], NAMES["reduction"][expected[3]],
                              expected[4]))
        else:
            self.assertEqual((record.kind, record.sequence), ((SEND, RECEIVE)[rank], 0))
            self.assertEqual((record.tag, record.peer), (expected[0], 1 - rank))

    def check_slot(self, slot, sequence):
        name, count, dtype, reduction, root = CALLS[sequence - 1]
        self.assertEqual((slot.sequence, slot.count), (sequence, count))
        self.assertEqual((slot.call, slot.root), (NAMES["call"][name], root))
        self.assertEqual((slot.dtype, slot.out_dtype), (NAMES["dtype"][dtype],) * 2)
        self.assertEqual(slot.reduction, NAMES["reduction"][reduction])
        self.assertEqual((slot.tag, slot.epoch, slot.group), (0, 0, fnv1a(b"world")))
        self.assertEqual((slot.flags, slot.zero, slot.custom), (0, 0, (0, bytes(15))))

    def check_rest(self, data):
        """Bytes that no row of the table names are 0."""
        for start, end in Layout("shm.md", "flag-block", 2).gaps():
            self.assertEqual(data[start:end], bytes(end - start), start)

    def test_records_and_slots_of_calls_that_are_done(self):
        job, peers = self.start()
        for rank, peer in enumerate(peers):
            flags = peer.flags()
            self.check_rest(peer.data)
            self.assertEqual((flags.done, flags.records_ever), (5, FIRST))
            self.assertEqual((flags.failure, flags.inside, flags.where.stamp), (0, 0, 0))
            for number in range(1, FIRST + 1):
                self.check_record(flags.record(number), number, rank, DONE)
            for sequence in range(1, 6):
                self.check_slot(flags.slot(sequence), sequence)
            self.assertEqual(flags.slot(2).payload(40), content(40, rank))
            self.assertEqual(flags.quiet, (0, 0))
        fingerprints = [{slot.fingerprint for slot in (peers[rank].flags().slot(sequence)
                         for rank in (0, 1))} for sequence in range(1, 6)]
        self.assertTrue(all(len(pair) == 1 for pair in fingerprints))
        self.assertEqual(fingerprints[0], fingerprints[4])  # both are the barrier
        self.assertEqual(len(set.union(*fingerprints[:4])), 4)
        self.assertEqual(job.end(), [0, 0])
        self.assertEqual(job.store.errors, [])
        is_known = key_pattern("frame.md", "keys")
        ends = [re.sub("^world.1/", "", key.decode()) for key in job.store.contents]
        self.assertEqual(sorted(end for end in ends if not is_known(end)),
                         ["init/world/0", "init/world/1"])

    def test_places_name_memory_of_the_owner(self):
        _, peers = self.start(TUTTI_ALGO="direct")
        for rank, peer in enumerate(peers):
            places = struct.unpack("<2Q", peer.flags().slot(4).payload(16))
            self.assertTrue(all(places))
            # the largest of both ranks, which format_ranks reduced in place
            pairs = zip(*(struct.unpack("<1024f", content(4096, other)) for other in (0, 1)))
            found = peer.heap.read(places[1], 4096)
            self.assertEqual(found, struct.pack("<1024f", *(max(pair) for pair in pairs)), rank)

    def test_pieces_lie_in_the_slot_with_flag(self):
        _, peers = self.start(TUTTI_ALGO="flag")
        for rank, peer in enumerate(peers):
            self.assertEqual(peer.flags().slot(2).payload(40), content(40, rank))
        self.assertEqual(peers[1].flags().slot(3).payload(40), content(40, 1))  # the root

    def test_a_call_that_waits(self):
        job, peers = self.start()
        job.ranks[0].go_on()
        until(lambda: peers[0].flags().where.stamp, "rank 0 does not say that it waits")
        flags = peers[0].flags()
        self.check_record(flags.record(LAST), LAST, 0, flags.record(LAST).state)
        self.assertIn(flags.record(LAST).state, (shm_blocks.POSTED, shm_blocks.RUNNING))
        self.check_record(flags.where, LAST, 0, flags.where.state)
        self.assertEqual(flags.where_group, b"world")
        self.check_slot(flags.slot(6), 6)
        self.assertEqual((flags.done, peers[1].flags().done), (5, 5))
        self.assertEqual(peers[1].flags().records_ever, FIRST)
        job.ranks[1].go_on()
        job.hear("second")
        for rank, peer in enumerate(peers):
            self.check_record(peer.flags().record(LAST), LAST, rank, DONE)
            self.assertEqual((peer.flags().done, peer.flags().where.stamp), (6, 0))
        self.assertEqual(job.end(), [0, 0])

    def test_a_failure_names_the_dead_rank(self):
        job, peers = self.start()
        job.ranks[0].go_on()
        until(lambda: peers[0].flags().where.stamp, "rank 0 does not say that it waits")
        os.kill(job.ranks[1].process.pid, signal.SIGKILL)
        job.ranks[0].hear("failed")
        flags = peers[0].flags()
        self.assertEqual(flags.failed(), (-9, 0, 1))
        self.assertEqual(flags.record(LAST).state, shm_blocks.FAILED)
        self.assertEqual(flags.inside, 0)

    def test_rings_hold_messages(self):
        _, peers = self.start()
        self.assertEqual(peers[0].flags().rings[:3], (0, 0, 0))  # lane calls, and to itself
        place = peers[0].flags().rings[2 * 1 + 1]
        ring = shm_blocks.RING.decode(peers[0].heap.read(place, shm_blocks.RING.bytes))
        self.assertEqual(ring["written"], ring["read"])  # all of it was read
        header = MESSAGE.decode(ring["data"])
        self.assertEqual((header["magic"], header["epoch"], header["kind"]),
                         (MESSAGE.magic, 0, RTS))
        self.assertEqual((header["dtype"], header["tag"], header["group"]),
                         (NAMES["dtype"]["i32"], 7, fnv1a(b"world")))
        self.assertEqual((header["bytes"], header["address"], header[48]), (16, 0, bytes(16)))
        self.assertEqual(ring["data"][64:80], content(16, 0))
        second = MESSAGE.decode(ring["data"][80:])
        self.assertEqual((second["kind"], second["tag"], second["bytes"]), (RTS, 8, 16384))
        self.assertEqual(peers[0].heap.read(second["address"], 16384), content(16384, 0))
        back = peers[1].flags().rings[2 * 1 + 0]
        ring = shm_blocks.RING.decode(peers[1].heap.read(back, shm_blocks.RING.bytes))
        answer = MESSAGE.decode(ring["data"])
        self.assertEqual((ring["written"], answer["kind"], answer["id"]), (64, FIN, second["id"]))

    def test_rank_blocks(self):
        job, peers = self.start()
        for number, (rank, peer) in enumerate(zip(job.ranks.values(), peers)):
            block = shm_blocks.RANK_BLOCK.decode(peer.heap.maps[0][:4096])
            self.assertEqual((block["magic"], block["version"]),
                             (shm_blocks.MAGIC, shm_blocks.VERSION))
            self.assertEqual((block["rank"], block["process id"]), (number, rank.process.pid))
            mask = block["affinity mask"]
            cores = {bit for bit in range(8 * len(mask)) if mask[bit // 8] >> bit % 8 & 1}
            self.assertEqual(cores, os.sched_getaffinity(rank.process.pid))
            self.assertIn(block[r"the \*\*doorbell"], (0, 1, 2))


class Meeting(unittest.TestCase):
    def test_a_rank_written_from_the_document_takes_part(self):
        """This process is rank 1 until the third call; then it leaves."""
        with Job(real=(0,), TUTTI_WIRES="shm", TUTTI_ALGO="flag") as job:
            mate = shm_blocks.JoinedRank(job)
            self.assertEqual(mate.seals & 7, 7)  # SEAL, SHRINK, GROW
            token = job.store.wait_for(b"/node_peer/0")[1][16:]
            self.assertEqual(mate.hello["HELLO: the sender's token"], token)
            for sequence, payload in ((1, b""), (2, content(40, 1)), (3, content(40, 1))):
                until(lambda: mate.peer.flags().slot(sequence).sequence == sequence,
                      f"rank 0 does not make call {sequence}")
                slot = mate.peer.data[sequence * shm_blocks.SLOT.bytes:]
                mate.call(sequence, slot, payload)
                until(lambda: mate.peer.flags().done == sequence,
                      f"rank 0 does not finish call {sequence}")
                mate.finish(sequence)
            pairs = zip(*(struct.unpack("<10f", content(40, rank)) for rank in (0, 1)))
            total = struct.pack("<10f", *(a + b for a, b in pairs))
            self.assertGreater(mate.peer.heap.maps[0].find(total), 0)
            mate.leave()
            job.ranks[0].hear("failed")
            self.assertEqual(mate.peer.flags().failed(), (-9, 1, 1))
            self.assertEqual(mate.peer.flags().quiet, (0, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
