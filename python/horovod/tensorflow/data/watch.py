# SPDX-License-Identifier: Apache-2.0
"""The open connection of a process to the registration service: events come over it, and its end is the service's."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable

from horovod.tensorflow.data.client import ComputeClient

LOST = "lost"


class Watch:
    """
    Calls a function with every event, in a thread of its own; the last one is `shutdown`, `lost` or none after `close`.

    The events begin with `start`.

    Thread safety: all methods by any thread.
    """

    def __init__(self, client: ComputeClient, on_event: Callable[[dict[str, Any]], None], **who: Any) -> None:
        self._channel, self.host = client.connect()
        self._on_event = on_event
        self._closed = False
        self._lock = threading.Lock()
        self._channel.send({"call": "watch", **who})
        answer = self._channel.receive()
        if answer is None or "result" not in answer:
            raise ConnectionError(f"{client.name()} ended while this process registered")
        self.run: int = answer["result"]["run"]
        self.owner: str = answer["result"]["owner"]

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._listen, name="hvd data service watch", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Tell the service something; a service that is gone does not hear it."""
        with self._lock, contextlib.suppress(OSError):
            self._channel.send(message)

    def close(self) -> None:
        """Leave in order."""
        self._closed = True
        self.send(bye=True)
        self._channel.close()

    def _listen(self) -> None:
        while True:
            try:
                event = self._channel.receive()
            except OSError:
                event = None
            if self._closed:
                return
            if event is None:
                self._on_event({"event": LOST})
                return
            self._on_event(event)
            if event["event"] == "shutdown":
                return
