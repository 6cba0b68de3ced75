"""All tests. Libraries of linear algebra compute on one thread here: threads of several workers would wait for each
other, and fits would take many times as long. Processes that tests start do not inherit that."""

import os

_NAME = "OPENBLAS_NUM_THREADS"
_before = os.environ.get(_NAME)
os.environ[_NAME] = "1"
import numpy as np  # noqa: E402, F401 - each brings its own OpenBLAS, which reads the variable when it is loaded
import scipy.linalg  # noqa: E402, F401

del os.environ[_NAME]
if _before is not None:
    os.environ[_NAME] = _before
