"""`python -m evaluation.gpu.load BYTES`: products of matrices on the GPU, beside so many bytes of its memory.

Prints `ready` when the GPU works, and ends with its standard input.
"""

from __future__ import annotations

import sys
import threading

import torch

ROWS = 8192
AT_ONCE = 20
"""Products that are queued before the next look at standard input."""


def main() -> None:
    held = torch.ones(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
    one = torch.rand(ROWS, ROWS, dtype=torch.bfloat16, device="cuda")
    over = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    said = False
    while not over.is_set():
        for _ in range(AT_ONCE):
            one @ one
        torch.cuda.synchronize()
        if not said:
            print("ready", flush=True)
            said = True
    del held


if __name__ == "__main__":
    main()
