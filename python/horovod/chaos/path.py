# SPDX-License-Identifier: Apache-2.0
"""
Hosts on a path that nobody may trust: network namespaces that reach each other through one process alone.

Each host has a network of its own with one device, whose packets come to the relay process as bytes. The relay loses,
delays and changes packets as words of shared memory tell it at that moment. Namespaces have no names, so they are gone
with the last process that is in one of them. Needs root.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import heapq
import mmap
import os
import random
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator

from horovod.chaos import system

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8922, 0x8913, 0x8914
_IFF_UP = 1
_MTU = 9000  # fewer packets than with 1500, and still several to a frame
_TCP = 6
_BATCH = 64

# Words that the relay obeys, and those in which it counts. CHANGE changes one packet.
LOSS, DELAY_US, CUT, CHANGE, CHANGED, FROM_PORT, TO_PORT, PASSED = range(8)
# Values of CHANGE.
NOTHING, CONTROL, TENSORS, HELLOS, ANY = range(5)

WHAT = {"control": CONTROL, "tensors": TENSORS}
_OF = {"loss": LOSS, "lag": DELAY_US}
_MOST_STRANGERS = 600  # more than any queue of strangers takes

# A frame begins with its magic number and its type; what is longer than the header has the payload after it.
_MAGIC, _HEADER = b"\x76\x48", 24
_TYPES = {CONTROL: (1,), TENSORS: (2, 5)}
# supported_versions of a ClientHello: the list with TLS 1.3 alone.
_TLS_13 = bytes.fromhex("002b0003020304")


class Path:
    """
    Some hosts and the relay between them. `words` has the words above.

    Thread safety: none; the words may be written at any time.
    """

    def __init__(self, hosts: int, seed: int = 1) -> None:
        """OSError: the system does not allow that."""
        self.addresses = [f"10.78.0.{number + 1}" for number in range(hosts)]
        self._stranger = 0
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self.words = memoryview(self._memory).cast("q")
        ready, tell = os.pipe()
        self.pid = system.fork(lambda: self._serve(tell, seed), (tell,))
        os.close(tell)
        with open(ready) as lines:
            answer = lines.readline().split(maxsplit=1)
        if answer[:1] != ["ready"]:
            os.waitpid(self.pid, 0)
            raise OSError(" ".join(answer) or "the relay did not start")
        self._networks = [int(number) for number in answer[1].split(",")]

    @contextlib.contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """Have the calling thread in the network of a host."""
        with open("/proc/thread-self/ns/net") as before:
            enter(self.network(host))
            try:
                yield
            finally:
                system.enter_network(before.fileno())

    def network(self, host: int) -> str:
        """Return the file that stands for the network of a host."""
        return f"/proc/{self.pid}/fd/{self._networks[host]}"

    def close(self) -> None:
        """End the relay."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def reset(self) -> None:
        """Let everything pass unchanged, and count anew."""
        for word in range(PASSED):
            self.words[word] = 0
        self.mend("flood")

    def flood(self, pids: list[int]) -> None:
        """Have the last host open connections to all ports that processes of other hosts see, as fast as it can."""
        self.mend("flood")
        self._stranger = system.fork(lambda: self._strange(pids), ())

    def mend(self, kind: str) -> None:
        """End a fault."""
        if kind in _OF:
            self.words[_OF[kind]] = 0
        elif self._stranger:
            os.kill(self._stranger, signal.SIGKILL)
            os.waitpid(self._stranger, 0)
            self._stranger = 0

    def _strange(self, pids: list[int]) -> None:
        enter(self.network(len(self.addresses) - 1))
        opened: collections.deque[socket.socket] = collections.deque()
        looked, ports = 0.0, []
        while True:
            if time.monotonic() > looked + 0.02:
                looked, ports = time.monotonic(), sorted(open_ports(pids))
            for where in ports:
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(where)
                opened.append(one)
                if len(opened) > _MOST_STRANGERS:
                    opened.popleft().close()
            if not ports:
                time.sleep(0.005)

    def _serve(self, tell: int, seed: int) -> None:
        networks, devices = [], {}
        try:
            for address in self.addresses:
                system.unshare_network()
                networks.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
                devices[socket.inet_aton(address)] = _device(address)
        except OSError as error:
            os.write(tell, str(error).encode())
            return
        os.write(tell, f"ready {','.join(map(str, networks))}\n".encode())
        os.close(tell)
        _Relay(devices, self.words, random.Random(seed)).run()


def enter(network: str) -> None:
    """Move the calling thread into a network that `Path.network` or /proc/PID/ns/net names."""
    descriptor = os.open(network, os.O_RDONLY)
    try:
        system.enter_network(descriptor)
    finally:
        os.close(descriptor)


def open_ports(pids: list[int]) -> set[tuple[str, int]]:
    """Return the addresses of hosts of a path that wait for connections, in the networks of these processes."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/tcp") as lines:
            for line in list(lines)[1:]:
                where, state = line.split()[1], line.split()[3]
                address, port = where.split(":")
                text = socket.inet_ntoa(bytes.fromhex(address)[::-1])
                if state == "0A" and text.startswith("10.78."):
                    found.add((text, int(port, 16)))
    return found


def _device(address: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"path", _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as configure:

        def ask(request: int, name: bytes, value: bytes) -> bytes:
            return fcntl.ioctl(configure, request, struct.pack("16s24s", name, value))

        def ipv4(text: str) -> bytes:
            return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))

        ask(_SIOCSIFADDR, b"path", ipv4(address))
        ask(_SIOCSIFNETMASK, b"path", ipv4("255.255.255.0"))
        ask(_SIOCSIFMTU, b"path", struct.pack("i", _MTU))
        for name in (b"path", b"lo"):
            flags = struct.unpack_from("H", ask(_SIOCGIFFLAGS, name, b""), 16)[0]
            ask(_SIOCSIFFLAGS, name, struct.pack("H", flags | _IFF_UP))
    return device


class _Relay:
    def __init__(self, devices: dict[bytes, int], words: memoryview, rng: random.Random) -> None:
        self.devices = devices
        self.words = words
        self.rng = rng
        self.late: list[tuple[float, int, int, bytes]] = []  # when, a number of its own, device, packet
        self.count = 0
        self.reached: dict[bytes, int] = {}  # by addresses and ports: where the data that has passed ends

    def run(self) -> None:
        poll = select.poll()
        for device in self.devices.values():
            poll.register(device, select.POLLIN)
        while True:
            wait = max(self.late[0][0] - time.monotonic(), 0) * 1000 if self.late else None
            for device, _ in poll.poll(wait):
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_BATCH):
                        self._take(os.read(device, _MTU + 100))
            now = time.monotonic()
            while self.late and self.late[0][0] <= now:
                _, _, device, packet = heapq.heappop(self.late)
                _write(device, packet)

    def _take(self, packet: bytes) -> None:
        device = self.devices.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        words = self.words
        if device is None or words[CUT] or (words[LOSS] and self.rng.randrange(10000) < words[LOSS]):
            return
        if packet[9] == _TCP and self._is_new(packet) and words[CHANGE]:
            packet = self._change(packet)
        words[PASSED] += 1
        if not words[DELAY_US]:
            _write(device, packet)
            return
        self.count += 1
        due = time.monotonic() + words[DELAY_US] * self.rng.uniform(0.5, 1.5) / 1e6
        heapq.heappush(self.late, (due, self.count, device, packet))

    def _is_new(self, packet: bytes) -> bool:
        """Whether its data has not passed before: a change of what the receiver has already is of no effect."""
        tcp = (packet[0] & 15) * 4
        stream = packet[12:20] + packet[tcp : tcp + 4]
        begin = struct.unpack_from(">I", packet, tcp + 4)[0]
        new = (begin - self.reached.get(stream, begin)) & 0xFFFFFFFF < 1 << 31
        if new:
            self.reached[stream] = (begin + len(packet) - tcp - (packet[tcp + 12] >> 4) * 4) & 0xFFFFFFFF
        return new

    def _change(self, packet: bytes) -> bytes:
        tcp = (packet[0] & 15) * 4
        begin = tcp + (packet[tcp + 12] >> 4) * 4
        where = self._where(packet, begin)
        if where is None:
            return packet
        words = self.words
        words[FROM_PORT], words[TO_PORT] = struct.unpack_from(">HH", packet, tcp)
        words[CHANGED] += 1
        words[CHANGE] = NOTHING
        return flip(packet, tcp, where)

    def _where(self, packet: bytes, begin: int) -> int | None:
        """Return the byte to change."""
        kind = self.words[CHANGE]
        if kind == HELLOS:
            found = packet.find(_TLS_13, begin)
            return found + len(_TLS_13) - 1 if found >= 0 else None
        if kind == ANY:
            return self.rng.randrange(begin, len(packet)) if begin < len(packet) else None
        for number in _TYPES[kind]:
            found = packet.find(_MAGIC + bytes((number, 0)), begin)
            payload = found + _HEADER
            if found >= 0 and payload < len(packet):
                length = struct.unpack_from("<I", packet, found + 4)[0]
                return self.rng.randrange(payload, min(payload + length, len(packet)))
        return None


def flip(packet: bytes, tcp: int, where: int) -> bytes:
    """Return a packet with one bit of a TCP segment changed, and a checksum to match."""
    changed = bytearray(packet)
    changed[where] ^= 7 if packet[where] == 4 else 1  # of TLS 1.3 this makes 1.2
    word = where - (where - tcp) % 2
    # What the checksum is the sum of, without the old word and with the new one.
    total = ~struct.unpack_from(">H", packet, tcp + 16)[0] & 0xFFFF
    for text, sign in ((packet, -1), (changed, 1)):
        value = struct.unpack(">H", bytes(text[word : word + 2]).ljust(2, b"\0"))[0]
        total += value if sign > 0 else ~value & 0xFFFF
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", changed, tcp + 16, ~total & 0xFFFF)
    return bytes(changed)


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # a full queue loses packets, as those of routers do
        os.write(device, packet)
