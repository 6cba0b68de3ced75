"""WGAN-GP on 2-D points (ring of gaussians)."""

import argparse
import logging
import math

import torch
from torch import autograd, nn, optim

logging.basicConfig(level=logging.INFO, format="%(message)s")


def sample_ring(n, modes=8, radius=2.0, std=0.05):
    k = torch.randint(0, modes, (n,))
    ang = 2 * math.pi * k / modes
    centers = torch.stack([ang.cos(), ang.sin()], dim=1) * radius
    return centers + std * torch.randn(n, 2)


def infinite(batch):
    while True:
        yield sample_ring(batch)


def mlp(sizes, act=nn.ReLU):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(act())
    return nn.Sequential(*layers)


def calc_gradient_penalty(D, real, fake, lam):
    alpha = torch.rand(real.size(0), 1, device=real.device).expand_as(real)
    inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d_inter = D(inter)
    grads = autograd.grad(
        outputs=d_inter,
        inputs=inter,
        grad_outputs=torch.ones_like(d_inter),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    return lam * ((grads.norm(2, dim=1) - 1) ** 2).mean()


def main(cfg):
    torch.manual_seed(cfg.seed)
    dev = torch.device("cuda" if torch.cuda.is_available() and not cfg.no_cuda else "cpu")
    G, D = mlp([cfg.nz, 64, 64, 2]).to(dev), mlp([2, 64, 64, 1], lambda: nn.LeakyReLU(0.2)).to(dev)
    optG = optim.Adam(G.parameters(), lr=cfg.lr, betas=(0.5, 0.9))
    optD = optim.Adam(D.parameters(), lr=cfg.lr, betas=(0.5, 0.9))
    data = infinite(cfg.batch)

    for it in range(cfg.iters):
        for p in D.parameters():
            p.requires_grad = True
        for _ in range(cfg.critic_iters):
            real = next(data).to(dev)
            z = torch.randn(cfg.batch, cfg.nz, device=dev)
            with torch.no_grad():
                fake = G(z)
            D.zero_grad()
            d_real, d_fake = D(real).mean(), D(fake).mean()
            gp = calc_gradient_penalty(D, real, fake, cfg.lam)
            d_cost = d_fake - d_real + gp
            d_cost.backward()
            optD.step()
        wasserstein = d_real - d_fake

        for p in D.parameters():
            p.requires_grad = False  # no need for grads in D while G trains
        G.zero_grad()
        g_cost = -D(G(torch.randn(cfg.batch, cfg.nz, device=dev))).mean()
        g_cost.backward()
        optG.step()

        if it % cfg.log_every == 0 or it == cfg.iters - 1:
            logging.info(
                "iter %4d | W %.4f | D %.4f | G %.4f | gp %.4f",
                it,
                wasserstein.item(),
                d_cost.item(),
                g_cost.item(),
                gp.item(),
            )

    with torch.no_grad():
        pts = G(torch.randn(256, cfg.nz, device=dev)).cpu()
    r = pts.norm(dim=1)
    logging.info("generated radius: mean %.3f std %.3f (true 2.0)", r.mean(), r.std())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=25)
    p.add_argument("--critic-iters", type=int, default=5)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--nz", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--lam", type=float, default=10.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--no-cuda", action="store_true")
    main(p.parse_args())
