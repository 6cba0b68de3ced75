"""This script reads the clock and its process id."""

import os
import time

from small import train


assert os.getppid() > 0 and time.time() > 1e9
train()
