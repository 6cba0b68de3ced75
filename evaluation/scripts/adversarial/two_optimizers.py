"""This script steps two optimizers."""

import torch
from small import model, step


other = torch.optim.Adam(model.parameters())
for _ in range(6):
    step()
    other.step()
print("ok")
