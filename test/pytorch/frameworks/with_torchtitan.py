"""torchtitan's debug model of Llama 3, on words that are made here: with_torchtitan.py [OPTIONS OF TORCHTITAN]"""
import json
import os
import pathlib
import random
import sys
import time

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

assets = pathlib.Path("tests/assets")
made = assets / "made"
if os.environ["RANK"] == "0":
    (assets / "tokenizer").mkdir(parents=True)
    (assets / "c4_test").mkdir()
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 8))) for _ in range(800)]
    texts = [" ".join(draw.choices(words, k=draw.randint(50, 600))) for _ in range(600)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(assets / "tokenizer" / "tokenizer.json"))
    (assets / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"bos_token": special[0], "eos_token": special[1]}))
    (assets / "c4_test" / "data.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    made.touch()
while not made.exists():
    time.sleep(0.1)

from torchtitan.train import main  # noqa: E402

sys.argv[1:] = ["--module", "llama3", "--config", "llama3_debugmodel", "--training.steps", "10", "--training.seq_len", "256",
                "--training.local_batch_size", "4", *sys.argv[1:]]
main()
if os.environ["RANK"] == "0":
    print("torchtitan ended", flush=True)
