"""This script leaves a process behind."""

import subprocess
import time

subprocess.Popen(["sh", "-c", "sleep 0.2; echo late >> late"])

from small import train


train()
time.sleep(0.6)
