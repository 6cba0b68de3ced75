import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 1024
    num_envs: int = 2
    num_steps: int = 64
    num_minibatches: int = 4
    update_epochs: int = 4
    lr: float = 5e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float = 0.01


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self, obs_dim, n_act):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(obs_dim, 32)), nn.Tanh(), layer_init(nn.Linear(32, 1), std=1.0)
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(obs_dim, 32)), nn.Tanh(), layer_init(nn.Linear(32, n_act), std=0.01)
        )

    def act(self, x, a=None):
        dist = Categorical(logits=self.actor(x))
        if a is None:
            a = dist.sample()
        return a, dist.log_prob(a), dist.entropy(), self.critic(x).squeeze(-1)


if __name__ == "__main__":
    args = Args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(args.env_id) for _ in range(args.num_envs)])
    obs_dim = int(np.prod(envs.single_observation_space.shape))
    agent = Agent(obs_dim, int(envs.single_action_space.n)).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)

    S, N = args.num_steps, args.num_envs
    batch_size = S * N
    mb_size = batch_size // args.num_minibatches
    num_updates = args.total_timesteps // batch_size
    obs = torch.zeros((S, N, obs_dim), device=device)
    actions, logprobs, rewards, dones, values = (torch.zeros((S, N), device=device) for _ in range(5))

    global_step, start = 0, time.time()
    next_obs = torch.as_tensor(envs.reset(seed=args.seed)[0], dtype=torch.float32, device=device)
    next_done = torch.zeros(N, device=device)
    for update in range(1, num_updates + 1):
        optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / num_updates) * args.lr
        for t in range(S):
            global_step += N
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                a, lp, _, v = agent.act(next_obs)
            actions[t], logprobs[t], values[t] = a, lp, v
            o, r, term, trunc, _ = envs.step(a.cpu().numpy())
            rewards[t] = torch.tensor(r, device=device)
            next_obs = torch.as_tensor(o, dtype=torch.float32, device=device)
            next_done = torch.as_tensor(np.logical_or(term, trunc), dtype=torch.float32, device=device)

        with torch.no_grad():
            last_v = agent.critic(next_obs).squeeze(-1)
            adv, lastgae = torch.zeros_like(rewards), 0
            for t in reversed(range(S)):
                nonterm = 1.0 - (next_done if t == S - 1 else dones[t + 1])
                nextv = last_v if t == S - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * nextv * nonterm - values[t]
                adv[t] = lastgae = delta + args.gamma * args.gae_lambda * nonterm * lastgae
            returns = adv + values

        b_obs, b_lp, b_act = obs.reshape(-1, obs_dim), logprobs.reshape(-1), actions.reshape(-1)
        b_adv, b_ret, b_val = adv.reshape(-1), returns.reshape(-1), values.reshape(-1)
        inds, clipfracs = np.arange(batch_size), []
        for epoch in range(args.update_epochs):
            np.random.shuffle(inds)
            for s in range(0, batch_size, mb_size):
                mb = inds[s : s + mb_size]
                _, newlp, ent, newv = agent.act(b_obs[mb], b_act.long()[mb])
                logratio = newlp - b_lp[mb]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs += [((ratio - 1.0).abs() > args.clip_coef).float().mean().item()]
                mb_adv = (b_adv[mb] - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
                pg_loss = torch.max(
                    -mb_adv * ratio, -mb_adv * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                ).mean()
                v_loss = 0.5 * ((newv - b_ret[mb]) ** 2).mean()
                loss = pg_loss - args.ent_coef * ent.mean() + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
            if args.target_kl and approx_kl > args.target_kl:
                print(f"  early stop at epoch {epoch}, kl {approx_kl.item():.4f}")
                break
        y_pred, y_true = b_val.cpu().numpy(), b_ret.cpu().numpy()
        var_y = np.var(y_true)
        explained = np.nan if var_y == 0 else 1 - np.var(y_true - y_pred) / var_y
        print(
            f"update {update} step {global_step} pg {pg_loss.item():.4f} v {v_loss.item():.3f} ev {explained:.3f} "
            f"clip {np.mean(clipfracs):.3f} SPS {int(global_step / (time.time() - start))}"
        )
