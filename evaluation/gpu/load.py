"""`python -m evaluation.gpu.load BYTES`: products of matrices on the GPU, beside so many bytes of its memory.

Prints `ready` when the GPU works, and ends with its parent.
"""

from __future__ import annotations

import sys

import torch

from pharoah_system.parent_process import end_with_parent

ROWS = 8192
AT_ONCE = 20
"""Products that are queued before it waits for them."""


def main() -> None:
    end_with_parent()
    held = torch.ones(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
    one = torch.rand(ROWS, ROWS, dtype=torch.bfloat16, device="cuda")
    said = False
    while held.is_cuda:  # it is not freed while it is read
        for _ in range(AT_ONCE):
            one @ one
        torch.cuda.synchronize()
        if not said:
            print("ready", flush=True)
            said = True


if __name__ == "__main__":
    main()
