import torch
from torch import nn

torch.manual_seed(0)
VOCAB, PAD, BOS = 40, 0, 1
model = nn.Transformer(
    d_model=32, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=64, dropout=0.0, batch_first=True
)
embed = nn.Embedding(VOCAB, 32)
project = nn.Linear(32, VOCAB)
params = [*model.parameters(), *embed.parameters(), *project.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) * 4**-1.5))

for step in range(8):
    source = torch.randint(2, VOCAB, (8, 10))
    target = torch.cat([torch.full((8, 1), BOS), source.flip(1)], dim=1)
    mask = nn.Transformer.generate_square_subsequent_mask(target.size(1) - 1)
    hidden = model(embed(source), embed(target[:, :-1]), tgt_mask=mask)
    loss = nn.functional.cross_entropy(project(hidden).transpose(1, 2), target[:, 1:], ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warmup.step()
    print("loss", loss.item(), "lr", warmup.get_last_lr()[0])
