"""This script does not end in time."""

import os
import time

from small import train


t = time.time()
while "PHAROAH_DRY_RUN" in os.environ or time.time() < t + 0.5:
    pass
train()
