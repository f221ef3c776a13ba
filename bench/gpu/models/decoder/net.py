"""A decoder of 350 million parameters with random weights, which generates token by token."""

import os
from collections.abc import Iterator

import torch
from transformers import GPT2Config, GPT2LMHeadModel

PROMPT = 16
"""Tokens of the prompt."""


class Net:
    """The decoder on the GPU, or on the CPU where there is none."""

    def __init__(self) -> None:
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if cuda else "cpu")
        torch.manual_seed(0)
        layers = int(os.environ.get("BENCH_DECODER_LAYERS", "24"))
        config = GPT2Config(n_layer=layers, n_embd=1024, n_head=16)
        self.model = GPT2LMHeadModel(config).eval().to(self.device, torch.bfloat16 if cuda else torch.float32)

    @torch.inference_mode()
    def generate(self, tokens: int) -> Iterator[int]:
        """Yield one token after the other, the most likely one."""
        ids = torch.arange(PROMPT, device=self.device).unsqueeze(0)
        cache = None
        for _ in range(tokens):
            result = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            ids = result.logits[:, -1:].argmax(dim=-1)
            yield int(ids)
