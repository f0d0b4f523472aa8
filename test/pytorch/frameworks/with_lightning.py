"""Lightning's trainer: with_lightning.py ddp|fsdp NODES."""
import sys
import tempfile

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)], nn.Linear(256, 10))

    def loss(self, batch):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def training_step(self, batch, number):
        loss = self.loss(batch)
        self.log("loss", loss, sync_dist=True)
        if self.global_rank == 0:
            print(f"step {number}", flush=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = torch.utils.data.TensorDataset(torch.randn(1024, 256), torch.randint(0, 10, (1024,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True)
strategy = FSDPStrategy(auto_wrap_policy={nn.Linear}) if sys.argv[1] == "fsdp" else "ddp"
lightning.Trainer(accelerator="gpu", devices="auto", num_nodes=int(sys.argv[2]), strategy=strategy, max_epochs=1, limit_train_batches=12, limit_val_batches=4,
                  enable_progress_bar=False, accumulate_grad_batches=2, default_root_dir=tempfile.gettempdir()).fit(Classifier(), loader, loader)
