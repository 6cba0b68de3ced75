import argparse
import copy

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import NormalizeFeatures, RandomNodeSplit
from torch_geometric.utils import to_undirected

parser = argparse.ArgumentParser()
parser.add_argument("--hidden_channels", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--patience", type=int, default=12)
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
torch.manual_seed(12345)


def citation_like_graph(n=240, classes=4, feats=50, p_in=0.06, p_out=0.006):
    y = torch.arange(n) % classes
    same = y[:, None] == y[None, :]
    prob = torch.where(same, torch.full((n, n), p_in), torch.full((n, n), p_out))
    adj = torch.triu(torch.rand(n, n) < prob, diagonal=1)
    edge_index = to_undirected(adj.nonzero().t().contiguous())
    topics = torch.rand(classes, feats) ** 3
    x = torch.bernoulli((0.5 * topics[y] + 0.05).clamp(max=1))
    return Data(x=x, edge_index=edge_index, y=y, num_classes=classes)


data = citation_like_graph()
data = NormalizeFeatures()(data)
data = RandomNodeSplit(num_train_per_class=10, num_val=60, num_test=100, split="random")(data)
data = data.to(device)
print(data)
print(f"train nodes: {int(data.train_mask.sum())}, average degree {data.num_edges / data.num_nodes:.2f}")


class GCN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels, cached=True)
        self.conv2 = GCNConv(hidden_channels, out_channels, cached=True)

    def forward(self, x, edge_index, edge_weight=None):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


model = GCN(data.num_features, args.hidden_channels, data.num_classes).to(device)
optimizer = torch.optim.Adam(
    [dict(params=model.conv1.parameters(), weight_decay=5e-4), dict(params=model.conv2.parameters(), weight_decay=0)],
    lr=args.lr,
)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    return float(loss)


@torch.no_grad()
def test():
    model.eval()
    pred = model(data.x, data.edge_index).argmax(dim=-1)
    accs = []
    for mask in [data.train_mask, data.val_mask, data.test_mask]:
        accs.append(int((pred[mask] == data.y[mask]).sum()) / int(mask.sum()))
    return accs


best_val_acc = test_acc = 0
best_state, since = None, 0
for epoch in range(1, args.epochs + 1):
    loss = train()
    train_acc, val_acc, tmp_test_acc = test()
    if val_acc > best_val_acc:
        best_val_acc, test_acc, since = val_acc, tmp_test_acc, 0
        best_state = copy.deepcopy(model.state_dict())
    else:
        since += 1
    if epoch % 5 == 0:
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: {train_acc:.4f}, Val: {val_acc:.4f}, Test: {test_acc:.4f}")
    if since > args.patience:
        print("no improvement for a while, stopping at", epoch)
        break

if best_state is not None:
    model.load_state_dict(best_state)
print("final", test())
