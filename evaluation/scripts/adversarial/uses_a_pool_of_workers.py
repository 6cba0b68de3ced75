"""This script uses a pool of workers."""

from multiprocessing import get_context

from small import train


if __name__ == "__main__":
    with get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, -2]))
train()
