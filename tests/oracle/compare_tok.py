#!/usr/bin/env python3
"""compare_tok.py [NAME...] -- ids of moe-tokenize beside those of tokenizers, tiktoken, sentencepiece and mistral-common.

Promises and refuses what checks.py does.  NAME selects checks whose names contain it, ORACLE_TOKENIZERS names the
folder of *.tokenizer.json.zst, ORACLE_UDHR that of the texts, ORACLE_TEXT further files to encode, ORACLE_SEEDS how
many random tokenizers (100), ORACLE_MB how many megabytes each vocabulary is held to beyond the small texts (0):
languages, code, the files of ORACLE_TEXT, emoji, controls, every byte as a character, random characters, in documents
of all sizes.
"""
import base64
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import mistral_common
import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Tokenizer

import checks
import make_tok_cases
import tok_cases
from checks import TOKENIZERS, TREE, UDHR, Differs, Skip, program, same

MISTRAL = os.path.join(os.path.dirname(mistral_common.__file__), "data")


def ours(args, text):
    done = subprocess.run([program("moe-tokenize"), "encode", "-f", "-q", "-j", "1", *args], input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise Differs(done.stderr.decode(errors="replace").strip())
    return list(struct.unpack(f"<{len(done.stdout) // 4}i", done.stdout))


def texts():
    """24 languages, code, random characters that are assigned, and characters that make trouble."""
    rnd = random.Random(7)
    for name, paths in (("languages", sorted(glob.glob(os.path.join(UDHR, "*.txt")))),
                        ("code", sorted(glob.glob(os.path.join(TREE, "common", "tok", "*.c")))),
                        ("given", os.environ.get("ORACLE_TEXT", "").split())):
        text = ""
        for p in paths:
            with open(p, encoding="utf-8", errors="replace", newline="") as f:
                text += f.read(100000)          # at once; documents() has the rest
        if text:
            yield name, text
    assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    yield "random", "".join(rnd.choice(assigned) for _ in range(60000))
    yield "mixed", "".join(rnd.choice(assigned) if rnd.random() < .2 else rnd.choice(tok_cases.ALPHABET) for _ in range(60000))
    yield "special", "a<|endoftext|>b <think> x</think><｜fim▁begin｜> <tool_call>\n <s> </s> [INST] a\n  "


def documents(megabytes):
    """Many documents: parts of what there is in turn, and random ones between them."""
    rnd = random.Random(11)
    small = list(texts())
    sources = [t for n, t in small if n in ("languages", "code")]
    for p in os.environ.get("ORACLE_TEXT", "").split():
        with open(p, encoding="utf-8", errors="replace", newline="") as f:
            sources.append(f.read(megabytes << 20))
    assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    emoji = [c for c in assigned if 0x1f300 <= ord(c) < 0x1fb00] + ["\u200d", "\ufe0f", "\u20e3"]
    at, left, turn = [0] * len(sources), megabytes * 1000000, 0
    while left > 0:
        n = rnd.choice([3, 40, 1000, 20000, 200000, 200000])
        turn += 1
        if turn % 4:        # three of four are text; each source in proportion to its length
            i = rnd.choices(range(len(sources)), [min(len(s), 20 << 20) for s in sources])[0]
            at[i] = at[i] if at[i] + n <= len(sources[i]) else rnd.randrange(max(1, len(sources[i]) - n))
            doc = sources[i][at[i]:at[i] + n]
            at[i] += n
        else:
            alphabet = rnd.choice([assigned, emoji, tok_cases.ALPHABET, [chr(b) for b in range(256)], [chr(b) for b in range(128)]])
            doc = "".join(rnd.choices(alphabet, k=min(n, 20000)))
        left -= len(doc.encode())
        yield doc


def in_bulk(args, encode, megabytes):
    """All documents at once as lines of JSON, by the fast way on two threads."""
    with tempfile.TemporaryDirectory() as tmp:
        path, prefix = os.path.join(tmp, "docs.jsonl"), os.path.join(tmp, "ids")
        with open(path, "w", encoding="ascii") as f:
            for doc in documents(megabytes):
                f.write(json.dumps({"text": doc}) + "\n")
        done = subprocess.run([program("moe-tokenize"), "encode", "-q", "-j", "2", "--docs", "jsonl", "-o", prefix, *args, path], capture_output=True, check=False)
        if done.returncode:
            raise Differs(done.stderr.decode(errors="replace").strip())
        with open(prefix + ".idx", "rb") as f:
            head = f.read(34)
            n = struct.unpack("<q", head[18:26])[0]
            lengths = struct.unpack(f"<{n}i", f.read(4 * n))
            width = {4: "i", 8: "H"}[head[17]]
        with open(prefix + ".bin", "rb") as f:
            for i, (doc, length) in enumerate(zip(documents(megabytes), lengths, strict=True)):
                got = struct.unpack(f"<{length}{width}", f.read(length * struct.calcsize(width)))
                same(f"document {i} of {megabytes} MB: {doc[:60]!r}", encode(doc), list(got[:-1]))


def every_text(args, encode):
    for name, text in texts():
        want = encode(text)
        for slow in ([], ["--slow"]):
            same(" ".join([name, *slow]), want, ours([*args, *slow], text))
    megabytes = int(os.environ.get("ORACLE_MB", "0"))
    if megabytes:
        in_bulk(args, encode, megabytes)


def real(name):
    def check(tmp):
        packed, path = os.path.join(TOKENIZERS, f"{name}.tokenizer.json.zst"), os.path.join(tmp, "tokenizer.json")
        if not os.path.exists(packed):
            raise Skip(f"no {packed}")
        subprocess.run(["zstd", "-dqf", packed, "-o", path], check=True)
        t = Tokenizer.from_file(path)
        t.encode_special_tokens = True

        def encode(x):
            # The package's tables of NFC are older than Python's and ours: there it gets what it would have made of
            # the text with tables as new as these.
            if t.normalizer and t.normalizer.normalize_str(x) != unicodedata.normalize("NFC", x):
                x = unicodedata.normalize("NFC", x)
            return t.encode(x, add_special_tokens=False).ids
        every_text(["-t", path], encode)
    return check


def sp_model(name):
    def check(_):
        path = os.path.join(MISTRAL, name)
        if not os.path.exists(path):
            raise Skip(f"this mistral-common has no {name}")
        s = sentencepiece.SentencePieceProcessor(model_file=path)
        every_text(["-t", path], s.encode)
    return check


def tekken(name):
    def check(_):
        path = os.path.join(MISTRAL, name)
        if not os.path.exists(path):
            raise Skip(f"this mistral-common has no {name}")
        t = Tekkenizer.from_file(path)
        every_text(["-t", path], lambda x: t.encode(x, False, False))
    return check


def scheme(name):
    def check(tmp):
        path = os.path.join(MISTRAL, "tekken_240718.json")
        if not os.path.exists(path):
            raise Skip("this mistral-common has no tekken_240718.json")
        with open(path, encoding="utf-8") as f:
            table = {base64.b64decode(t["token_bytes"]): t["rank"] for t in json.load(f)["vocab"]}
        ranks, ids = os.path.join(tmp, "ranks"), os.path.join(tmp, "ids.json")
        with open(ranks, "w", encoding="ascii") as f:
            f.write("".join(f"{make_tok_cases.b64(t)} {i}\n" for t, i in table.items()))
        with open(ids, "w", encoding="ascii") as f:
            json.dump({"<|endoftext|>": len(table) + 5}, f)
        e = tiktoken.Encoding(name, pat_str=make_tok_cases.SCHEMES[name], mergeable_ranks=table, special_tokens={"<|endoftext|>": len(table) + 5})
        args = ["-t", ranks, "--scheme", name, "--special-ids", ids]
        every_text(args, lambda x: e.encode(x, disallowed_special=()))
        same("special", e.encode("a<|endoftext|>b", allowed_special="all"), ours([*args, "--specials"], "a<|endoftext|>b"))
    return check


def expressions(tmp):
    """Every expression that is compiled here, in Oniguruma's hands there, with the golden vocabulary."""
    c, mark, tail = make_tok_cases.C, make_tok_cases.MARK, make_tok_cases.TAIL
    ling = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    known = [make_tok_cases.SCHEMES[n] for n in ("o200k", "llama3", "qwen2", "tekken", "kimi")]
    known += [ling % n for n in ("", "{1,2}", "{1,3}")]
    known += [rf"{c}|{mark}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{tail}",
              rf"{c}|{mark}\p{{L}}+|\p{{N}}{{1,2}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{tail}",
              rf"{c}|{mark}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
              r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
              r" ?[^(\s|[.,!?…。，、।۔،])]+", r" ?[^(\s|.,!?…。，、।۔،)]+"]
    path = os.path.join(tmp, "tokenizer.json")
    for e in known:
        with open(os.path.join(make_tok_cases.GOLDEN, "tokenizer.json"), encoding="utf-8") as f:
            spec = json.load(f)
        spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        t = Tokenizer.from_file(path)
        t.encode_special_tokens = True
        for name, text in texts():
            for slow in ([], ["--slow"]):
                same(" ".join([e, name, *slow]), t.encode(text, add_special_tokens=False).ids, ours(["-t", path, *slow], text))


def random_tokenizers(tmp):
    path = os.path.join(tmp, "tokenizer.json")
    done = 0
    for seed in range(int(os.environ.get("ORACLE_SEEDS", "100"))):
        rnd = random.Random(seed)
        spec = tok_cases.tokenizer(rnd)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        t = Tokenizer.from_file(path)
        normal = [t.normalizer.normalize_str(a["content"]) for a in spec["added_tokens"] if a["normalized"] and t.normalizer]
        if "" in normal or len(set(normal)) < len(normal):
            continue        # found between any two characters, or either by chance, there; refused here
        for i in range(8):
            x, specials, template = tok_cases.text(rnd, rnd.randrange(80)), i % 2 == 1, i % 4 > 1
            t.encode_special_tokens = not specials
            try:
                want = t.encode(x, add_special_tokens=template).ids
            except BaseException:       # the package's own panic
                continue
            same(f"seed {seed}: {x!r}", want, ours(["-t", path, *(["--specials"] if specials else []), *(["--template"] if template else [])], x))
            done += 1
    if done < 4 * seed:
        raise Differs(f"only {done} texts could be compared")


def golden(tmp):
    make_tok_cases.main(tmp)
    for a, b in zip(*(open(os.path.join(d, "cases.jsonl"), encoding="utf-8") for d in (tmp, make_tok_cases.GOLDEN)), strict=True):
        a, b = json.loads(a), json.loads(b)
        if a.get("docs") != b.get("docs") and "vocabulary_base64" not in a:
            raise Differs("a golden document has other ids now")


CHECKS = [("the packages make the golden cases again", golden), ("random tokenizers of tokenizers", random_tokenizers),
          ("tokenizers and every compiled expression", expressions)]
CHECKS += [(f"tokenizers and {n}", real(n)) for n in ("qwen3", "deepseek_v3", "gptoss")]
CHECKS += [(f"tiktoken and the scheme {n}", scheme(n)) for n in make_tok_cases.SCHEMES]
CHECKS += [(f"mistral-common and {n}", tekken(n)) for n in ("tekken_240718.json", "tekken_240911.json")]
CHECKS += [(f"sentencepiece and {n}", sp_model(n)) for n in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3",
                                                          "mistral_instruct_tokenizer_241114.model.v7")]


if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, sys.argv[1:]))
