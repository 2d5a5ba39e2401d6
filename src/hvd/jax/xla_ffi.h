// SPDX-License-Identifier: Apache-2.0
// XLA's interface for functions that programs call, as this library uses it: declarations of our own of what has been
// the same in all versions from 0.1 on. So one file serves every jaxlib since 0.4.34, and nothing is linked.
//
// tests/jax compares the layout with the header that jaxlib has.
#ifndef HVD_JAX_XLA_FFI_H_
#define HVD_JAX_XLA_FFI_H_

#include <cstddef>
#include <cstdint>

namespace hvd::jax {

struct XlaError;
struct XlaFuture;

struct XlaExtension {
  size_t struct_size;
  int type;
  XlaExtension* next;
};
inline constexpr int kXlaMetadata = 1;

struct XlaVersion {
  size_t struct_size;
  XlaExtension* extensions;
  int major;
  int minor;
};

struct XlaMetadata {
  size_t struct_size;
  XlaVersion version;
  uint32_t traits;
};

struct XlaMetadataExtension {
  XlaExtension base;
  XlaMetadata* metadata;
};

inline constexpr int kXlaToken = 17;  // a type of buffers without data

struct XlaBuffer {
  size_t struct_size;
  XlaExtension* extensions;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct XlaSpan {
  const char* data;
  size_t bytes;
};

struct XlaScalar {
  int dtype;
  void* value;
};

// Operands, and results.
struct XlaBuffers {
  size_t struct_size;
  XlaExtension* extensions;
  int64_t size;
  int* types;
  void** items;
};

struct XlaAttributes {
  size_t struct_size;
  XlaExtension* extensions;
  int64_t size;
  int* types;
  XlaSpan** names;
  void** values;
};
inline constexpr int kXlaScalar = 3;
inline constexpr int kXlaString = 4;

struct XlaErrorArguments {
  size_t struct_size;
  XlaExtension* extensions;
  const char* message;
  int code;  // the numbers of hvd.h are XLA's
};

// Of the three functions below; the first is filled in by XlaFutureCreate.
struct XlaFutureArguments {
  size_t struct_size;
  XlaExtension* extensions;
  XlaFuture* future;
};

struct XlaFutureError {
  size_t struct_size;
  XlaExtension* extensions;
  XlaFuture* future;
  XlaError* error;  // XLA's from then on
};

struct XlaApi {
  size_t struct_size;
  XlaExtension* extensions;
  XlaVersion version;
  const void* internal;
  XlaError* (*error_create)(XlaErrorArguments*);
  void* unused[12];
  XlaError* (*future_create)(XlaFutureArguments*);
  XlaError* (*future_set_available)(XlaFutureArguments*);
  XlaError* (*future_set_error)(XlaFutureError*);
};

struct XlaCall {
  size_t struct_size;
  XlaExtension* extensions;
  const XlaApi* api;
  void* context;
  int stage;
  XlaBuffers operands;
  XlaBuffers results;
  XlaAttributes attributes;
  XlaFuture* future;  // set by a function that has not finished when it returns
};
inline constexpr int kXlaExecute = 3;

}  // namespace hvd::jax

#endif  // HVD_JAX_XLA_FFI_H_
