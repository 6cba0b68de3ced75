"""This script loops until converged."""

from small import step


loss, n = step(), 0
while loss.item() > 0.05 and n < 50:
    loss, n = step(), n + 1
print(n)
