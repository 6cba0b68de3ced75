"""This script starts a process."""

import subprocess

print(subprocess.check_output(["echo", "hello"]))

from small import train


train()
