"""A model of transformers, trained by accelerate: with_accelerate.py ddp|fsdp2."""
import sys
import tempfile

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import GPT2Config, GPT2LMHeadModel

plugin = None
if sys.argv[1] == "fsdp2":
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["GPT2Block"])
accelerator = Accelerator(gradient_accumulation_steps=2, fsdp_plugin=plugin, mixed_precision="bf16")
config = GPT2Config(vocab_size=512, n_positions=128, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)
data = [{"input_ids": torch.randint(0, 512, (64,)), "labels": torch.randint(0, 512, (64,))} for _ in range(128)]
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
step = 0
for epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            if accelerator.is_main_process:
                print(f"step {step}", flush=True)
            step += 1
    with torch.no_grad():
        accelerator.gather_for_metrics(model(**next(iter(loader))).loss.repeat(4))
    accelerator.wait_for_everyone()
    accelerator.save_state(tempfile.gettempdir() + "/saved")
accelerator.end_training()
