# SPDX-License-Identifier: Apache-2.0
"""Small modules that programs import from Horovod's runner."""
