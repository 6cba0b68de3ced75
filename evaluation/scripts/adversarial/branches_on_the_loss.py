"""This script branches on the loss."""

from small import step


for _ in range(6):
    loss = step()
    if loss.item() < 1e-9:
        break
print(loss)
