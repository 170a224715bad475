"""The tcp store of docs/formats/store.md, both sides of it: requests and replies as bytes, a
client, and a server that says what it was asked."""
import socket
import struct
import threading

import clear_records
from layouts import Layout, tables

HELLO = b"tutti store 1\n\0\0"
REQUEST = Layout("store.md", "request")
REPLY = Layout("store.md", "reply")
OPERATIONS = {int(row[1]): row[0] for row in tables("store.md")["operations"]}
NUMBERS = {name: number for number, name in OPERATIONS.items()}
HEAD = 32
REPLY_HEAD = 24
VALUES = {"set": None, "append": 1, "compare_set": 2, "will": 1, "watch": 1}
OK, TIMEOUT, NOT_FOUND, ARGUMENT = 0, -8, -14, -1


def pack_texts(texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def unpack_texts(body, count):
    """Exactly so many texts, and no byte behind them."""
    found, at = [], 0
    for _ in range(count):
        length, = struct.unpack_from("<I", body, at)
        found.append(bytes(body[at + 4:at + 4 + length]))
        at += 4 + length
        if at > len(body):
            raise ValueError("a text reaches past the body")
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes too many in a body")
    return found


class Request:
    def __init__(self, name, keys=(), values=(), wait_ms=0, number=0):
        self.name, self.keys, self.values = name, list(keys), list(values)
        self.wait_ms, self.number = wait_ms, number

    def encode(self):
        body = pack_texts(self.keys + self.values)
        head = REQUEST.encode({"bytes": len(body), "operation": NUMBERS[self.name],
                               "number of keys": len(self.keys),
                               "milliseconds": self.wait_ms, "number:": self.number})
        return head + body

    @staticmethod
    def decode(head, body):
        fields = REQUEST.decode(head)
        name = OPERATIONS[fields["operation"]]
        if any(fields[5]) or fields[24] != 0:
            raise ValueError("a reserved field of a request is not 0")
        count = fields["number of keys"]
        values = VALUES.get(name, 0)
        texts = unpack_texts(body, count + (count if values is None else values))
        return Request(name, texts[:count], texts[count:], fields["milliseconds"],
                       fields["number:"])


class Reply:
    def __init__(self, status=OK, number=0, values=()):
        self.status, self.number, self.values = status, number, list(values)

    def encode(self):
        body = pack_texts(self.values)
        return REPLY.encode({"bytes": len(body), "status": self.status, "number$": self.number,
                             "number of values": len(self.values)}) + body

    @staticmethod
    def decode(head, body):
        fields = REPLY.decode(head)
        if fields[20] != 0:
            raise ValueError("a reserved field of a reply is not 0")
        return Reply(fields["status"], fields["number$"],
                     unpack_texts(body, fields["number of values"]))


class Client:
    def __init__(self, host, port):
        self.connection = clear_records.Connection(socket.create_connection((host, port), 10))
        self.connection.send(HELLO)
        if self.connection.receive(len(HELLO)) != HELLO:
            raise ValueError("the store said another hello")

    def ask(self, *args, **fields):
        return self.send(Request(*args, **fields).encode())

    def send(self, data):
        """The reply; None if the server ended the connection."""
        self.connection.send(data)
        head = self.connection.receive(REPLY_HEAD)
        if head is None:
            return None
        return Reply.decode(head, self.connection.receive(REPLY.decode(head)["bytes"]) or b"")


class Server:
    """Serves on 127.0.0.1; *rewrite* may change what a set puts: rewrite(key, value) -> value."""

    def __init__(self, rewrite=None):
        self.contents, self.requests, self.errors = {}, [], []
        self.changed = threading.Condition()
        self.rewrite = rewrite or (lambda key, value: value)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def wait_for(self, key_ends, seconds=20):
        """The (key, value) whose key ends so, once there is one."""
        def find():
            return [item for item in self.contents.items() if item[0].endswith(key_ends)]
        with self.changed:
            if not self.changed.wait_for(find, seconds):
                raise TimeoutError(f"nobody has put {key_ends}: {sorted(self.contents)}")
            return find()[0]

    def accept(self):
        while True:
            try:
                connected, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connected,), daemon=True).start()

    def serve(self, connected):
        connection, will = clear_records.Connection(connected), []
        try:
            if connection.receive(len(HELLO)) != HELLO:
                raise ValueError("a client said another hello")
            connection.send(HELLO)
            while (head := connection.receive(HEAD)) is not None:
                body = connection.receive(REQUEST.decode(head)["bytes"])
                request = Request.decode(head, body)
                if request.name == "will":
                    will[:] = [(request.keys[0], request.values[0])]
                    reply = Reply()
                else:
                    reply = self.perform(request)
                connection.send(reply.encode())
        except (ConnectionError, TimeoutError):
            pass
        except Exception as error:  # a test looks at them
            self.errors.append(error)
        connected.close()
        for key, value in will:
            with self.changed:
                self.contents[key] = self.contents.get(key, b"") + value
                self.changed.notify_all()

    def perform(self, request):
        with self.changed:
            self.requests.append(request)
            reply = getattr(self, "do_" + request.name)(request)
            self.changed.notify_all()
            return reply

    def do_set(self, request):
        for key, value in zip(request.keys, request.values):
            self.contents[key] = self.rewrite(key, value)
        return Reply()

    def wait_until(self, request, is_so):
        return self.changed.wait_for(is_so, request.wait_ms / 1000)

    def do_get(self, request):
        if not self.do_wait(request).status == OK:
            return Reply(TIMEOUT, values=[b"not all keys exist"])
        return Reply(values=[self.contents[key] for key in request.keys])

    def do_wait(self, request):
        if self.wait_until(request, lambda: all(k in self.contents for k in request.keys)):
            return Reply()
        return Reply(TIMEOUT, values=[b"not all keys exist"])

    def do_add(self, request):
        key = request.keys[0]
        total = int(self.contents.get(key, b"0")) + request.number
        self.contents[key] = str(total).encode()
        return Reply(number=total)

    def do_compare_set(self, request):
        key, (expected, desired) = request.keys[0], request.values
        if self.contents.get(key, b"" if not expected else None) == expected:
            self.contents[key] = desired
        return Reply(values=[self.contents.get(key, expected)])

    def do_check(self, request):
        return Reply(number=int(all(key in self.contents for key in request.keys)))

    def do_delete(self, request):
        return Reply(number=sum(self.contents.pop(k, None) is not None for k in request.keys))

    def do_num_keys(self, request):
        start = request.keys[0] if request.keys else b""
        return Reply(number=sum(key.startswith(start) for key in self.contents))

    def do_append(self, request):
        key = request.keys[0]
        self.contents[key] = self.contents.get(key, b"") + request.values[0]
        return Reply()

    def do_list(self, request):
        found = sorted(key for key in self.contents if key.startswith(request.keys[0]))
        return Reply(number=len(found), values=[pack_texts(found)])

    def do_watch(self, request):
        key, known = request.keys[0], request.values[0]
        if self.wait_until(request, lambda: self.contents.get(key, known) != known):
            return Reply(values=[self.contents[key]])
        return Reply(TIMEOUT, values=[b"the value is the known one"])
