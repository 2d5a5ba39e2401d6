# SPDX-License-Identifier: Apache-2.0
"""
State that survives the loss of ranks, and the loop that enters a training function again after a change of the job.

`commit` keeps the state in this process's memory, by reference if the framework allows it, and returns when every rank
holds the same commit. Each rank keeps its two newest commits, because a rank may be lost while others make the newest
one. So the ranks that are left find a commit that all of them hold, and restore it without sending anything.

`run` asks the engine whether the job changed; it does not judge by an exception's class, because frameworks wrap
errors of operations in classes of their own.

Thread safety: a state belongs to the thread that trains. `on_hosts_updated` may be called from any thread.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import queue
import warnings
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np

from horovod.common import abi, elastic_resets, elastic_verify, membership, request
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.elastic_resets import collector
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.operation import Operation
from horovod.common.status import NOT_INITIALIZED

_SHUT_DOWN = "Horovod has been shut down"  # begins the text of every operation that a lost member makes fail
_REMOVED = 1  # what an update of the hosts was: hosts only left

_basics = HorovodBasics()


class Notifications:
    """Forwards changes of the hosts to the states that listen."""

    def __init__(self) -> None:
        self._listeners: list[Any] = []

    def init(self) -> None:
        """Do nothing: for programs that call it."""

    def register_listener(self, listener: Any) -> None:
        """Call `listener.on_hosts_updated` at each change from now on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Any) -> None:
        """Stop calling a listener."""
        self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell all listeners that the hosts changed."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = Notifications()


class State:
    """
    What a training function changes, with the means to keep it, to take it back and to send it to new ranks.

    Subclasses define `save`, `restore` and `sync`. `bcast_object` returns rank 0's object on every rank and `get_rank`
    this process's rank.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue = queue.Queue()
        self._reset_callbacks: list[Callable[..., Any]] = []
        self._size = 0  # of the job that the state's values are made for; 0: not known yet
        self._number = 0  # of the newest commit, counted over the whole job
        self._at_commit = False  # nothing has happened since the newest commit

    def register_reset_callbacks(self, callbacks: Iterable[Callable[..., Any]]) -> None:
        """
        Call these functions, in this order, whenever the number of ranks may have changed.

        A function that takes two arguments is given the number of ranks at the commit and the number now.
        """
        for callback in callbacks:
            if not callable(callback):
                raise TypeError(f"{show('callbacks', callback)} cannot be called: give a list of functions")
            self._reset_callbacks.append(callback)

    def on_reset(self) -> None:
        """Take note that the job changed: forget news of it, and call `reset` and the callbacks."""
        self._host_messages = queue.Queue()
        self.reset()
        before, now = self._size, _basics.size()
        self._size = now
        for callback in self._reset_callbacks:
            elastic_resets.call(callback, self, before or now, now)

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take note that hosts came or left; the next commit, or check, of any rank raises on all ranks."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """
        Keep the state, and return when every rank holds this commit.

        Raises HostsUpdatedInterrupt on all ranks if hosts came or left; `run` then calls the function again.
        """
        self._number += 1
        self.save()
        membership.report_commit(self._number)
        changed, only_removed = self._news()
        changed = _agree_on_change(changed, self._number)
        membership.committed()
        self._verify()
        collector.resume()
        if changed:
            self._at_commit = True
            raise HostsUpdatedInterrupt(only_removed)

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if hosts came or left. Keeps nothing."""
        changed, only_removed = self._news()
        if _agree_on_change(changed, self._number):
            raise HostsUpdatedInterrupt(only_removed)

    def _news(self) -> tuple[bool, bool]:
        """Return whether this rank knows that hosts changed, and whether they only left."""
        kinds = [membership.update_kind()] if membership.hosts_updated() else []
        while not self._host_messages.empty():
            kinds.append(self._host_messages.get()[1])
        return bool(kinds), bool(kinds) and all(kind == _REMOVED for kind in kinds)

    def save(self) -> None:
        """Keep the state in this process."""
        raise NotImplementedError

    def restore(self) -> None:
        """Take the state back to what was kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give every rank the state of rank 0, and keep it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to another number of ranks; called before the callbacks."""

    def _go_back_to(self, number: int) -> bool:
        """Take the state back to that commit. Returns whether this rank held it; otherwise rank 0's state counts."""
        self.restore()
        return False

    def _verify(self) -> None:
        """With HOROVOD_ELASTIC_VERIFY=1, raise HorovodSyncError unless all ranks have kept the same bits."""
        if elastic_verify.enabled():
            elastic_verify.check(self._kept_arrays())

    def _kept_arrays(self) -> Any:
        """Return the arrays of the newest commit that all ranks must have in common, in dicts and lists."""
        return ()


def _agree_on_change(changed: bool, number: int) -> bool:
    """Return whether any rank knows of a change. All ranks must have made as many commits."""
    most, least = _extremes("elastic.commit", changed, number)
    if most[1] != least[1]:
        raise RuntimeError(
            f"the ranks have made between {least[1]} and {most[1]} commits, and this rank {number}: call "
            "state.commit() on every rank after the same steps"
        )
    return bool(most[0])


def _extremes(name: str, *numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the greatest and the least of the ranks' numbers."""
    if not _basics.is_initialized():
        raise ValueError(NOT_INITIALIZED)
    own = np.array([*numbers, *(-number for number in numbers)], np.int64)
    if _basics.size() > 1:
        most = np.empty_like(own)
        operation = Operation(
            op=abi.ALLREDUCE,
            process_set=0,
            dtype=abi.DTYPES["int64"],
            shape=own.shape,
            source=(own.ctypes.data, own.nbytes),
            target=(most.ctypes.data, most.nbytes),
            reduce_op=abi.MAX,
        )
        request.run(operation.named("allreduce", name), (own, most))
        own = most
    greatest, negated = np.split(own, 2)
    return greatest, -negated


class KeepingState(State):
    """
    A state that keeps its two newest commits.

    Subclasses define `_capture`, which returns what a later `_assign` takes the state back to.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        super().__init__(bcast_object, get_rank)
        # At most two, the newest first: number, ranks of the job, values.
        self._commits: list[tuple[int, int, Any]] = []

    def _capture(self, spare: Any) -> Any:
        """Return the state as it is now. `spare` is an old commit whose memory can be used again, or None."""
        raise NotImplementedError

    def _assign(self, kept: Any) -> None:
        """Take the state back to what `_capture` returned, which may be assigned again later."""
        raise NotImplementedError

    def save(self) -> None:
        """Keep the state as the newest commit, and the one before it."""
        if self._commits and self._commits[0][0] == self._number:
            spare = self._commits.pop(0)[-1]
        else:
            spare = self._commits.pop()[-1] if len(self._commits) == 2 else None
        self._commits.insert(0, (self._number, self._size, self._capture(spare)))

    def _arrays_of(self, kept: Any) -> Any:
        """Return the arrays in what `_capture` returned that all ranks must have in common, in dicts and lists."""
        return ()

    def _kept_arrays(self) -> Any:
        return self._arrays_of(self._commits[0][2]) if self._commits and _is_own(self) else ()

    def restore(self) -> None:
        """Take the state back to the newest commit."""
        if self._commits:
            _, self._size, kept = self._commits[0]
            self._assign(kept)

    def _go_back_to(self, number: int) -> bool:
        if _is_own(self) and number >= 0:
            self._commits = [commit for commit in self._commits if commit[0] <= number]
        self.restore()
        return _is_own(self) and bool(self._commits) and self._commits[0][0] == number


def _is_own(state: State) -> bool:
    """Whether a state saves, restores and sends as hvd does. A program's own methods may do more."""
    names = ("save", "restore", "sync")
    return all(getattr(type(state), name).__module__.startswith("horovod.") for name in names)


@dataclasses.dataclass
class _Place:
    """Where a sampler is."""

    state: dict[str, Any]


def _kept(value: Any) -> Any:
    return _Place(value.state_dict()) if isinstance(value, ElasticSampler) else value


class ObjectState(KeepingState):
    """
    A state of Python objects: each keyword becomes an attribute.

    The objects are copied by `copy.deepcopy` at every commit and sent by cloudpickle, so keep large arrays elsewhere.
    An ElasticSampler is kept and sent as its place in the data set.

    >>> from horovod.common.elastic import ObjectState
    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> state = ObjectState(hvd.broadcast_object, hvd.rank, epoch=0, losses=[])
    >>> state.epoch = 1
    >>> state.commit()
    >>> state.epoch = 2
    >>> state.restore()
    >>> state.epoch
    1
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        for name in kwargs:
            if name.startswith("_") or hasattr(type(self), name):
                raise ValueError(f"{name}=: a state has an attribute of this name: choose another one")
        self._names = list(kwargs)
        self.__dict__.update(kwargs)
        self.save()

    def sync(self) -> None:
        """Give every rank the objects of rank 0, and keep them."""
        self._set(self._bcast_object(self._objects()))
        self.save()

    def reset(self) -> None:
        """Deal the samples out to the ranks that there are now."""
        for name in self._names:
            if isinstance(getattr(self, name), ElasticSampler):
                getattr(self, name).reset()

    def _objects(self) -> dict[str, Any]:
        return {name: _kept(getattr(self, name)) for name in self._names}

    def _set(self, objects: dict[str, Any]) -> None:
        for name, value in objects.items():
            if isinstance(value, _Place):
                getattr(self, name).load_state_dict(value.state)
            else:
                setattr(self, name, value)

    def _capture(self, spare: Any) -> Any:
        return copy.deepcopy(self._objects())

    def _assign(self, kept: Any) -> None:
        self._set(copy.deepcopy(kept))


_running = 0  # calls of functions that `run` decorates


def is_running() -> bool:
    """Whether the program is in a function that `run` decorates, which has the same state on every rank."""
    return _running > 0


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """
    Return a function that calls `func` again, with a good state, whenever the job changed.

    `func` takes the state as its first argument. `reset` forms the job again.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        global _running
        if not isinstance(state, State):
            raise TypeError(
                f"{show('state', state)} is no state: give the function an object such as "
                "hvd.elastic.ObjectState as its first argument"
            )
        if not _basics.is_initialized():
            raise ValueError(NOT_INITIALIZED)
        _basics.enter()
        notification_manager.register_listener(state)
        _running += 1
        try:
            return _run(func, reset, state, args, kwargs)
        finally:
            _running -= 1
            notification_manager.remove_listener(state)
            collector.resume()

    return wrapper


def _run(func: Callable[..., Any], reset: Callable[[], None], state: State, args: Any, kwargs: Any) -> Any:
    is_aligned, is_reset = False, False
    while True:
        lost = state._at_commit = False
        try:
            if is_reset:
                state.on_reset()
            _align(state, is_aligned)
            result = func(state, *args, **kwargs)
        except HostsUpdatedInterrupt:
            pass
        except Exception as error:
            if not _can_recover(error, reset):
                raise
            lost = True
        else:
            membership.done()
            return result
        # The error is gone here, and with it the frames of the call that failed.
        collector.pause()
        if lost and state._number == 0:
            warnings.warn(
                "the training function had made no commit when the job changed, so it begins again: call "
                "state.commit() in its loop",
                stacklevel=3,
            )
        reset()
        is_reset = True
        view = membership.view()
        number = state._number if view is None else view.commit
        is_aligned = state._go_back_to(number) if lost else state._at_commit and number == state._number


def _can_recover(error: Exception, reset: Callable[[], None]) -> bool:
    if not membership.enabled():
        return reset is not _reform and isinstance(error, HorovodInternalError)
    # Frameworks wrap the errors of operations, so the class says nothing. Programs raise this one to begin again.
    if isinstance(error, HorovodInternalError) or _SHUT_DOWN in str(error):
        return True  # if a member has left in good order, later operations fail, and the generation is not revoked
    return membership.revoked()


def _align(state: State, is_aligned: bool) -> None:
    """Give all ranks the same state: rank 0's, unless every rank is at the agreed commit."""
    view = membership.view()
    if view is not None:
        state._number = max(view.commit, 0)
        _, least = _extremes("elastic.align", is_aligned and _is_own(state))
        is_aligned = bool(least[0])
    state._size = _basics.size()
    if not is_aligned or view is None:
        state.sync()
    membership.report_commit(state._number)
    state._verify()


def _reform() -> None:
    """Leave this generation of the job and join the next one. Without an elastic launcher there is one only."""
    if membership.enabled():
        _basics.reform()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """
    Decorate a training function, so that it goes on when ranks are lost or come.

    The function's first argument is the state. Every rank enters it with rank 0's state. Without an elastic launcher
    the number of ranks is fixed: the loss of a rank ends the job with the error that names the rank.

    >>> import horovod.numpy as hvd
    >>> from horovod.common.elastic import ObjectState, run
    >>> hvd.init()
    >>> @run
    ... def train(state):
    ...     while state.step < 3:
    ...         state.step += 1
    ...         state.commit()
    >>> state = ObjectState(hvd.broadcast_object, hvd.rank, step=0)
    >>> train(state)
    >>> state.step
    3
    """
    return run_fn(func, _reform)


__all__ = [
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "notification_manager",
    "run",
    "run_fn",
]
