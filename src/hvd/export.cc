// SPDX-License-Identifier: Apache-2.0
// libhvd.so is the sum of the layers' static libraries; a shared library needs one source of its own.
