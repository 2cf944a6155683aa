"""`python -m bench.attacker`: one bounded attack on a port of this machine, for a given time.

It is a process of its own, so that it does not delay the threads that measure. It prints `ready` once the attack runs.
"""

import argparse
import http.client
import resource
import socket
import threading
import time

# Higher than a usual scraper's rate. A much higher rate would measure competition for the CPU.
SCRAPES_PER_CLIENT_PER_S = 5


def idle(port: int, count: int, seconds: float) -> None:
    """Holds `count` connections and sends nothing. Replaces those that are closed, at most `count` per second."""
    until, held = time.monotonic() + seconds, []
    for _ in range(count):
        held.append(_connect(port))
    print("ready", flush=True)
    while time.monotonic() < until:
        time.sleep(0.2)
        held = [it for it in held if it is not None and not _is_closed(it)]
        held += [_connect(port) for _ in range(min(count - len(held), count // 5))]


def silent(port: int, count: int, seconds: float) -> None:
    """Opens `count` connections per second, sends nothing, and closes each after 3 seconds."""
    begun, held, opened = time.monotonic(), [], 0
    print("ready", flush=True)
    while (elapsed := time.monotonic() - begun) < seconds:
        while opened < elapsed * count:
            held.append((time.monotonic(), _connect(port)))
            opened += 1
        while held and time.monotonic() - held[0][0] > 3:
            _, connection = held.pop(0)
            if connection is not None:
                connection.close()
        time.sleep(0.005)


def scrape(port: int, count: int, seconds: float) -> None:
    """Runs `count` clients that scrape the metrics repeatedly over keep-alive connections."""
    until = time.monotonic() + seconds

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        while time.monotonic() < until:
            try:
                connection.request("GET", "/metrics")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
            time.sleep(1 / SCRAPES_PER_CLIENT_PER_S)

    threads = [threading.Thread(target=client) for _ in range(count)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()


def _connect(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=1)
    except OSError:
        return None


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        # A server may send first (HTTP/2's SETTINGS).
        while connection.recv(4096):
            pass
        connection.close()
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


ATTACKS = {"idle": idle, "silent": silent, "scrape": scrape}


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="bench.attacker", description=__doc__)
    parser.add_argument("attack", choices=list(ATTACKS))
    parser.add_argument("port", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("seconds", type=float)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ATTACKS[arguments.attack](arguments.port, arguments.count, arguments.seconds)


if __name__ == "__main__":
    main()
