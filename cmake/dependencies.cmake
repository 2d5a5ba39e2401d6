# SPDX-License-Identifier: Apache-2.0
# Everything the library links is header-only or static: it lives in one process with TensorFlow, PyTorch and jaxlib.
find_package(Threads REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3 REQUIRED)
find_program(HVD_FLATC flatc REQUIRED)
