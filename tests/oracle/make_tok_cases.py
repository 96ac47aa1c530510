#!/usr/bin/env python3
"""make_tok_cases.py DIR -- small vocabularies of every format, and the ids that their own packages give.

Writes DIR/cases.jsonl: one object a line with the vocabulary's text (or its base64), how to load it, and documents
with their ids from tokenizers, tiktoken, sentencepiece or mistral-common.
"""
import base64
import json
import os
import random
import shutil
import sys
import tempfile

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Tokenizer

import tok_cases

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "tok")
N_TOKENIZERS = 12
SPECIALS = {"<|endoftext|>": 500, "<|pad|>": 503}
C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
U, W, NOT_HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}", r"&&[^\p{Han}]"
MARK, TAIL = r"[^\r\n\p{L}\p{N}]?", r"\s*[\r\n]+|\s+(?!\S)|\s+"
SCHEMES = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": rf"{MARK}{U}]*{W}]+{C}?|{MARK}{U}]+{W}]*{C}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}",
    "llama3": rf"{C}|{MARK}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}",
    "qwen2": rf"{C}|{MARK}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}",
    "tekken": rf"{MARK}{U}]*{W}]+|{MARK}{U}]+{W}]*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}",
    "kimi": rf"[\p{{Han}}]+|{MARK}{U}{NOT_HAN}]*{W}{NOT_HAN}]+{C}?|{MARK}{U}{NOT_HAN}]+{W}{NOT_HAN}]*{C}?|"
            rf"\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}",
}


def texts(rnd, n):
    with open(os.path.join(GOLDEN, "text.txt"), encoding="utf-8", newline="") as f:
        golden = f.read()
    at = rnd.randrange(len(golden) - 300)
    return [tok_cases.text(rnd, rnd.randrange(60)) for _ in range(n)] + [golden[at:at + 200], "a<|endoftext|>b", "a\n  ", "\n \n\n  x", " "]


def tokenizer_cases(rnd):
    made = 0
    while made < N_TOKENIZERS:
        spec = tok_cases.tokenizer(rnd)
        docs = []
        try:
            t = Tokenizer.from_str(json.dumps(spec))
            for specials in (False, True):
                t.encode_special_tokens = not specials
                for i in range(6):
                    x, template = tok_cases.text(rnd, rnd.randrange(50)), i % 2 == 1
                    docs.append({"text": x, "specials": specials, "template": template, "ids": t.encode(x, add_special_tokens=template).ids})
        except BaseException:   # the package's own panic
            continue
        made += 1
        yield {"vocabulary": json.dumps(spec, ensure_ascii=False, separators=(",", ":")), "docs": docs}


def ranks():
    """The golden vocabulary as bytes by rank: single bytes in order, then products in the order of the merges."""
    with open(os.path.join(GOLDEN, "tokenizer.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    back = {c: b for b, c in tok_cases.BYTES.items()}
    tokens = [bytes(back[c] for c in k) for k in sorted(vocab, key=vocab.get) if k != "<|endoftext|>"]
    return {t: i for i, t in enumerate(([bytes([b]) for b in range(256)] + [t for t in tokens if len(t) > 1])[:500])}


def b64(b):
    return base64.b64encode(b).decode()


def rank_cases(rnd):
    table = ranks()
    file = "".join(f"{b64(t)} {i}\n" for t, i in table.items())
    for name, pattern in SCHEMES.items():
        e = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=table, special_tokens=SPECIALS)
        docs = [{"text": x, "specials": s, "ids": e.encode(x, allowed_special="all" if s else set(), disallowed_special=())}
                for s in (False, True) for x in texts(rnd, 6)]
        yield {"vocabulary": file if name == "gpt2" else "same", "scheme": name, "special_ids": SPECIALS, "docs": docs}


def tekken_case(rnd, tmp):
    table = ranks()
    spec = {"config": {"pattern": SCHEMES["tekken"], "num_vocab_tokens": len(table), "default_vocab_size": 520, "default_num_special_tokens": 30,
                       "version": "v3"},
            "vocab": [{"rank": i, "token_bytes": b64(t), "token_str": t.decode(errors="replace") if i % 2 else None} for t, i in table.items()]}
    spec["vocab"][0]["token_str"] = "\0"
    path = os.path.join(tmp, "tekken.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(spec, f, separators=(",", ":"))
    t = Tekkenizer.from_file(path)
    with open(path, encoding="utf-8") as f:
        return {"vocabulary": f.read(), "docs": [{"text": x, "ids": t.encode(x, False, False)} for x in texts(rnd, 8)]}


def sp_cases(rnd, tmp):
    """A model keeps the names of its text and of itself: both are relative, so that no path of a machine is in it."""
    shutil.copy(os.path.join(GOLDEN, "text.txt"), tmp)
    home = os.getcwd()
    os.chdir(tmp)
    try:
        yield from sp_models(rnd)
    finally:
        os.chdir(home)


def sp_models(rnd):
    for i, more in enumerate((
            {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
            {"byte_fallback": False, "normalization_rule_name": "identity", "user_defined_symbols": ["hello", "<tok>", "ab"]},
            {"byte_fallback": True, "normalization_rule_name": "identity", "add_dummy_prefix": False, "treat_whitespace_as_suffix": False,
             "split_digits": True, "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False})):
        prefix = f"sp{i}"
        sentencepiece.SentencePieceTrainer.train(
            input="text.txt", model_prefix=prefix, model_type="bpe", vocab_size=520, character_coverage=0.98,
            minloglevel=2, **more)
        s = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
        with open(prefix + ".model", "rb") as f:
            yield {"vocabulary_base64": b64(f.read()), "docs": [{"text": x, "ids": s.encode(x)} for x in texts(rnd, 8) + ["  a   b ▁ c▁  ", "▁", "x\u0416\u0416y"]]}


def main(out):
    rnd = random.Random(5)
    with tempfile.TemporaryDirectory() as tmp, open(os.path.join(out, "cases.jsonl"), "w", encoding="utf-8") as f:
        for cases in (tokenizer_cases(rnd), rank_cases(rnd), [tekken_case(rnd, tmp)], sp_cases(rnd, tmp)):
            for c in cases:
                f.write(json.dumps(c, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
