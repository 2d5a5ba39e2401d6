# SPDX-License-Identifier: Apache-2.0
"""
Writes the handwritten digits that scikit-learn brings along as text, for digits.cc.

    python examples/cpp/digits/write_digits.py digits.csv

One digit a line: 64 brightnesses from 0 to 16, then which digit it is. The order is that of examples/numpy/digits.py.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

features, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
np.savetxt(sys.argv[1], np.column_stack([features, labels])[order], fmt="%d", delimiter=",")
