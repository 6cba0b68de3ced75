"""This script fills the disk in a dry run."""

import os

if os.environ.get("PHAROAH_DRY_RUN"):
    open("big", "wb").write(b"0" * (1 << 30))

from small import train


train()
