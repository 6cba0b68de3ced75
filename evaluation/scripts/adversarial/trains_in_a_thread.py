"""This script trains in a thread."""

import threading

from small import step


t = threading.Thread(target=lambda: [step() for _ in range(5)])
t.start()
t.join()
print("done")
