# SPDX-License-Identifier: Apache-2.0
"""
include/hvd/hvd.h in ctypes: numbers, structs and prototypes, in the order of that file.

Nothing here decides anything; see the header for what functions mean, who owns memory and which threads may call.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

ABI_VERSION = 1

OK = 0
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
UNIMPLEMENTED = 12
INTERNAL = 13
IN_PROGRESS = 100

# Element types by the name that NumPy, PyTorch and JAX all use.
DTYPES = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
    "bfloat16": 10,
}

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
ALLREDUCE, ALLGATHER, BROADCAST, BARRIER, ALLTOALL, REDUCESCATTER, JOIN = range(7)
CPU, CUDA = range(2)
WIRE_FLOAT16, WIRE_BFLOAT16 = 1, 2
COUNTERS_JSON, COUNTERS_PROMETHEUS = range(2)
INIT_NO_SIGNAL_HANDLERS, INIT_DYNAMIC_PROCESS_SETS, INIT_HANDLERS_ARE_FATAL, INIT_SURVIVING_PROCESS_SETS = 1, 2, 4, 8
(
    QUERY_RANK,
    QUERY_SIZE,
    QUERY_LOCAL_RANK,
    QUERY_LOCAL_SIZE,
    QUERY_CROSS_RANK,
    QUERY_CROSS_SIZE,
    QUERY_IS_HOMOGENEOUS,
    QUERY_GENERATION,
    QUERY_PEERS_BY_SHM,
    QUERY_MPI_ENABLED,
    QUERY_MPI_THREADS,
) = range(11)


class Buffer(ctypes.Structure):
    """hvd_buffer."""

    _fields_ = [("data", c_void_p), ("bytes", c_uint64), ("device_type", c_int32), ("device_id", c_int32)]


class Request(ctypes.Structure):
    """hvd_request."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("op", c_int32),
        ("dtype", c_int32),
        ("reduce_op", c_int32),
        ("root_rank", c_int32),
        ("process_set", c_int32),
        ("ndim", c_int32),
        ("shape", c_void_p),
        ("name", c_char_p),
        ("prepared", c_uint64),
        ("prescale", c_double),
        ("postscale", c_double),
        ("input", Buffer),
        ("output", Buffer),
        ("alloc", c_void_p),
        ("alloc_arg", c_void_p),
        ("stream", c_void_p),
        ("ready_event", c_void_p),
        ("done", c_void_p),
        ("done_arg", c_void_p),
        ("timeout_s", c_double),
        ("splits", c_void_p),
        ("nsplits", c_int32),
        ("flags", c_int32),
    ]


class Output(ctypes.Structure):
    """hvd_output."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("shape", POINTER(c_int64)),
        ("ndim", c_int32),
        ("engine_owned", c_int32),
        ("received_splits", POINTER(c_int32)),
        ("nsplits", c_int32),
        ("number", c_int32),
    ]


class InitOptions(ctypes.Structure):
    """hvd_init_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int32),
        ("size", c_int32),
        ("host_id", c_char_p),
        ("rendezvous", c_char_p),
        ("token_file", c_char_p),
        ("generation", c_int32),
        ("timeout_s", c_double),
        ("process_set_count", c_int32),
        ("process_set_sizes", POINTER(c_int32)),
        ("process_set_ranks", POINTER(c_int32)),
        ("flags", c_int32),
        ("mpi_comm", c_void_p),
        ("comm_ranks", POINTER(c_int32)),
        ("comm_rank_count", c_int32),
    ]


class Counters(ctypes.Structure):
    """hvd_counters."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("operations", c_uint64),
        ("bytes", c_uint64),
        ("cache_hits", c_uint64),
        ("requests", c_uint64),
        ("fused", c_uint64),
        ("sleeps", c_uint64),
    ]


# name: (result, arguments). A context is always passed as NULL: the process-wide engine.
PROTOTYPES = {
    "hvd_abi_version": (c_int, []),
    "hvd_version": (c_char_p, []),
    "hvd_last_error": (c_char_p, []),
    "hvd_last_status": (c_int, []),
    "hvd_timeline_start": (c_int, [c_void_p, c_char_p, c_int32]),
    "hvd_timeline_stop": (c_int, [c_void_p]),
    "hvd_mpi_library": (c_char_p, []),
    "hvd_describe_config": (c_char_p, []),
    "hvd_init_options_default": (None, [POINTER(InitOptions)]),
    "hvd_init": (c_int, [POINTER(InitOptions), c_void_p]),
    "hvd_shutdown": (c_int, [c_void_p]),
    "hvd_note_failure": (c_int, [c_void_p, c_char_p]),
    "hvd_label_tensor": (c_int, [c_void_p, c_char_p, c_char_p]),
    "hvd_authenticate": (c_int, [c_void_p, c_char_p, c_uint64, c_void_p, c_uint64, c_char_p]),
    "hvd_is_initialized": (c_int, [c_void_p]),
    "hvd_health": (c_int, [c_void_p]),
    "hvd_query": (c_int, [c_void_p, c_int32, POINTER(c_int32)]),
    "hvd_process_set_count": (c_int, [c_void_p, POINTER(c_int32)]),
    "hvd_process_set_ids": (c_int, [c_void_p, POINTER(c_int32), c_int32, POINTER(c_int32)]),
    "hvd_process_set_ranks": (c_int, [c_void_p, c_int32, POINTER(c_int32), c_int32, POINTER(c_int32)]),
    "hvd_process_set_add": (c_int, [c_void_p, POINTER(c_int32), c_int32, POINTER(c_int32)]),
    "hvd_process_set_remove": (c_int, [c_void_p, c_int32]),
    "hvd_prepare": (c_int, [c_void_p, POINTER(Request), POINTER(c_uint64)]),
    "hvd_submit": (c_int, [c_void_p, POINTER(Request), POINTER(c_uint64)]),
    "hvd_submit_group": (c_int, [c_void_p, POINTER(Request), c_int32, POINTER(c_uint64)]),
    "hvd_run_for": (c_int, [c_void_p, POINTER(Request), c_double, POINTER(Output), POINTER(c_uint64)]),
    "hvd_poll": (c_int, [c_void_p, c_uint64]),
    "hvd_wait": (c_int, [c_void_p, c_uint64, c_double]),
    "hvd_get_output": (c_int, [c_void_p, c_uint64, POINTER(Output)]),
    "hvd_release": (c_int, [c_void_p, c_uint64]),
    "hvd_alloc": (c_void_p, [c_uint64]),
    "hvd_alloc_output": (c_void_p, [c_uint64]),
    "hvd_free": (None, [c_void_p]),
    "hvd_store_serve": (c_int, [c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_int32)]),
    "hvd_store_server_free": (None, [c_void_p]),
    "hvd_store_connect": (c_int, [c_char_p, c_char_p, c_double, POINTER(c_void_p)]),
    "hvd_store_set": (c_int, [c_void_p, c_char_p, c_char_p, c_uint64]),
    "hvd_store_get": (c_int, [c_void_p, c_char_p, c_double, c_char_p, c_uint64, POINTER(c_uint64)]),
    "hvd_get_counters": (c_int, [c_void_p, POINTER(Counters)]),
    "hvd_counters_text": (c_int, [c_void_p, c_int32, c_char_p, c_uint64, POINTER(c_uint64)]),
}
