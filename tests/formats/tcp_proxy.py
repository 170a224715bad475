"""A man in the middle of tcp connections, who passes on every byte and keeps a copy."""
import socket
import threading


class Conversation:
    """Both directions of a connection: what who connected said, and what was answered."""

    def __init__(self):
        self.said, self.answered = bytearray(), bytearray()
        self.threads, self.sockets = [], []

    def wait(self):
        """Until both directions have ended, and all of them is here."""
        for thread in self.threads:
            thread.join(20)
            if thread.is_alive():
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
            conversation = Conversation()
            conversation.sockets = [caller, called]
            for source, sink, copy in ((caller, called, conversation.said),
                                       (called, caller, conversation.answered)):
                conversation.threads.append(threading.Thread(
                    target=self.pass_on, args=(source, sink, copy), daemon=True))
            for thread in conversation.threads:
                thread.start()
            self.conversations.append(conversation)

    @staticmethod
    def pass_on(source, sink, copy):
        try:
            while data := source.recv(1 << 16):
                copy += data
                sink.sendall(data)
        except OSError:  # whoever died has reset it
            pass
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
