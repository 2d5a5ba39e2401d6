/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HVD_HVD_H_
#define HVD_HVD_H_
/*
 * The C ABI of libhvd: the only promise this library makes to programs and bindings.
 *
 * Versioning: structs start with their size (`struct_size`, set it to sizeof); new fields are added at the end, never
 * removed, and a caller compiled against an older header keeps working. HVD_ABI_VERSION changes only when that breaks.
 * A struct that is larger than this library knows, an unknown flag or number, a negative time-out where none is allowed
 * and text that is not UTF-8 are HVD_INVALID_ARGUMENT; the error names the field and its value.
 * Status: every function that can fail returns HVD_OK (0) or a code below; the text of this thread's last failure is
 * hvd_last_error(). No function throws, prints or exits.
 * Context: `ctx` names an engine. NULL is the process-wide one, which bindings of all frameworks share.
 * Thread safety: unless said otherwise every function may be called from any thread at any time.
 * Forked children: a process that was forked while there was an engine, of any context, is no rank. Every call there
 * returns HVD_FAILED_PRECONDITION, before any lock is taken, but hvd_free, and hvd_shutdown, which has nothing to end.
 * Interrupting: no call returns early because of a signal. A binding that must react to one (Ctrl-C) runs and waits in
 * slices (hvd_run_for, hvd_wait with a time-out), and calls hvd_init on a thread of its own, see there.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 1
#if defined(HVD_BUILDING)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

/* Status codes; numbers of absl::StatusCode. */
enum {
  HVD_OK = 0,
  HVD_UNKNOWN = 2, /* a peer was lost or left, the engine was shut down: text begins "Horovod has been shut down" */
  HVD_INVALID_ARGUMENT = 3,  /* this call's arguments are wrong */
  HVD_DEADLINE_EXCEEDED = 4, /* a time-out that the caller set ran out */
  HVD_NOT_FOUND = 5,
  HVD_PERMISSION_DENIED = 7,
  HVD_RESOURCE_EXHAUSTED = 8,
  HVD_FAILED_PRECONDITION = 9, /* not initialised, or the ranks disagree about an operation */
  HVD_ABORTED = 10,
  HVD_UNIMPLEMENTED = 12,
  HVD_INTERNAL = 13,
  HVD_IN_PROGRESS = 100 /* not an error: the operation is not finished yet */
};

/* Element types. */
enum {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,
  HVD_BFLOAT16 = 10
};

/* Reductions. */
enum { HVD_AVERAGE = 0, HVD_SUM = 1, HVD_ADASUM = 2, HVD_MIN = 3, HVD_MAX = 4, HVD_PRODUCT = 5 };

/* Operations. */
enum {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_BARRIER = 3,
  HVD_ALLTOALL = 4,
  HVD_REDUCESCATTER = 5,
  HVD_JOIN = 6
};

/* Where memory is. */
enum { HVD_CPU = 0, HVD_CUDA = 1 };

typedef struct hvd_context hvd_context;
/* Identifies an operation in flight; never 0; a handle of an earlier init fails, it never crashes. */
typedef uint64_t hvd_handle;

typedef struct hvd_buffer {
  void* data;
  uint64_t bytes;
  int32_t device_type; /* HVD_CPU; HVD_CUDA is answered HVD_UNIMPLEMENTED for now */
  int32_t device_id;
} hvd_buffer;

/* Gives memory for an output whose size only the collective knows (allgather, alltoall, reducescatter). Returns NULL to
 * refuse. Called at most once per operation, on the completion thread or on the thread inside hvd_run, never while the
 * engine holds a lock of its own; the operation is not over before it returned. It must not wait for an operation:
 * hvd_run, and hvd_wait with a time-out other than 0, return HVD_FAILED_PRECONDITION there, as do hvd_init and
 * hvd_shutdown. */
typedef void* (*hvd_alloc_fn)(void* arg, uint64_t bytes, const int64_t* shape, int32_t ndim);
/* Called once when the operation is over, on the completion thread, one after the other; not by hvd_run, which tells
 * its caller. It may wait, also for other
 * operations (hvd_wait, hvd_run; alloc functions that these need are called meanwhile, inside the wait), and may call
 * any function of this file but hvd_init and hvd_shutdown: those would wait for this function to return, and give
 * HVD_FAILED_PRECONDITION at once. */
typedef void (*hvd_done_fn)(void* arg, hvd_handle handle, int32_t status, const char* message);

typedef struct hvd_request {
  size_t struct_size;
  int32_t op; /* HVD_ALLREDUCE ... */
  int32_t dtype;
  int32_t reduce_op;    /* allreduce */
  int32_t root_rank;    /* broadcast; a global rank */
  int32_t process_set;  /* 0: all ranks */
  int32_t ndim;         /* of the input; 0: a scalar */
  const int64_t* shape; /* copied */
  /* UTF-8, at most 64 KiB, copied; equal on all ranks. NULL where `prepared` is given. Ranks may submit in any order,
   * so the name alone says what belongs together, and there is no default: a binding that numbers its unnamed
   * operations must do so in the same order on every rank. A name that comes again is agreed upon without a request;
   * one that is used once, such as a number, never is. */
  const char* name;
  uint64_t prepared; /* an id from hvd_prepare, or 0 */
  double prescale;   /* 1.0 */
  double postscale;  /* 1.0 */
  hvd_buffer input;  /* stays the caller's; unchanged and valid until the operation is over */
  hvd_buffer output; /* allreduce, broadcast: may equal input (in place). data NULL: see `alloc` */
  /* For an output of unknown size. NULL, with output.data NULL: the engine keeps the output, see hvd_output. */
  hvd_alloc_fn alloc;
  void* alloc_arg;
  void* stream;      /* device stream on which the input becomes ready; NULL on the CPU */
  void* ready_event; /* device event after which the input is ready; NULL on the CPU */
  hvd_done_fn done;  /* optional */
  void* done_arg;
  double timeout_s;      /* > 0: fail with HVD_DEADLINE_EXCEEDED if some rank has not submitted by then. 0:
                            HOROVOD_OP_TIMEOUT_SECONDS */
  const int32_t* splits; /* alltoall: rows for every rank of the set, copied; NULL: equal parts. Rows that are left over
                            are not sent */
  int32_t nsplits;
  int32_t flags; /* HVD_WIRE_* or 0 */
} hvd_request;
/* Allreduce but Adasum, one of them, equal on all ranks: float32 and float64 travel and are reduced as that type, in
 * half of the bytes or a quarter; input and output stay what `dtype` says. The result has the bits that casting,
 * reducing and casting back would give (to nearest even; sums of float16 and bfloat16 are made in float32, and scaled
 * there, before they are rounded), without the memory for that. Other types travel as they are. */
enum { HVD_WIRE_FLOAT16 = 1, HVD_WIRE_BFLOAT16 = 2 };

typedef struct hvd_output {
  size_t struct_size;
  void* data; /* the output's memory, wherever it came from */
  uint64_t bytes;
  const int64_t* shape; /* valid until hvd_release */
  int32_t ndim;
  int32_t engine_owned; /* 1: data is arena memory that lives until hvd_free(data); hvd_release does not end it */
  const int32_t* received_splits; /* alltoall: rows from every rank of the set; valid as long as shape */
  int32_t nsplits;
  int32_t number; /* join: the rank that joined last */
} hvd_output;

typedef struct hvd_init_options {
  size_t struct_size;
  int32_t rank;           /* -1: from HOROVOD_RANK or the launcher's variables; with nothing set: a job of size 1 */
  int32_t size;           /* -1: likewise */
  const char* host_id;    /* NULL: HOROVOD_HOSTNAME, else found */
  const char* rendezvous; /* NULL: HOROVOD_RENDEZVOUS_ADDR. "host:port", "[v6]:port", "file:///folder" or "memory:NAME"
                             (ranks that are threads of this process) */
  const char* token_file; /* NULL: HOROVOD_TOKEN_FILE */
  int32_t generation;     /* -1: HOROVOD_GENERATION */
  double timeout_s;       /* 0: HOROVOD_START_TIMEOUT */
  int32_t process_set_count; /* process sets 1, 2, ... ; the same on every rank */
  const int32_t* process_set_sizes;
  const int32_t* process_set_ranks; /* all sets' global ranks, one after the other */
  int32_t flags;                    /* HVD_INIT_* */
  const void* mpi_comm; /* address of an MPI_Comm whose processes are the job; NULL: none. MPI is initialised then */
  const int32_t* comm_ranks; /* only these ranks of what a launcher started are the job, in this order */
  int32_t comm_rank_count;   /* 0: all */
} hvd_init_options;
/* HANDLERS_ARE_FATAL: the program's own handlers of SEGV, BUS, ILL, FPE and ABRT end the process, as Python's
 * faulthandler does. So peers may be told of a crash before such a handler runs.
 * SURVIVING_PROCESS_SETS: the sets are those of an earlier generation, with the members that are left. Two of
 * them may have the same ranks, and one of size 0 does not exist: its id is free. */
enum {
  HVD_INIT_NO_SIGNAL_HANDLERS = 1,
  HVD_INIT_DYNAMIC_PROCESS_SETS = 2,
  HVD_INIT_HANDLERS_ARE_FATAL = 4,
  HVD_INIT_SURVIVING_PROCESS_SETS = 8
};

/* ---- library ----------------------------------------------------------------------------------------------------- */

HVD_API int hvd_abi_version(void);
/* "0.30.0". Static. */
HVD_API const char* hvd_version(void);
/* Text of the last failure of a call on this thread; "" if none. Valid until this thread's next call. Names rank,
 * operation, tensor and what to do. */
HVD_API const char* hvd_last_error(void);
/* The code of that failure, for functions that return something else (hvd_alloc); HVD_OK if none. */
HVD_API int hvd_last_status(void);
/* "Open MPI v4.1.4 (libmpi.so.40)": the MPI that this process would use if it were started by mpirun; "" if there is
 * none, and hvd_last_error() tells why. The library stays open, and a later hvd_init must do with it. Valid until this
 * thread's next call. */
HVD_API const char* hvd_mpi_library(void);
/* Markdown table of the HOROVOD_* variables. Static. */
HVD_API const char* hvd_describe_config(void);

/* ---- life cycle -------------------------------------------------------------------------------------------------- */

/* Sets *options to defaults. */
HVD_API void hvd_init_options_default(hvd_init_options* options);
/* Joins the job and blocks, at most options->timeout_s, until every rank has. `options` may be NULL. With ctx == NULL
 * the process-wide engine is made; if it exists already, this does nothing and succeeds. Otherwise *ctx receives a new
 * engine that the caller ends with hvd_shutdown.
 * hvd_shutdown(NULL) from another thread gives a pending hvd_init(options, NULL) up: it returns at once, and the init,
 * when the peers have come or its time is over, leaves the job again and returns HVD_ABORTED. So a process can exit
 * while a thread of it is in here. A later hvd_init waits for the one that was given up. */
HVD_API int hvd_init(const hvd_init_options* options, hvd_context** ctx);
/* Says goodbye to the peers and ends the engine: pending operations fail with HVD_UNKNOWN. Frees ctx. Succeeds when
 * there is nothing to end. Memory from hvd_alloc and handed-out outputs stay valid. */
HVD_API int hvd_shutdown(hvd_context* ctx);
/* Says why this rank is about to leave, such as "ValueError: bad sample 17". hvd_shutdown hands it on: the errors of
 * the peers and this rank's flight recorder name it. Does nothing when there is no engine. */
HVD_API int hvd_note_failure(hvd_context* ctx, const char* text);
/* Says what people call the tensor of the operations of this name, such as the path of a variable. Timelines, stall
 * reports and errors of this process show it beside the name; it is never sent. Both are UTF-8. */
HVD_API int hvd_label_tensor(hvd_context* ctx, const char* name, const char* label);
/* Writes an authentication code of 32 bytes for data and its purpose, under a key that only ranks of this job have:
 * equal on all of them, and nobody else can make it. Zeros in a job without a token, which leaves no machine. For
 * bindings that send what must not be changed on its way, such as objects that are unpickled. */
HVD_API int hvd_authenticate(hvd_context* ctx, const void* purpose, uint64_t purpose_bytes, const void* data,
                             uint64_t bytes, unsigned char* code);
HVD_API int hvd_is_initialized(hvd_context* ctx);
/* HVD_OK while the engine works; HVD_UNKNOWN once its generation is revoked (a peer was lost or left): then every
 * operation fails, hvd_last_error() has the first cause, and only shutdown and a new init help. */
HVD_API int hvd_health(hvd_context* ctx);

enum {
  HVD_RANK = 0,
  HVD_SIZE = 1,
  HVD_LOCAL_RANK = 2,
  HVD_LOCAL_SIZE = 3,
  HVD_CROSS_RANK = 4,
  HVD_CROSS_SIZE = 5,
  HVD_IS_HOMOGENEOUS = 6,
  HVD_GENERATION = 7,
  HVD_PEERS_BY_SHM = 8,
  HVD_MPI_ENABLED = 9, /* MPI brought the ranks together, or carries operations */
  HVD_MPI_THREADS = 10 /* it was initialised with MPI_THREAD_MULTIPLE */
};
/* *value receives the property. HVD_FAILED_PRECONDITION before init. */
HVD_API int hvd_query(hvd_context* ctx, int32_t what, int32_t* value);

/* ---- process sets ------------------------------------------------------------------------------------------------ */

/* Number of process sets, the global one included. */
HVD_API int hvd_process_set_count(hvd_context* ctx, int32_t* count);
/* Writes at most `capacity` ids in ascending order to ids, and their number to *count. */
HVD_API int hvd_process_set_ids(hvd_context* ctx, int32_t* ids, int32_t capacity, int32_t* count);
/* Writes at most `capacity` global ranks to ranks, and the set's size to *size. HVD_INVALID_ARGUMENT: no such set. */
HVD_API int hvd_process_set_ranks(hvd_context* ctx, int32_t id, int32_t* ranks, int32_t capacity, int32_t* size);

/* Makes a process set of these global ranks, for jobs with HVD_INIT_DYNAMIC_PROCESS_SETS or
 * HOROVOD_DYNAMIC_PROCESS_SETS=1. All ranks of the job call it with the same ranks, and it returns when all have; *id
 * receives the set's id, the same everywhere: that of the set removed longest ago, else a new one. */
HVD_API int hvd_process_set_add(hvd_context* ctx, const int32_t* ranks, int32_t count, int32_t* id);
/* Removes a process set, when its operations on this rank are over. All ranks of the job call it, and it returns when
 * all have. */
HVD_API int hvd_process_set_remove(hvd_context* ctx, int32_t id);

/* ---- operations -------------------------------------------------------------------------------------------------- */

HVD_API void hvd_request_default(hvd_request* request);
/* Registers everything about a request but its buffers, and gives an id for hvd_request.prepared: saves the name's
 * look-up for callers that repeat. Equal requests have the same id. Ids are this rank's own, and end with the engine.
 */
HVD_API int hvd_prepare(hvd_context* ctx, const hvd_request* request, uint64_t* id);
/* Starts an operation and returns at once. Every successful submit owes one hvd_release. */
HVD_API int hvd_submit(hvd_context* ctx, const hvd_request* request, hvd_handle* handle);
/* Starts `count` operations, all or none. They are over together: a handle of the group is in progress until all of its
 * operations are, and if one fails all fail with its error. Every handle owes one hvd_release. */
HVD_API int hvd_submit_group(hvd_context* ctx, const hvd_request* requests, int32_t count, hvd_handle* handles);
/* Submits, drives progress on this thread, and returns when the operation is over: no thread switch. For an output of
 * unknown size without `alloc`, *output receives it; `output` may be NULL otherwise. */
HVD_API int hvd_run(hvd_context* ctx, const hvd_request* request, hvd_output* output);
/* As hvd_run, but at most timeout_s (negative: no limit), after which HVD_IN_PROGRESS is returned and the operation
 * goes on: *handle is then what hvd_submit would have given, and 0 otherwise. For callers that must look at something
 * else now and then, such as signals. The request's `done` is called only if this returned HVD_IN_PROGRESS: so a caller
 * that must not wait gives a very short time, and small operations are often over without a thread having to wake up.
 */
HVD_API int hvd_run_for(hvd_context* ctx, const hvd_request* request, double timeout_s, hvd_output* output,
                        hvd_handle* handle);
/* HVD_OK or the operation's error if it is over, else HVD_IN_PROGRESS. HVD_INVALID_ARGUMENT: no such handle. */
HVD_API int hvd_poll(hvd_context* ctx, hvd_handle handle);
/* Waits, driving progress on this thread, until the operation is over; at most timeout_s (negative: no limit), after
 * which HVD_IN_PROGRESS is returned and the operation goes on. */
HVD_API int hvd_wait(hvd_context* ctx, hvd_handle handle, double timeout_s);
/* The output of an operation that is over. */
HVD_API int hvd_get_output(hvd_context* ctx, hvd_handle handle, hvd_output* output);
/* Forgets the handle. An operation in flight goes on; its buffers must stay valid until `done` was called. */
HVD_API int hvd_release(hvd_context* ctx, hvd_handle handle);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Memory that the ranks of this host can reach: operations on it need no copy. 64-byte aligned, zeroed. Works before
 * init and outlives shutdown. NULL, and hvd_last_status() tells why: HVD_RESOURCE_EXHAUSTED when the arena is full
 * (HOROVOD_ARENA_BYTES), HVD_FAILED_PRECONDITION in a forked child, also one of a process that only had such memory. */
HVD_API void* hvd_alloc(uint64_t bytes);
/* Memory for the result of an operation: from the arena, so that peers store into it, or ordinary memory if the arena
 * is full. It is not zeroed, because memory that was freed serves the next result. A forked child has a copy of its
 * own. NULL: there is no memory. */
HVD_API void* hvd_alloc_output(uint64_t bytes);
/* Gives memory of hvd_alloc, hvd_alloc_output or an engine-owned output back. An operation in flight that still uses it
 * keeps it alive; what a thread that is inside hvd_run has given it stays until that returns. NULL is fine. */
HVD_API void hvd_free(void* memory);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

/* What this rank did since hvd_init. All begin at 0 with the engine, survive its errors, and end with it. Reading costs
 * the engine nothing and is possible at any time; numbers that are read while it works may be of different moments.
 * docs/operate/monitoring.md says what is counted when. */
typedef struct hvd_counters {
  size_t struct_size;
  uint64_t operations; /* that ended, with success or not; those of join and process sets included */
  uint64_t bytes;      /* of inputs of operations that succeeded */
  uint64_t cache_hits; /* agreed without a request */
  uint64_t requests;   /* cold requests sent */
  uint64_t fused;      /* operations that ran inside a fused one */
  uint64_t sleeps;     /* times that the loop went to sleep */
} hvd_counters;
/* The sums. */
HVD_API int hvd_get_counters(hvd_context* ctx, hvd_counters* counters);

enum {
  HVD_COUNTERS_JSON = 0,      /* one object; keys are added, never removed */
  HVD_COUNTERS_PROMETHEUS = 1 /* text/plain; version=0.0.4, for an answer to a scrape */
};
/* Everything, by kind of operation and by peer, as UTF-8 text. Writes at most `capacity` bytes, the final 0 included,
 * and sets *bytes to the room that the whole text needs, the final 0 included: if that is more, what was written is cut
 * off.
 *
 *   char text[1 << 16];
 *   uint64_t bytes = 0;
 *   if (hvd_counters_text(NULL, HVD_COUNTERS_JSON, text, sizeof text, &bytes) == HVD_OK && bytes <= sizeof text) {
 *     puts(text);
 *   }
 */
HVD_API int hvd_counters_text(hvd_context* ctx, int32_t format, char* text, uint64_t capacity, uint64_t* bytes);

/* ---- timeline ---------------------------------------------------------------------------------------------------- */

/* Begins a timeline in Chrome trace JSON, for chrome://tracing and ui.perfetto.dev; one that is being written is
 * finished first. Rank 0 writes `path`; other ranks write beside it where HOROVOD_TIMELINE_ALL_RANKS=1 (t.1.json), else
 * this does nothing there. The file is valid JSON at any moment, also if the process is killed. mark_cycles: also a
 * mark per turn of the engine in which something moved. */
HVD_API int hvd_timeline_start(hvd_context* ctx, const char* path, int32_t mark_cycles);
/* What was recorded is in the file when this returns. Nothing to stop: HVD_OK. */
HVD_API int hvd_timeline_stop(hvd_context* ctx);

/* ---- store: how drivers and ranks meet --------------------------------------------------------------------------- */

typedef struct hvd_store hvd_store;
typedef struct hvd_store_server hvd_store_server;
/* Serves a store at "host:port" (port 0: any free one) under TLS 1.3 with a key from the token file; without a token
 * only on this machine (unix socket, same user). *port receives the port. */
HVD_API int hvd_store_serve(const char* address, const char* token_file, hvd_store_server** server, int32_t* port);
/* Ends the server; waits until its thread is gone. NULL is fine. */
HVD_API void hvd_store_server_free(hvd_store_server* server);
/* Connects as a client; at most timeout_s. One thread at a time per client. */
HVD_API int hvd_store_connect(const char* address, const char* token_file, double timeout_s, hvd_store** store);
HVD_API void hvd_store_free(hvd_store* store);
HVD_API int hvd_store_set(hvd_store* store, const char* key, const void* value, uint64_t bytes);
/* Waits for the key; at most timeout_s. Copies at most `capacity` bytes and sets *bytes to the value's length. */
HVD_API int hvd_store_get(hvd_store* store, const char* key, double timeout_s, void* value, uint64_t capacity,
                          uint64_t* bytes);
HVD_API int hvd_store_add(hvd_store* store, const char* key, int64_t delta, int64_t* value);

#ifdef __cplusplus
}
#endif
#endif /* HVD_HVD_H_ */
