#!/usr/bin/env python3
"""make_tok_golden.py DIR -- the golden vocabulary and ids, made by the package tokenizers.

Reads tests/golden/tok/text.txt and writes DIR/tokenizer.json (their trainer's file as it is, its special token
first) and DIR/ids.bin (their ids of the text, little-endian int32).  Both use our split expression, copied here
by hand from its publication, so that a slip in ours is seen.
"""
import os
import struct
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{TAIL}",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{TAIL}",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
VOCAB_SIZE = 1000


def main(out):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "golden", "tok", "text.txt"), encoding="utf-8", newline="") as f:
        text = f.read()
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(O200K), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    ids = t.encode(text, add_special_tokens=False).ids
    t.save(os.path.join(out, "tokenizer.json"))
    with open(os.path.join(out, "ids.bin"), "wb") as f:
        f.write(struct.pack(f"<{len(ids)}i", *ids))


if __name__ == "__main__":
    main(sys.argv[1])
