#!/usr/bin/env python3
"""compare_strange.py [NAME...] -- random files that nobody would write: the ids of their packages, or refused by name.

Promises and refuses what checks.py does.  ORACLE_SEEDS says how many random files of each kind (100).  Each check
also demands that a fair share of the files is taken, so that refusing everything does not pass.
"""
import json
import os
import random
import struct
import subprocess
import sys

import sentencepiece
from tokenizers import Tokenizer

import checks
import make_tok_cases
import tok_cases
from checks import Differs, program, same

SEEDS = int(os.environ.get("ORACLE_SEEDS", "100"))
REFUSED = 65


def ours(path, docs, *args):
    """The ids of all documents in a row, by both ways; None when the vocabulary is refused."""
    text = "".join(json.dumps({"text": x}) + "\n" for x in docs).encode()
    both = []
    for way in ([], ["--slow"]):
        done = subprocess.run([program("moe-tokenize"), "encode", "-f", "-q", "-j", "1", "--docs", "jsonl", "-t", path, *args, *way],
                              input=text, capture_output=True, check=False)
        if done.returncode == REFUSED:
            return None
        if done.returncode:
            raise Differs(done.stderr.decode(errors="replace").strip())
        both.append(list(struct.unpack(f"<{len(done.stdout) // 4}i", done.stdout)))
    same("the slow way beside the fast one", both[1], both[0])
    return both[0]


def share(taken, of, least):
    if taken <= least * of:
        raise Differs(f"only {taken} of {of} files could be compared")


def byte_level(split):
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}]},
            "model": {"type": "BPE", "vocab": {c: b for b, c in tok_cases.BYTES.items()}, "merges": []}}


# ---- expressions

LITERALS = list("abcsStTkKfi 12.,-_'/!#&~@:=<>%") + list("éßſK中İıÅ\u0301٣Ⅳ²½\n\r\t\u00a0\u200b\u3000😀ǆµμςσΣ")
ESCAPES = [r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\r", r"\n", r"\t", r"\f", r"\v", r"\.", r"\-", r"\\", r"\x41", r"\x{4e2d}", r"\u4e2d", r"\h", r"\R", r"\b", r"\B"]
PROPERTIES = ["L", "Lu", "Ll", "Lm", "Lo", "M", "Mn", "N", "Nd", "Nl", "P", "Pd", "S", "Sc", "Z", "Zs", "C", "Han", "Hiragana", "Latin", "Greek", "Arabic", "Alphabetic"]
GROUPS = ["(?:%s)", "(?:%s)", "(%s)", "(?i:%s)", "(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", "(?>%s)", "(?<n>%s)", "(?m:%s)"]
REPEATS = ["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??", "*+", "++", "?+", "{1,3}+", "{,2}", "**"]


def prop(rnd):
    return rnd.choice([r"\p{%s}", r"\p{%s}", r"\P{%s}", r"\p{^%s}"]) % rnd.choice(PROPERTIES)


def char_class(rnd, depth=0):
    out = "[" + ("^" if rnd.random() < .3 else "")
    for _ in range(rnd.randint(1, 4)):
        kind = rnd.randrange(4)
        out += (rnd.choice(["a-c", "0-9", "A-Z", "一-龥", "é-ü", " -~", r"\x00-\x1f"]) if kind == 0 else prop(rnd) if kind == 1
                else rnd.choice(ESCAPES[:14]) if kind == 2 else rnd.choice(LITERALS))
        if depth == 0 and rnd.random() < .1:
            out += char_class(rnd, 1)
    if depth == 0 and rnd.random() < .1:
        out += "&&[^" + rnd.choice([r"\p{Han}", "a", r"\s"]) + "]"
    return out + "]"


def expression(rnd, depth=0):
    branches = []
    for _ in range(rnd.choice([1, 1, 2, 3])):
        out = ""
        for _ in range(rnd.randint(1, 3)):
            kind = rnd.randrange(7)
            if kind < 2:
                out += rnd.choice(LITERALS).replace(".", r"\.")
            elif kind == 2:
                out += rnd.choice(ESCAPES)
            elif kind == 3:
                out += prop(rnd)
            elif kind == 4:
                out += char_class(rnd)
            elif kind == 5 and depth < 3:
                out += rnd.choice(GROUPS) % expression(rnd, depth + 1)
            else:
                out += rnd.choice([".", "^", "$", r"\A", r"\z"])
            if rnd.random() < .4 and out[-1:] not in "^$Az":
                out += rnd.choice(REPEATS)
        branches.append(out)
    return "|".join(branches)


def expressions(tmp):
    path, taken, valid = os.path.join(tmp, "tokenizer.json"), 0, 0
    for seed in range(5 * SEEDS):
        rnd = random.Random(seed)
        e = expression(rnd)
        spec = byte_level({"type": "Split", "pattern": {"Regex": e}, "behavior": rnd.choice(["Isolated", "Removed", "MergedWithPrevious"]), "invert": rnd.random() < .2})
        try:
            t = Tokenizer.from_str(json.dumps(spec))
        except Exception:       # no expression there
            continue
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        docs = ["".join(rnd.choice(LITERALS) for _ in range(rnd.randrange(16))) for _ in range(12)]
        got = ours(path, docs)
        valid += 1
        if got is not None:
            taken += 1
            same(f"expression {e!r}", [i for x in docs for i in t.encode(x).ids], got)
    share(taken, valid, .3)


def named_splits(tmp):
    """Steps that are expressions under another name, in a row with others."""
    path = os.path.join(tmp, "tokenizer.json")
    for seed in range(SEEDS):
        rnd = random.Random(seed)
        spec = byte_level(None)
        spec["pre_tokenizer"]["pretokenizers"][:1] = [rnd.choice([
            {"type": "Punctuation", "behavior": rnd.choice(tok_cases.BEHAVIORS)}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
            {"type": "Digits", "individual_digits": False},
            {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]) for _ in range(rnd.randint(1, 3))]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        docs, t = [tok_cases.text(rnd, rnd.randrange(40)) for _ in range(20)], Tokenizer.from_file(path)
        same(f"seed {seed}", [i for x in docs for i in t.encode(x).ids], ours(path, docs) or [])


# ---- what the fast way takes, and what it must not

def compiled(rnd):
    """A tokenizer.json with a compiled split, or with the steps of SentencePiece, and all else at random."""
    spec = tok_cases.tokenizer(rnd)
    vocab = spec["model"]["vocab"]
    if tok_cases.BYTES[0xff] in vocab and "<unk>" not in vocab:
        for c in tok_cases.BYTES.values():
            vocab.setdefault(c, len(vocab))
        if rnd.random() < .2:
            for c in " 中":
                vocab.setdefault(c, len(vocab))
        bloom = " ?[^(\\s|[.,!?…。，、।۔،])]+"
        e = rnd.choice([make_tok_cases.SCHEMES[n] for n in ("o200k", "llama3", "qwen2", "tekken", "kimi")] + [bloom])
        behavior, invert = rnd.choice([("Isolated", False), ("Isolated", False), ("Removed", True), ("Removed", False)])
        spec["pre_tokenizer"] = byte_level({"type": "Split", "pattern": {"Regex": e}, "behavior": behavior, "invert": invert})["pre_tokenizer"]
        spec["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = False
        spec["normalizer"] = rnd.choice([None, {"type": "NFC"}])
    else:
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rnd.choice(["always", "never", "first"]), "split": rnd.random() < .5}
        spec["normalizer"], spec["pre_tokenizer"] = rnd.choice([
            ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}, None), (replace, None), (None, meta)])
    spec["added_tokens"] = tok_cases.added_tokens(rnd, vocab)
    for a in spec["added_tokens"]:
        a["single_word"] &= rnd.random() < .2
    return spec


def compiled_splits(tmp):
    path, taken = os.path.join(tmp, "tokenizer.json"), 0
    for seed in range(SEEDS):
        rnd = random.Random(seed)
        spec = compiled(rnd)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        t = Tokenizer.from_file(path)
        for specials in (False, True):
            t.encode_special_tokens = not specials
            docs, want = [], []
            for _ in range(10):
                x = tok_cases.text(rnd, rnd.randrange(80))
                try:
                    want += t.encode(x, add_special_tokens=False).ids
                    docs.append(x)
                except BaseException:   # the package's own panic
                    pass
            got = ours(path, docs, *(["--specials"] if specials else []))
            if got is not None:
                taken += 1
                same(f"seed {seed}", want, got)
    share(taken, 2 * SEEDS, .8)


# ---- SentencePiece models, written by hand

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def field(number, value):
    """A field of a protocol buffer: an integer, a float or bytes."""
    def varint(n):
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_file(pieces, byte_fallback, dummy, extra):
    out = b"".join(field(1, field(1, p.encode()) + field(2, float(score)) + field(3, kind)) for p, score, kind in pieces)
    return out + field(2, field(3, 2) + field(35, int(byte_fallback))) + field(3, field(1, b"identity") + field(3, int(dummy)) + field(4, int(extra)))


def random_model(rnd):
    pieces, falls = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL)], rnd.random() < .5
    if falls:
        pieces += [(f"<0x{b:02X}>", 0, BYTE) for b in range(256)]
    pieces += [(p, 0, USER_DEFINED) for p in rnd.sample(["hello", "<tok>", "ab", "▁▁", "\n", "é"], rnd.choice([0, 0, 2]))]
    names = {p for p, _, _ in pieces}
    chars = [c for c in sorted(set("".join(tok_cases.ALPHABET).replace(" ", "")) | {"▁"}) if c not in names and rnd.random() < .8]
    names |= set(chars)
    parts = list(chars)
    products = []
    for _ in range(rnd.choice([20, 80, 200])):
        p = rnd.choice(parts) + rnd.choice(parts) if rnd.random() < .6 else tok_cases.text(rnd, 2).replace(" ", "▁")
        if p and p not in names and len(p) < 12:
            names.add(p)
            parts.append(p)
            products.append(p)
    ties = rnd.choice([1, 1, 3])
    pieces += [(p, -(i // ties), NORMAL) for i, p in enumerate(products)] + [(c, -1000 - i, NORMAL) for i, c in enumerate(chars)]
    return model_file(pieces, falls, rnd.random() < .6, rnd.random() < .3)


def models(tmp):
    path, taken = os.path.join(tmp, "random.model"), 0
    for seed in range(SEEDS):
        rnd = random.Random(seed)
        with open(path, "wb") as f:
            f.write(random_model(rnd))
        s = sentencepiece.SentencePieceProcessor(model_file=path)
        docs = [tok_cases.text(rnd, rnd.randrange(60)) for _ in range(12)]
        got = ours(path, docs)
        if got is not None:
            taken += 1
            same(f"seed {seed}", [i for x in docs for i in s.encode(x)], got)
    share(taken, SEEDS, .9)


def imported_models(tmp):
    """Runs of spaces that share a score, as in Llama's: tokenizers gives the ids of sentencepiece for what import writes."""
    path, copy = os.path.join(tmp, "runs.model"), os.path.join(tmp, "runs.json")
    for seed in range(SEEDS):
        rnd = random.Random(seed)
        runs = ["▁" * k for k in sorted(rnd.sample(range(2, 14), rnd.randrange(1, 9)))]
        words = {w for w in (rnd.choice(["▁" * rnd.randrange(1, 5), "a", "b", "ab"]) + rnd.choice(["▁" * rnd.randrange(1, 5), "a", "b", "ba"])
                             for _ in range(12)) if set(w) != {"▁"}}
        level = rnd.choice([-1e9, -5.5, 0.5])
        with open(path, "wb") as f:
            f.write(model_file([("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL)] + [(p, level, NORMAL) for p in runs] +
                               [(p, -i, NORMAL) for i, p in enumerate(sorted(words))] + [(c, -50 - i, NORMAL) for i, c in enumerate("▁ab")],
                               False, rnd.random() < .5, False))
        done = subprocess.run([program("moe-tokenize"), "import", "-q", "-f", "-o", copy, path], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Differs(done.stderr.strip())
        s, t = sentencepiece.SentencePieceProcessor(model_file=path), Tokenizer.from_file(copy)
        for _ in range(100):
            x = "".join(rnd.choice([" " * rnd.randrange(1, 6), "a", "b"]) for _ in range(rnd.randrange(40)))
            same(f"seed {seed}: {x!r}", s.encode(x), t.encode(x, add_special_tokens=False).ids)


CHECKS = [("random expressions of tokenizers", expressions), ("random steps that are splits of tokenizers", named_splits), ("random tokenizers with compiled splits", compiled_splits),
          ("random models of sentencepiece", models), ("models with runs of one score, imported", imported_models)]

if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, sys.argv[1:]))
