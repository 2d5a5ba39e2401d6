# SPDX-License-Identifier: Apache-2.0
"""What all frameworks share: the C library, errors, ranks, process sets and the submission of operations."""
