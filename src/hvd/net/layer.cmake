# SPDX-License-Identifier: Apache-2.0
target_link_libraries(hvd_net PUBLIC OpenSSL::SSL OpenSSL::Crypto)
