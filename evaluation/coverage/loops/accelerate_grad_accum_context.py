import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_linear_schedule_with_warmup


def get_dataloaders(accelerator, batch_size):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(640, 20, generator=g)
    w = torch.randn(20, 4, generator=g)
    y = (x @ w + 0.3 * torch.randn(640, 4, generator=g)).argmax(1)
    train, val = TensorDataset(x[:512], y[:512]), TensorDataset(x[512:], y[512:])
    return (DataLoader(train, shuffle=True, batch_size=batch_size), DataLoader(val, shuffle=False, batch_size=64))


class MLP(nn.Module):
    def __init__(self, din, hidden, nout, p=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(din, hidden),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, nout),
        )

    def forward(self, x):
        return self.net(x)


def training_function(config, args):
    accelerator = Accelerator(
        cpu=args.cpu, mixed_precision=args.mixed_precision, gradient_accumulation_steps=args.gradient_accumulation_steps
    )
    set_seed(config["seed"])
    train_dl, eval_dl = get_dataloaders(accelerator, config["batch_size"])
    model = MLP(20, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    lr_scheduler = get_linear_schedule_with_warmup(
        optimizer=optimizer,
        num_warmup_steps=4,
        num_training_steps=(len(train_dl) * config["num_epochs"]) // args.gradient_accumulation_steps,
    )
    model, optimizer, train_dl, eval_dl, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dl, eval_dl, lr_scheduler
    )
    loss_fn = nn.CrossEntropyLoss()

    for epoch in range(config["num_epochs"]):
        model.train()
        total_loss = 0
        for step, (xb, yb) in enumerate(train_dl):
            with accelerator.accumulate(model):
                loss = loss_fn(model(xb), yb)
                total_loss += loss.detach().float()
                accelerator.backward(loss)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()

        model.eval()
        correct, seen = 0, 0
        for xb, yb in eval_dl:
            with torch.no_grad():
                out = model(xb)
            preds, refs = accelerator.gather_for_metrics((out.argmax(dim=-1), yb))
            correct += (preds == refs).sum().item()
            seen += refs.numel()
        accelerator.print(
            f"epoch {epoch}: loss {total_loss.item() / len(train_dl):.4f} acc {correct / seen:.3f} "
            f"lr {lr_scheduler.get_last_lr()[0]:.2e}"
        )
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="accumulation example")
    parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16", "fp8"])
    parser.add_argument("--gradient_accumulation_steps", type=int, default=4)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    training_function({"lr": 1e-2, "num_epochs": 3, "seed": 42, "batch_size": 16}, args)


if __name__ == "__main__":
    main()
