"""DeepSpeed: with_deepspeed.py 2|3|pipeline: ZeRO of that stage, or its pipeline."""
import os
import sys

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from torch import nn

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
deepspeed.init_distributed("nccl")
pipeline = sys.argv[1] == "pipeline"
layers = [nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(8)]
model = PipelineModule(layers=layers, loss_fn=nn.MSELoss(), num_stages=2, partition_method="uniform") if pipeline else nn.Sequential(*layers)
config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, "steps_per_print": 1000, "bf16": {"enabled": True},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}, "zero_optimization": {"stage": 1 if pipeline else int(sys.argv[1])}}
data = [(torch.randn(128).bfloat16(), torch.randn(128).bfloat16()) for _ in range(4096)]
engine, _, loader, _ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config, training_data=data)
batches = None if pipeline else iter(loader)
for step in range(12):
    if pipeline:
        engine.train_batch()
    else:
        for _ in range(4):
            x, y = next(batches)
            engine.backward(nn.functional.mse_loss(engine(x.cuda()), y.cuda()))
            engine.step()
    if torch.distributed.get_rank() == 0:
        print(f"step {step}", flush=True)
torch.distributed.destroy_process_group()
