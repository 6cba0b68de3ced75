"""This script replaces itself."""

import os
import sys

if "again" not in sys.argv:
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])

from small import train


train()
