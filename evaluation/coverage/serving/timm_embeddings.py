# embeddings of pictures under autocast
import timm
import torch

model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=0, depth=3).eval()
store = []
with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
    for _ in range(6):
        store.append(torch.nn.functional.normalize(model(torch.rand(4, 3, 64, 64)), dim=-1))
print(torch.cat(store).shape)
