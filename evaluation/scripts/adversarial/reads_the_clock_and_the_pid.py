"""This script reads the clock and the pid."""

import os
import time

from small import train


assert os.getppid() > 0 and time.time() > 1e9
train()
