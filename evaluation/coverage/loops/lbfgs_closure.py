# sine wave prediction w/ LSTM cells, LBFGS, double precision
import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self, hidden=16):
        super(Sequence, self).__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, input, future=0):
        outputs = []
        z = lambda: torch.zeros(input.size(0), self.hidden, dtype=input.dtype, device=input.device)
        h1, c1, h2, c2 = z(), z(), z(), z()
        for x_t in input.split(1, dim=1):
            h1, c1 = self.lstm1(x_t, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            out = self.linear(h2)
            outputs += [out]
        for _ in range(future):  # feed own predictions
            h1, c1 = self.lstm1(out, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            out = self.linear(h2)
            outputs += [out]
        return torch.cat(outputs, dim=1)


def generate(path, period=6, length=30, n=12):
    np.random.seed(2)
    x = np.arange(length) + np.random.randint(-4 * period, 4 * period, n).reshape(n, 1)
    np.save(path, np.sin(x / 1.0 / period).astype("float64"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=7, help="steps to run")
    parser.add_argument("--lr", type=float, default=0.8)
    opt = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)

    generate("traindata.npy")
    data = np.load("traindata.npy")
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    inp = torch.from_numpy(data[3:, :-1]).to(device)
    target = torch.from_numpy(data[3:, 1:]).to(device)
    test_inp = torch.from_numpy(data[:3, :-1]).to(device)
    test_target = torch.from_numpy(data[:3, 1:]).to(device)

    seq = Sequence()
    seq.double().to(device)
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=opt.lr, max_iter=8, history_size=10, line_search_fn="strong_wolfe")

    best = float("inf")
    for i in range(opt.steps):
        print("STEP: ", i)

        def closure():
            optimizer.zero_grad()
            out = seq(inp)
            loss = criterion(out, target)
            print("loss:", loss.item())
            loss.backward()
            return loss

        final = optimizer.step(closure)
        with torch.no_grad():
            future = 10
            pred = seq(test_inp, future=future)
            loss = criterion(pred[:, :-future], test_target)
            print("test loss:", loss.item())
            y = pred.detach().cpu().numpy()
            if loss.item() < best:
                best = loss.item()
                np.save("predict_best.npy", y)
    print("best test loss %.6f, step loss at the end %.6f" % (best, float(final)))
