"""This script signals its parent's group."""

import os
import signal

signal.signal(signal.SIGUSR1, lambda *a: print("usr1"))
os.kill(os.getpid(), signal.SIGUSR1)

from small import train


train()
