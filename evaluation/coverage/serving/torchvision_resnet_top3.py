# the three most likely classes of pictures; gradients were not switched off
import torch
import torchvision

model = torchvision.models.resnet18(weights=None)
model.eval()
for _ in range(5):
    picture = torch.rand(2, 3, 64, 64)
    mean, deviation = picture.mean((2, 3), keepdim=True), picture.std((2, 3), keepdim=True)
    scores = model((picture - mean) / deviation).softmax(1)
    print(scores.topk(3).indices.tolist())
