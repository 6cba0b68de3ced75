"""This script exits early."""

import sys


sys.exit(7)
