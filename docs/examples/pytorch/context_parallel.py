"""Context parallelism: each rank has a part of a long sequence; keys and values go round a ring of ranks.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/context_parallel.py
"""
import argparse
import os

import torch
import torch.distributed as dist


def ring_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention to the whole sequence, a part at a time: while one is worked on, the next is on its way."""
    rank, world = dist.get_rank(), dist.get_world_size()
    block = torch.stack([key, value])
    maximum = torch.full(query.shape[:-1], float("-inf"), device=query.device)
    total = torch.zeros_like(maximum)
    output = torch.zeros_like(query)
    for turn in range(world):
        if turn + 1 < world:
            arriving = torch.empty_like(block)
            transfers = [dist.P2POp(dist.isend, block, (rank + 1) % world), dist.P2POp(dist.irecv, arriving, (rank - 1) % world)]
            under_way = dist.batch_isend_irecv(transfers)
        scores = query @ block[0].transpose(-1, -2) / query.shape[-1] ** 0.5
        larger = torch.maximum(maximum, scores.amax(-1))
        weights = torch.exp(scores - larger.unsqueeze(-1))
        correction = torch.exp(maximum - larger)
        total = total * correction + weights.sum(-1)
        output = output * correction.unsqueeze(-1) + weights @ block[1]
        maximum = larger
        if turn + 1 < world:
            for transfer in under_way:
                transfer.wait()
            block = arriving
    return output / total.unsqueeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128, help="of a rank")
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")

    with torch.no_grad():
        for step in range(args.steps):
            query, key, value = (torch.randn(2, args.heads, args.tokens, 64, device="cuda") for _ in range(3))
            loss = ring_attention(query, key, value).square().mean()
            torch.cuda.synchronize()
            if dist.get_rank() == 0:
                print(f"step {step}, loss {loss.item():.9g}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
