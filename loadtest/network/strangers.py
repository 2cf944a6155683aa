"""Servers that a list names in place of an I/O node: they speak another protocol, send nothing or
hang up.

usage: python -m network.strangers KIND [HOST:PORT NAME]; the kind `later` relays to the I/O node NAME at HOST:PORT
"""

import http.server
import socket
import sys
import threading

from .nodes import PORT

# Welcome.revision on the wire: the field's tag and its value 1, and a replacement of the same length with value 99.
REVISION, LATER = b"\x20\x01", b"\x20\x63"
PIECE = 65_536


def silent(_: socket.socket) -> None:
    """Accepts connections and sends nothing."""
    threading.Event().wait()


def babbling(connection: socket.socket) -> None:
    """Answers with a protocol other than HTTP."""
    connection.recv(PIECE)
    connection.sendall(b"220 mail.example ESMTP\r\n" * 8)
    connection.recv(PIECE)


def hanging_up(_: socket.socket) -> None:
    """Closes each connection at once."""


def later(connection: socket.socket) -> None:
    """Stands for an I/O node of a later protocol revision: relays to a real node, and changes the revision in the
    node's Welcome."""
    host, port = sys.argv[2].split(":")
    node = socket.create_connection((host, int(port)))
    threading.Thread(target=_copy, args=(connection, node, lambda piece: piece), daemon=True).start()
    name = sys.argv[3].encode()
    _copy(node, connection, lambda piece: _with_later_revision(piece, name))


def _with_later_revision(piece: bytes, name: bytes) -> bytes:
    changed = piece.replace(name + REVISION, name + LATER)
    if changed != piece:
        print("changed", flush=True)
    return changed


def _copy(source: socket.socket, sink: socket.socket, changed: object) -> None:
    while piece := source.recv(PIECE):
        sink.sendall(changed(piece))
    sink.shutdown(socket.SHUT_WR)


KINDS = {"silent": silent, "babbling": babbling, "hanging-up": hanging_up, "later": later}


def main() -> None:
    """Serves until it is killed."""
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
            # The other side closed the connection.
            pass


if __name__ == "__main__":
    main()
