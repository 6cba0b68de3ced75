import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

class GridWorld:
    """5x5 grid. Agent must reach the goal without stepping in a pit; small cost per move."""

    MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, size=5, seed=None, max_len=25):
        self.size, self.max_len = size, max_len
        self.rng = np.random.default_rng(seed)
        self.goal, self.pits = (size - 1, size - 1), {(1, 3), (3, 1)}
        self.reset()

    def _obs(self):
        o = np.zeros((3, self.size, self.size), dtype=np.float32)
        o[0][self.pos] = 1
        o[1][self.goal] = 1
        for p in self.pits:
            o[2][p] = 1
        return o.ravel()

    def reset(self):
        while True:
            self.pos = tuple(int(v) for v in self.rng.integers(0, self.size, 2))
            if self.pos != self.goal and self.pos not in self.pits:
                break
        self.t = 0
        return self._obs()

    def step(self, action):
        dr, dc = self.MOVES[action]
        self.pos = (min(max(self.pos[0] + dr, 0), self.size - 1), min(max(self.pos[1] + dc, 0), self.size - 1))
        self.t += 1
        if self.pos == self.goal:
            return self._obs(), 1.0, True, {"outcome": "goal"}
        if self.pos in self.pits:
            return self._obs(), -1.0, True, {"outcome": "pit"}
        return self._obs(), -0.02, self.t >= self.max_len, {"outcome": "timeout"}

class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, n_actions)
        self.v = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)

    def forward(self, x):
        h = self.trunk(x)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)

def gae(rewards, values, dones, last_value, gamma, lam):
    adv, out = 0.0, []
    values = torch.cat([values, last_value.unsqueeze(0)])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * values[t + 1] * (1 - dones[t]) - values[t]
        adv = delta + gamma * lam * (1 - dones[t]) * adv
        out.insert(0, adv)
    return torch.stack(out)

def evaluate(model, device, episodes=10):
    env, wins, ret = GridWorld(seed=999), 0, 0.0
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            with torch.no_grad():
                dist, _ = model(torch.from_numpy(obs).to(device))
            obs, r, done, info = env.step(int(dist.probs.argmax()))
            ret += r
        wins += info["outcome"] == "goal"
    return wins / episodes, ret / episodes

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--rollout", type=int, default=16)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lam", type=float, default=0.95)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = [GridWorld(seed=args.seed + i) for i in range(args.num_envs)]
    obs = np.stack([e.reset() for e in envs])
    model = ActorCritic(obs.shape[1], 4).to(device)
    optimizer = optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.99, eps=1e-5)
    returns, running = deque(maxlen=20), np.zeros(args.num_envs)
    for update in range(1, args.updates + 1):
        logps, values, rewards, dones, ents = [], [], [], [], []
        for _ in range(args.rollout):
            dist, v = model(torch.from_numpy(obs).to(device))
            action = dist.sample()
            nxt, rew, done = [], [], []
            for i, (env, a) in enumerate(zip(envs, action.tolist())):
                o, r, d, _ = env.step(a)
                running[i] += r
                if d:
                    returns.append(running[i])
                    running[i] = 0.0
                    o = env.reset()
                nxt.append(o)
                rew.append(r)
                done.append(float(d))
            obs = np.stack(nxt)
            logps.append(dist.log_prob(action))
            ents.append(dist.entropy())
            values.append(v)
            rewards.append(torch.tensor(rew, device=device))
            dones.append(torch.tensor(done, device=device))
        values = torch.stack(values)
        with torch.no_grad():
            _, last = model(torch.from_numpy(obs).to(device))
            adv = gae(rewards, values.detach(), dones, last, args.gamma, args.lam)
            targets = adv + values
        norm_adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        policy_loss = -(torch.stack(logps) * norm_adv).mean()
        value_loss = (targets - values).pow(2).mean()
        entropy = torch.stack(ents).mean()
        loss = policy_loss + 0.5 * value_loss - args.entropy * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if update % 10 == 0:
            avg = np.mean(returns) if returns else float("nan")
            win, ev = evaluate(model, device)
            print(f"update {update:3d} return {avg:+.3f} policy {policy_loss.item():+.3f} value {value_loss.item():.3f} "
                  f"entropy {entropy.item():.3f} | eval win {win:.0%} return {ev:+.2f}")
            if win >= 0.99:
                print("solved")
                break
    torch.save(model.state_dict(), "a2c.pt")

if __name__ == "__main__":
    main()
