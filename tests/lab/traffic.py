"""Real traffic between nodes: this file is both the program that runs in a node and the helpers that start it there.

traffic.py serve HOST PORT             take (length, bytes) over TCP and answer each with one byte
traffic.py connect HOST PORT BYTES     say what came of sending so many bytes: ok SECONDS, refused, silent, ...
traffic.py count PORT                  count UDP packets until a quarter of a second passes without one
traffic.py send HOST PORT NUM BYTES    send UDP packets, with "don't fragment"
traffic.py resolve NAME                the IPv4 address of a name
"""

import contextlib
import errno
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

WAIT_S = 1.5  # on one machine an answer takes well under a millisecond; this many seconds of silence are silence
LOADED_S = 10.0  # how long something that does come may take on a loaded machine
PYTHON = [sys.executable, "-I", "-S", __file__]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def tell(answer: object) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def serve(host: str, port: int) -> None:
    with socket.create_server((host, port), family=_family(host)) as server:
        tell("ready")
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as stream:
        while header := stream.read(8):
            stream.read(struct.unpack("!Q", header)[0])
            connection.sendall(b"k")


def connect(host: str, port: int, num_bytes: int) -> str:
    begun = time.monotonic()
    try:
        connection = socket.create_connection((host, port), timeout=WAIT_S)
    except OSError as error:
        known = {errno.ECONNREFUSED: "refused", errno.EHOSTUNREACH: "no-route", errno.ENETUNREACH: "no-route"}
        return "silent" if isinstance(error, TimeoutError) else known.get(error.errno or 0, str(error))
    with connection:
        # Small transfers must come within WAIT_S; long ones may take their time, as a slow link makes them do.
        connection.settimeout(WAIT_S if num_bytes < 500_000 else LOADED_S)
        try:
            connection.sendall(struct.pack("!Q", num_bytes) + bytes(num_bytes))
            connection.recv(1)
        except TimeoutError:
            return "stuck"
    return f"ok {time.monotonic() - begun:.3f}"


def count(port: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind(("0.0.0.0", port))
        tell("ready")
        sys.stdin.readline()  # everything has been sent, and one machine delivers before send returns
        receiver.settimeout(0.25)
        got = 0
        with contextlib.suppress(TimeoutError):
            while True:
                receiver.recv(65535)
                got += 1
        return got


def send(host: str, port: int, num: int, num_bytes: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        for i in range(num):
            sender.sendto(bytes(num_bytes), (host, port))
            if i % 20 == 19:
                time.sleep(0.001)
    return "sent"


def resolve(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return "unresolved"


def main(verb: str, *words: str) -> None:
    if verb == "serve":
        serve(words[0], int(words[1]))
    elif verb == "connect":
        tell(connect(words[0], int(words[1]), int(words[2])))
    elif verb == "count":
        tell(count(int(words[0])))
    elif verb == "send":
        tell(send(words[0], int(words[1]), int(words[2]), int(words[3])))
    elif verb == "resolve":
        tell(resolve(words[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])


# What tests call.  `lab` is an `allready.lab.Lab`; it is not imported, because the file also runs in the nodes.


@contextlib.contextmanager
def serving(lab: Any, node: int, port: int, host: str = "0.0.0.0") -> Iterator[None]:
    with _started(lab, node, "serve", host, str(port)):
        yield


@contextlib.contextmanager
def _started(lab: Any, node: int, *words: str) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    process = lab.popen(node, [*PYTHON, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def reach(lab: Any, source: int, host: str, port: int, num_bytes: int = 64) -> str:
    """ "ok", "refused", "silent", "no-route" or "stuck"."""
    return say(lab, source, "connect", host, str(port), str(num_bytes)).split()[0]


def reaches_within(lab: Any, source: int, host: str, port: int, *, timeout_s: float = 10) -> bool:
    """Whether a connection comes about in time; after a link was down, neighbour discovery takes its second."""
    deadline = time.monotonic() + timeout_s
    while reach(lab, source, host, port) != "ok":
        if time.monotonic() > deadline:
            return False
    return True


def seconds(lab: Any, source: int, host: str, port: int, num_bytes: int) -> float:
    answer = say(lab, source, "connect", host, str(port), str(num_bytes))
    assert answer.startswith("ok "), answer
    return float(answer.split()[1])


def arriving(lab: Any, source: int, target: int, *, num: int = 5, num_bytes: int = 64, port: int = 9000) -> int:
    """How many of `num` UDP packets arrive."""
    with _started(lab, target, "count", str(port)) as counter:
        say(lab, source, "send", lab.view.address(target), str(port), str(num), str(num_bytes))
        out, err = counter.communicate("done\n", timeout=20)
        assert not err, err
        return int(out)


def say(lab: Any, node: int, *words: str) -> str:
    done = lab.run(node, [*PYTHON, *words], timeout_s=30)
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()
