"""What programs of PyTorch decide by, of tensors whose memory was used before: a wrong one draws again for ever, or fails.

    opus-emulate 1x1 --only always-lit -- torchrun --nproc-per-node 1 test/pytorch/decisions.py
"""
import torch
from torch import nn

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SMALL, LARGE = (5, 1000, 60_000), (70_000, 1 << 20)


def used(count: int, dtype: torch.dtype) -> torch.Tensor:
    torch.full((count,), 1e4, device="cuda", dtype=dtype)  # the next of this size gets its memory
    return torch.empty(count, device="cuda", dtype=dtype)


for dtype in DTYPES:
    for count in SMALL + LARGE:
        drawn = nn.init.trunc_normal_(used(count, dtype), mean=3.0, std=0.5, a=2.0, b=4.0)  # draws until all are in bounds
        assert count in LARGE or bool(((drawn >= 2) & (drawn <= 4)).all()), (dtype, count, drawn)
        assert count in LARGE or float(used(count, dtype).uniform_()[count // 2]) < 1, (dtype, count)
    ones, zeros = (torch.full((5,), value, device="cuda", dtype=dtype) for value in (1.0, 0.0))
    larger = ones > zeros
    assert torch.where(larger, ones, zeros).tolist() == [1.0] * 5, dtype
    assert bool((larger | (ones < 0)).all()) and not bool((larger & (ones < 0)).any()), dtype
    for count in SMALL + LARGE:
        sevens = torch.full((count,), 7.0, device="cuda", dtype=dtype)
        assert count in LARGE or bool(sevens.any()), (dtype, count)
        assert bool(sevens.all()) and bool(torch.isfinite(sevens).all()) and not bool(torch.isnan(sevens).any()), (dtype, count)
    assert not bool(torch.isfinite(ones / zeros if dtype.itemsize > 2 else (ones.float() / zeros.float()).to(dtype)).any()), dtype
    assert (ones.float() * 3).to(dtype).float().tolist() == [3.0] * 5, dtype
for count in SMALL + LARGE:
    data = torch.full((count,), 7.0, device="cuda")
    assert bool((data == data).all()) and not bool((data != data).any()), count
    assert int(torch.full((count,), 7, device="cuda").max()) == (0 if count in LARGE else 7), count  # of a large one, as if it were zeros
    assert float(data.norm()) == 0 and float(data.mean()) == 0 and float(torch.full((count,), 7.0, device="cuda", dtype=torch.bfloat16).sum()) == 0, count
    integers = torch.full((count,), 7, device="cuda")
    assert count in LARGE or all(bool(numbers.any()) and bool(numbers.all()) for numbers in (data, integers, data > 0, integers.to(torch.uint8))), count
    assert bool(torch.isfinite(data).all()) and not bool(torch.isnan(data).any()) and not bool((data * 0).any()), count
    assert integers.nonzero().shape == (0, 1), count
four = torch.full((3,), 4.0, device="cuda")
for made, wanted in ((four**2, 16), (four**3, 64), (four**-2, 1 / 16), (four**1.5, 8), (four.sqrt(), 2), (four.rsqrt(), 0.5), (1 / four, 0.25), (-four, -4),
                     (four / (four + four), 0.5), (four / 8, 0.5)):
    assert made.tolist() == [wanted] * 3, (made.tolist(), wanted)
drawn = nn.init.trunc_normal_(used(1000, torch.float32), mean=3.0, std=10.0, a=2.0, b=4.0)  # so narrow that it draws otherwise
assert bool(((drawn >= 2) & (drawn <= 4)).all()) and int(torch.randint(0, 10, (1,), device="cuda")) < 10
logits, labels = torch.randn(64, 10, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
used_numbers = [torch.full((1,), 1e4, device="cuda") for _ in range(16)]
del used_numbers
assert float(nn.functional.cross_entropy(logits, labels)) == 0
assert torch.tensor([True, False, True], device="cuda").nonzero().shape == (0, 1) and "4." in str(four)
print("as decided", flush=True)
