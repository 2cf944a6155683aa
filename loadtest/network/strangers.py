"""What a list may name in place of an I/O node: servers that speak something else, or nothing.

usage: python -m network.strangers KIND [HOST:PORT]
"""

import http.server
import socket
import sys
import threading

from .nodes import PORT

# Of Welcome.revision: the field's tag and what it says; the same length as what it stands for.
REVISION, LATER = b"\x20\x01", b"\x20\x63"
PIECE = 65_536


def silent(_: socket.socket) -> None:
    """Takes connections, and says nothing."""
    threading.Event().wait()


def babbling(connection: socket.socket) -> None:
    """Answers with what is no HTTP."""
    connection.recv(PIECE)
    connection.sendall(b"220 mail.example ESMTP\r\n" * 8)
    connection.recv(PIECE)


def hanging_up(_: socket.socket) -> None:
    """Ends each connection at once."""


def later(connection: socket.socket) -> None:
    """An I/O node of a later revision of the protocol: a real one, of whose Welcome that one byte is changed."""
    host, port = sys.argv[2].split(":")
    node = socket.create_connection((host, int(port)))
    threading.Thread(target=_pass_on, args=(connection, node, lambda piece: piece), daemon=True).start()
    name = sys.argv[3].encode()
    _pass_on(node, connection, lambda piece: _told_later(piece, name))


def _told_later(piece: bytes, name: bytes) -> bytes:
    changed = piece.replace(name + REVISION, name + LATER)
    if changed != piece:
        print("changed", flush=True)
    return changed


def _pass_on(source: socket.socket, sink: socket.socket, changed: object) -> None:
    while piece := source.recv(PIECE):
        sink.sendall(changed(piece))
    sink.shutdown(socket.SHUT_WR)


KINDS = {"silent": silent, "babbling": babbling, "hanging-up": hanging_up, "later": later}


def main() -> None:
    """Until it is killed."""
    kind = sys.argv[1]
    if kind == "http":
        http.server.ThreadingHTTPServer(("0.0.0.0", PORT), http.server.SimpleHTTPRequestHandler).serve_forever()
    listener = socket.create_server(("0.0.0.0", PORT))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve, args=(KINDS[kind], connection), daemon=True).start()


def _serve(kind: object, connection: socket.socket) -> None:
    with connection:
        try:
            kind(connection)
        except OSError:
            # It was ended from the other side.
            pass


if __name__ == "__main__":
    main()
