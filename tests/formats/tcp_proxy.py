"""A man in the middle of tcp connections, who passes on every byte and keeps a copy."""
import socket
import threading


class Direction:
    """One direction of a connection: what was said, and whether more may come."""

    def __init__(self, source, sink):
        self.source, self.sink, self.copy = source, sink, bytearray()
        self.has_ended = threading.Event()

    def pass_on(self):
        try:
            while data := self.source.recv(1 << 16):
                self.copy += data
                self.sink.sendall(data)
        except OSError:  # whoever died has reset it
            pass
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.has_ended.set()


class Conversation:
    def __init__(self, caller, called):
        self.sockets = caller, called
        self.directions = Direction(caller, called), Direction(called, caller)

    @property
    def said(self):
        """By who connected."""
        return self.directions[0].copy

    @property
    def answered(self):
        return self.directions[1].copy

    def start(self):
        for direction in self.directions:
            threading.Thread(target=direction.pass_on, daemon=True).start()

    def wait(self):
        """Until both directions have ended, and all of them is here."""
        for direction in self.directions:
            if not direction.has_ended.wait(20):
                raise TimeoutError("a connection does not end")
        for connected in self.sockets:
            connected.close()


class Proxy:
    def __init__(self, port, host="127.0.0.1"):
        self.target, self.conversations = (host, port), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                caller, _ = self.listener.accept()
                called = socket.create_connection(self.target)
            except OSError:
                return
            self.conversations.append(Conversation(caller, called))
            self.conversations[-1].start()
