#!/usr/bin/env python3
"""compare_train.py [-b BYTES] TEXT... -- are our merges those of the package tokenizers?

Trains both on the first BYTES (default 400,000) of the texts, for every split by its published expression and for
several settings, and compares every merge in order.  The expressions stand here a second time, by hand, so that a
slip in ours is seen.  Without texts it takes tests/golden/tok/text.txt.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

U, W = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
M, SP = r"[^\r\n\p{L}\p{N}]?", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = M + U + "*" + W + "+{t}|" + M + U + "+" + W + r"*{t}|{n}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*"
PLAIN = C + "|" + M + r"\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"


def cased(tail, numbers):
    return CASED.replace("{t}", tail).replace("{n}", numbers).replace("{{", "{").replace("}}", "}") + SP


SPLITS = {
    "o200k": [cased(C + "?", r"\p{N}{1,3}")],
    "tekken": [cased("", r"\p{N}")],
    "llama3": [PLAIN % r"\p{N}{1,3}" + SP],
    "qwen2": [PLAIN % r"\p{N}" + SP],
    "cl100k": [PLAIN % r"\p{N}{1,3}" + r"|\s*[\r\n]|\s+(?!\S)|\s+"],
    "gpt2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "deepseek_v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"],
}
# name, our options, their splits, minimal frequency, NFC
CASES = [(n, ["--scheme", n], s, 2, False) for n, s in SPLITS.items()] + [
    ("o200k, one digit", ["--digits", "1"], [cased(C + "?", r"\p{N}")], 2, False),
    ("llama3, two digits", ["--scheme", "llama3", "--digits", "2"], [PLAIN % r"\p{N}{1,2}" + SP], 2, False),
    ("o200k, seen five times", ["--min-frequency", "5"], SPLITS["o200k"], 5, False),
    ("qwen2 after NFC", ["--scheme", "qwen2", "--nfc"], SPLITS["qwen2"], 2, True),
    ("words and the rest", ["--split", r"\w+|[^\w\s]+|\s+"], [r"\w+|[^\w\s]+|\s+"], 2, False),
]


def theirs(text, splits, size, frequency, nfc):
    t = Tokenizer(models.BPE())
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(s), behavior="isolated") for s in splits] +
                                              [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=size, min_frequency=frequency, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return json.loads(t.to_str())


def pairs(model):
    return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["model"]["merges"]]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "..")
    p = argparse.ArgumentParser()
    p.add_argument("-b", "--bytes", type=int, default=400000)
    p.add_argument("-n", "--vocab-size", type=int, default=3000)
    p.add_argument("text", nargs="*")
    o = p.parse_args()
    text = ""
    for path in o.text or [os.path.join(here, "..", "golden", "tok", "text.txt")]:
        with open(path, encoding="utf-8", newline="", errors="replace") as f:
            text += f.read(o.bytes // max(1, len(o.text)))
    size, failed = o.vocab_size, 0
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "text")
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        for name, options, splits, frequency, nfc in CASES:
            their = pairs(theirs(text, splits, size, frequency, nfc))
            out = os.path.join(d, "ours.json")
            subprocess.run([os.path.join(root, "bin", "moe-tokenize"), "train", "-q", "-f", "--max-word", "0", "--vocab-size",
                            str(257 + len(their)), *options, "-o", out, path], check=True)
            with open(out, encoding="utf-8") as f:
                our = pairs(json.load(f))
            first = next((i for i, (a, b) in enumerate(zip(our, their)) if a != b), None)
            same = len(our) == len(their) and first is None
            at = "" if first is None else f"; merge {first} is {our[first]}, theirs {their[first]}"
            both = Tokenizer.from_file(out)
            ids = subprocess.run([os.path.join(root, "bin", "moe-tokenize"), "encode", "-q", "-t", out, path], check=True, capture_output=True).stdout
            n = len(both.encode(text, add_special_tokens=False).ids)
            same = same and n * 4 == len(ids)
            print(f"{'ok' if same else 'FAILED'} - training: {name}: {len(our)} merges, theirs {len(their)}{at}; {len(ids) // 4} ids, theirs {n}")
            failed += not same
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
