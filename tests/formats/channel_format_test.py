"""docs/formats/channel.md against connections of ranks to the launcher's store, through a proxy.

The proxy reads what `auth` leaves readable: the ClientHello, then clear records with the store's
requests and replies. Of `encrypt` it sees the ClientHello alone.
"""
import os
import struct
import subprocess
import unittest

import frame_streams
import store_wire
import tls_hello
from format_job import BINARIES, PROGRAM, free_port
from store_wire import HELLO, REQUEST, REPLY
from tcp_proxy import Proxy


TUTTI = os.path.join(BINARIES, "bin", "tutti")
KEY = os.path.join(BINARIES, "tests.key")


def job_key():
    with open(KEY, encoding="ascii") as file:
        return bytes.fromhex(file.read().strip())


class Channels(unittest.TestCase):
    def talk(self, protection):
        """What ranks and the launcher's store say to each other."""
        port = free_port()
        proxy = Proxy(port)
        self.addCleanup(proxy.close)
        environment = dict(os.environ, TUTTI_PROTECT=protection, TUTTI_TUNE="off",
                           TUTTI_TIMEOUT_MS="20000")
        command = [TUTTI, "run", "-n", "2", "--master-port", str(port), "--key-file", KEY,
                   "sh", "-c", f"MASTER_PORT={proxy.port} exec {PROGRAM}"]
        job = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(job.returncode, 0, job.stdout)
        for conversation in proxy.conversations:
            conversation.wait()
        return [conversation for conversation in proxy.conversations if conversation.answered]

    def check_hello(self, record, protection):
        self.assertLessEqual(len(record), 2048)
        hello = tls_hello.ClientHello(record)
        self.assertEqual(hello.versions, [tls_hello.TLS_1_3])
        self.assertIn(tls_hello.AES_128_GCM_SHA256, hello.suites)
        self.assertEqual(set(hello.suites) - {0x00ff}, {tls_hello.AES_128_GCM_SHA256})
        self.assertEqual(hello.groups, [tls_hello.X25519])
        self.assertEqual(hello.shares, [(tls_hello.X25519, 32)])
        self.assertEqual(hello.modes, [tls_hello.PSK_DHE_KE])
        self.assertNotIn(tls_hello.EARLY_DATA, hello.extensions)
        self.assertEqual(hello.identities, [f"tutti1|0|{protection}".encode()])
        self.assertEqual(hello.binders, [hello.binder_of(tls_hello.epoch_key(job_key(), 0))])
        self.assertNotEqual(hello.binders, [hello.binder_of(tls_hello.epoch_key(job_key(), 1))])
        self.assertNotEqual(hello.binders, [hello.binder_of(job_key())])

    def check_store(self, said, answered):
        self.assertEqual((said[:len(HELLO)], answered[:len(HELLO)]), (HELLO, HELLO))
        said, answered, names = said[len(HELLO):], answered[len(HELLO):], []
        while said:
            bytes_ = REQUEST.decode(said)["bytes"]
            request = store_wire.Request.decode(said[:32], said[32:32 + bytes_])
            said = said[32 + bytes_:]
            bytes_ = REPLY.decode(answered)["bytes"]
            reply = store_wire.Reply.decode(answered[:24], answered[24:24 + bytes_])
            answered = answered[24 + bytes_:]
            self.check_pair(request, reply)
            names.append(request.name)
        self.assertEqual(answered, b"")
        self.assertIn("set", names)
        self.assertIn("get", names)

    def check_pair(self, request, reply):
        if reply.status < 0:
            self.assertEqual(len(reply.values), 1)
        elif request.name == "get":
            self.assertEqual(len(reply.values), len(request.keys))
        elif request.name == "set":
            self.assertEqual((reply.number, reply.values), (0, []))

    def test_auth_leaves_tls_for_clear_records(self):
        conversations = self.talk("auth")
        self.assertTrue(conversations)
        for conversation in conversations:
            records, said = tls_hello.split_handshake(conversation.said, 1)
            self.check_hello(records[0], "auth")
            self.assertEqual(struct.unpack_from(">BHH", records[-1])[2], 4 + 32 + 1 + 16)
            kinds = [record[0] for record in records]
            self.assertEqual(kinds[0], tls_hello.HANDSHAKE)
            answered = self.after_handshake(conversation.answered)
            self.check_store(frame_streams.plain(said), frame_streams.plain(answered))

    def after_handshake(self, data):
        """What the server says after its Finished: that comes in one record of TLS or in two."""
        for encrypted in (1, 2):
            records, rest = tls_hello.split_handshake(data, encrypted)
            self.assertEqual(records[0][0], tls_hello.HANDSHAKE)
            if rest[:3] != b"\x17\x03\x03":
                return rest
        raise ValueError("more records of TLS than a handshake has")

    def test_encrypt_never_leaves_tls(self):
        conversations = self.talk("encrypt")
        self.assertTrue(conversations)
        for conversation in conversations:
            records, rest = [], conversation.said
            while rest:
                (record,), rest = tls_hello.split_handshake(rest, 0)
                records.append(record)
            self.check_hello(records[0], "encrypt")
            self.assertNotIn(tls_hello.HANDSHAKE, [record[0] for record in records[1:]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
