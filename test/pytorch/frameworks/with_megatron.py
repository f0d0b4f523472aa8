"""Megatron-core's GPT: with_megatron.py TENSOR PIPELINE CHUNKS: tensor and pipeline parallel sizes, model chunks a rank (1: none);
the rest of the ranks are data parallel, with its distributed optimizer."""
import os
import sys

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

tensor, pipeline, chunks = map(int, sys.argv[1:4])
virtual = chunks if chunks > 1 else None
SEQUENCE, BATCH, VOCABULARY = 64, 2, 512
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
parallel_state.initialize_model_parallel(tensor, pipeline, virtual)
tensor_parallel.model_parallel_cuda_manual_seed(123)
config = TransformerConfig(
    num_layers=8, hidden_size=64, num_attention_heads=4, tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline,
    virtual_pipeline_model_parallel_size=virtual, pipeline_dtype=torch.float32, use_cpu_initialization=True, attention_dropout=0, hidden_dropout=0,
    gradient_accumulation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, persist_layer_norm=False,
    overlap_p2p_comm=virtual is not None, batch_p2p_comm=virtual is None)
config.finalize_model_grads_func = finalize_model_grads


def part(chunk):
    stage = {} if chunk is None else {"vp_stage": chunk}
    first = parallel_state.is_pipeline_first_stage(ignore_virtual=chunk is None, **stage)
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=chunk is None, **stage)
    spec = get_gpt_layer_local_spec(num_experts=None, moe_grouped_gemm=False)
    model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=VOCABULARY, max_sequence_length=SEQUENCE, pre_process=first, post_process=last, **stage)
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=True, use_distributed_optimizer=True)
    return DistributedDataParallel(config, ddp, model.cuda())


def batches():
    while True:
        tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE)).cuda()
        positions = torch.arange(SEQUENCE).unsqueeze(0).expand(BATCH, -1).cuda()
        yield tokens, positions, torch.ones(BATCH, 1, SEQUENCE, SEQUENCE, dtype=torch.bool).tril().logical_not().cuda()


def loss_of(output):
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}


def forward(data, model):
    tokens, positions, mask = next(data)
    return model(tokens, positions, mask, labels=tokens), loss_of


models = [part(chunk) for chunk in (range(virtual) if virtual else [None])]
optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, use_distributed_optimizer=True, bf16=False), models)
data = [batches() for _ in models]
for step in range(12):
    for model in models:
        model.zero_grad_buffer()
    optimizer.zero_grad()
    get_forward_backward_func()(forward_step_func=forward, data_iterator=data if virtual else data[0], model=models if virtual else models[0],
                                num_microbatches=4, seq_length=SEQUENCE, micro_batch_size=BATCH, forward_only=False)
    optimizer.step()
    if torch.distributed.get_rank() == 0:
        print(f"step {step}", flush=True)
torch.cuda.synchronize()
torch.distributed.destroy_process_group()
