import copy
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
class_names = ["ants", "bees"]

data_transforms = {
    "train": transforms.Compose([
        transforms.ToPILImage(),
        transforms.RandomResizedCrop(32, scale=(0.6, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]),
    "val": transforms.Compose([
        transforms.ToPILImage(),
        transforms.Resize(36),
        transforms.CenterCrop(32),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]),
}

class FakeInsects(Dataset):
    def __init__(self, n, transform, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(0, 2, (n,), generator=g)
        self.imgs = torch.rand(n, 3, 40, 40, generator=g) * 0.6
        self.imgs[self.targets == 1, 0] += 0.35      # bees are redder, whatever
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        return self.transform(self.imgs[i]), self.targets[i].item()

image_datasets = {"train": FakeInsects(64, data_transforms["train"], 0), "val": FakeInsects(24, data_transforms["val"], 1)}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=8, shuffle=(x == "train")) for x in ["train", "val"]}
dataset_sizes = {x: len(image_datasets[x]) for x in ["train", "val"]}

def train_model(model, criterion, optimizer, scheduler, num_epochs=2):
    since = time.time()
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        print("Epoch {}/{}".format(epoch, num_epochs - 1))
        print("-" * 10)
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
                # keep the frozen batchnorms from drifting
                for m in model.modules():
                    if isinstance(m, nn.BatchNorm2d):
                        m.eval()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()
            epoch_loss = running_loss / dataset_sizes[phase]
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            print("{} Loss: {:.4f} Acc: {:.4f}".format(phase, epoch_loss, epoch_acc))
            if phase == "val" and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
        print()
    time_elapsed = time.time() - since
    print("Training complete in {:.0f}m {:.0f}s".format(time_elapsed // 60, time_elapsed % 60))
    print("Best val Acc: {:4f}".format(best_acc))
    model.load_state_dict(best_model_wts)
    return model

torch.manual_seed(0)
model_conv = models.resnet18(weights=None)  # would be IMAGENET1K_V1 with internet
for param in model_conv.parameters():
    param.requires_grad = False
model_conv.fc = nn.Linear(model_conv.fc.in_features, len(class_names))
model_conv = model_conv.to(device)
trainable = [n for n, p in model_conv.named_parameters() if p.requires_grad]
print("training only:", trainable)

optimizer_conv = optim.SGD(model_conv.fc.parameters(), lr=0.01, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_conv, step_size=1, gamma=0.5)
model_conv = train_model(model_conv, nn.CrossEntropyLoss(), optimizer_conv, exp_lr_scheduler, num_epochs=2)
torch.save(model_conv.state_dict(), "resnet18_head.pth")
