"""This script aborts."""

import os


os.abort()
