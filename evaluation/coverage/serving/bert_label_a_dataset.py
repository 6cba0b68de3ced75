# label a data set in batches, the last one smaller
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

device = "cuda" if torch.cuda.is_available() else "cpu"
model = BertForSequenceClassification(
    BertConfig(num_hidden_layers=3, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=300)
).to(device)
model.eval()
data = TensorDataset(torch.randint(0, 300, (70, 20)), torch.ones(70, 20, dtype=torch.long))
labels = []
with torch.no_grad():
    for ids, mask in DataLoader(data, batch_size=16, num_workers=2):
        logits = model(ids.to(device), attention_mask=mask.to(device)).logits
        labels += logits.argmax(-1).tolist()
print(len(labels))
