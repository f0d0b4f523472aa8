"""Parts of models, drawn."""
import random

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, TOKENS = 64, 97


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)))


class Residual(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), activation(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.layers(x)


class Convolution(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, (3, 1), padding=(1, 0), bias=False), norm, nn.ReLU())

    def forward(self, x):
        return x + self.layers(x.transpose(1, 2).unsqueeze(-1)).squeeze(-1).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        return x + self.layer(x)[0]


class Sometimes(nn.Module):
    """Its parameters have a gradient in some steps only."""
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(WIDTH, WIDTH), 0

    def forward(self, x):
        self.calls += 1
        return x + self.layer(x) if self.calls % 3 else x


COMPILED = []  # to be drawn: how torch.compile is to compile blocks; empty: not at all


def blocks_of(draw: random.Random, of_batches: bool = False) -> list:
    blocks = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(("attention", "attention", "residual", "residual", "residual", "convolution", "recurrent"))
        activation, cell = draw.choice((nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh)), draw.choice((nn.LSTM, nn.GRU))
        blocks.append({"attention": Attention, "residual": lambda: Residual(activation),
                       "convolution": lambda: Convolution(nn.BatchNorm2d(WIDTH) if of_batches else nn.GroupNorm(4, WIDTH)),
                       "recurrent": lambda: Recurrent(cell)}[kind]())
        if COMPILED and kind in ("attention", "residual"):
            blocks[-1].compile(mode=COMPILED[0])
    return blocks


def plain_blocks_of(draw: random.Random) -> list:
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), draw.choice((nn.ReLU, nn.Tanh))()) for _ in range(draw.randint(1, 4))]


def model_of(draw: random.Random, unused: bool, of_batches: bool) -> nn.Module:
    blocks = blocks_of(draw, of_batches)
    if unused:
        blocks.append(Sometimes())
    return nn.Sequential(nn.Embedding(TOKENS, WIDTH), *blocks, nn.Linear(WIDTH, TOKENS))
