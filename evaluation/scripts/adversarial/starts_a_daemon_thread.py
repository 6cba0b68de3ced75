"""This script starts a daemon thread."""

import threading
import time

from small import train


threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
train()
