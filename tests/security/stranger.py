# SPDX-License-Identifier: Apache-2.0
"""
A stranger who floods the ports of a job's hosts as soon as they open. Run as a program.

    stranger.py KIND FILE PID...

KIND is `idle` (connections without a word), `half` (beginnings of what a rank would say), `syn` (connections that are
never completed, from addresses that nobody has) or `replay` (what FILE has of earlier connections, a line of
hexadecimal digits for each). A PID stands for a host: its network is the one of that process. Prints "many" once it has
tried often, and goes on until it is killed.
"""

import collections
import contextlib
import itertools
import pathlib
import random
import socket
import struct
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import attacker

MOST_OPEN = 600  # more than any queue of strangers takes
MANY = 300

BEGINNINGS = (
    b"HVDH" + struct.pack("<IQIIII", 1, 0, 0, 1, 4, 0),
    b"HVDSTOR1" + struct.pack("<I", 100),
    bytes.fromhex("16030102000100") + bytes(40),
)


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~((total >> 16) + total) & 0xFFFF


def syn(source: str, target: str, port: int, rng: random.Random) -> bytes:
    """Return a packet that opens a connection."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    tcp = struct.pack(">HHIIBBHHH", rng.randrange(1024, 65536), port, rng.getrandbits(32), 0, 0x50, 2, 64240, 0, 0)
    sum_of_all = checksum(ends + struct.pack(">HH", socket.IPPROTO_TCP, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack(">H", sum_of_all) + tcp[18:]
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + ends + tcp


def ports_of(pids: list[str]) -> list[tuple[str, int]]:
    """Return the open ports of the hosts; those that have ended have none."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= set(attacker.open_ports(int(pid)))
    return sorted(where for where in found if where[0].startswith("10."))


def main() -> None:
    kind, file, *pids = sys.argv[1:]
    rng = random.Random(1)
    words = {"idle": [b""], "half": BEGINNINGS, "syn": [b""]}.get(kind)
    if words is None:
        words = [bytes.fromhex(line) for line in pathlib.Path(file).read_text().split()]
    tried, looked = 0, 0.0
    ports: list[tuple[str, int]] = []
    opened: collections.deque[socket.socket] = collections.deque()
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    for number in itertools.count():
        if time.monotonic() > looked + 0.02:
            ports = ports_of(pids)
            looked = time.monotonic()
        if not ports:
            time.sleep(0.005)
            continue
        address, port = ports[number % len(ports)]
        tried += 1
        if tried == MANY:
            print("many", flush=True)
        if kind == "syn":
            with contextlib.suppress(OSError):
                raw.sendto(syn(f"10.78.0.{rng.randrange(100, 200)}", address, port, rng), (address, 0))
            continue
        while len(opened) >= MOST_OPEN:
            opened.popleft().close()
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((address, port))
        opened.append(one)
        if number % 16 == 15:
            for recent in itertools.islice(reversed(opened), 16):
                with contextlib.suppress(OSError):  # not connected yet, or dropped already
                    recent.send(rng.choice(words))


if __name__ == "__main__":
    main()
