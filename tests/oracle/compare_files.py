#!/usr/bin/env python3
"""compare_files.py [NAME...] -- token files beside numpy and Megatron's own reader and writer, stats beside numbers made here.

Promises and refuses what checks.py does.  NAME selects checks whose names contain it, ORACLE_TOKENIZERS names the
folder of *.tokenizer.json.zst, ORACLE_UDHR that of the texts, one per language, named LANG.txt.  megatron-core is used
when it is installed.
"""
import contextlib
import glob
import io
import json
import os
import random
import subprocess
import sys
import warnings

import numpy as np
from tokenizers import Tokenizer

import checks
from checks import TOKENIZERS, TREE, UDHR, Differs, Skip, program, same

DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}


def run(*args, status=0, **more):
    done = subprocess.run([program("moe-tokenize"), *args], capture_output=True, check=False, **more)
    if done.returncode != status:
        raise Differs(f"{' '.join(args)}: status {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def pair(prefix):
    """The documents of a pair, through memory maps and the counts of the index alone."""
    raw = memoryview(np.memmap(prefix + ".idx", mode="r", order="C"))
    if bytes(raw[:9]) != b"MMIDIDX\x00\x00" or int.from_bytes(raw[9:17], "little") != 1:
        raise Differs(f"{prefix}.idx: header")
    dtype = DTYPES[raw[17]]
    seqs, docs = np.frombuffer(raw, np.int64, 2, 18)
    lengths = np.frombuffer(raw, np.int32, seqs, 34)
    offsets = np.frombuffer(raw, np.int64, seqs, 34 + lengths.nbytes)
    index = np.frombuffer(raw, np.int64, docs, 34 + lengths.nbytes + offsets.nbytes)
    data = memoryview(np.memmap(prefix + ".bin", mode="r", order="C")) if os.path.getsize(prefix + ".bin") else b""
    whole = [np.frombuffer(data, dtype, n, at).tolist() for n, at in zip(lengths, offsets)]
    return [sum(whole[a:b], []) for a, b in zip(index, index[1:])]


def megatron():
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            from megatron.core.datasets import indexed_dataset
        except ImportError as e:
            raise Skip("no megatron-core") from e
    return indexed_dataset


def train(tmp):
    text = "".join(open(p, encoding="utf-8").read() for p in sorted(glob.glob(os.path.join(TREE, "common", "tok", "*.c"))))
    text = text.replace("<|endoftext|>", "")     # the package finds names of special tokens, we do not unless asked
    path = os.path.join(tmp, "code.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    run("train", "-q", "--vocab-size", "1000", "-o", os.path.join(tmp, "tok.json"), path)
    return os.path.join(tmp, "tok.json"), path, text


def numpy_reads(tmp):
    tok, path, text = train(tmp)
    out = os.path.join(tmp, "set")
    run("encode", "-q", "-t", tok, "--docs", "line", "-o", out, path)
    ref = Tokenizer.from_file(tok)
    eod = ref.token_to_id("<|endoftext|>")
    want = [ref.encode(x, add_special_tokens=False).ids + [eod] for x in text.split("\n")[:-1]]
    same("documents", want, pair(out))
    run("merge", "-q", "-o", out + "2", out, out)
    same("merged documents", want * 2, pair(out + "2"))


def megatron_reads(tmp):
    theirs = megatron()
    tok, path, _ = train(tmp)
    out = os.path.join(tmp, "set")
    run("encode", "-q", "-t", tok, "--docs", "line", "-o", out, path)
    run("merge", "-q", "-o", out + "2", out, out)
    for name in (out, out + "2"):
        d = theirs.IndexedDataset(name)
        same("sequences", pair(name), [d[i].tolist() for i in range(len(d))])
        same("document index", range(len(d) + 1), d.document_indices.tolist())


def megatron_writes(tmp):
    """Pairs of its builder, of every type: structure, merge and decode."""
    theirs = megatron()
    tok, _, _ = train(tmp)
    rnd = random.Random(3)
    for dtype in (np.uint8, np.int16, np.int32, np.int64, np.uint16):
        names = [os.path.join(tmp, f"{np.dtype(dtype).name}-{i}") for i in range(3)]
        for name in names:
            b = theirs.IndexedDatasetBuilder(name + ".bin", dtype=dtype)
            for _ in range(rnd.randrange(1, 20)):
                lengths = [rnd.randrange(0, 30) for _ in range(rnd.randrange(1, 4))]
                ids = [rnd.randrange(0, 120) for _ in range(sum(lengths))]
                b.add_document(np.array(ids, dtype=np.int64), lengths)
            b.finalize(name + ".idx")
        run("verify", "--structure", *names)
        b = theirs.IndexedDatasetBuilder(os.path.join(tmp, "want.bin"), dtype=dtype)
        for name in names:
            b.add_index(name)
        b.finalize(os.path.join(tmp, "want.idx"))
        run("merge", "-q", "-f", "--foreign", "-o", os.path.join(tmp, "got"), *names)
        for e in ("bin", "idx"):
            with open(os.path.join(tmp, f"want.{e}"), "rb") as f, open(os.path.join(tmp, f"got.{e}"), "rb") as g:
                if f.read() != g.read():
                    raise Differs(f"{np.dtype(dtype).name}: .{e} of a merge is not that of add_index")
        run("merge", "-q", "-f", "--foreign", "--eod", "-t", tok, "-o", os.path.join(tmp, "mine"), *names)
        run("verify", "-t", tok, os.path.join(tmp, "mine"))
        eod = Tokenizer.from_file(tok).token_to_id("<|endoftext|>")
        want = [d + ([] if d and d[-1] == eod else [eod]) for name in names for d in pair(name)]
        same("documents with their ends", want, pair(os.path.join(tmp, "mine")))


def gini(v):
    v = sorted(v)
    n = len(v)
    return (n + 1 - 2 * sum((n - i) * x for i, x in enumerate(v)) / sum(v)) / n


def stats(name):
    def check(tmp):
        packed = os.path.join(TOKENIZERS, f"{name}.tokenizer.json.zst")
        paths = sorted(glob.glob(os.path.join(UDHR, "*.txt")))
        if not os.path.exists(packed) or not paths:
            raise Skip(f"no {packed}, or no texts in {UDHR}")
        tok = os.path.join(tmp, "tokenizer.json")
        subprocess.run(["zstd", "-dqf", packed, "-o", tok], check=True)
        rows = [json.loads(x) for x in run("stats", "--json", "--base", "en", "-t", tok, *paths).splitlines()]
        ref = Tokenizer.from_file(tok)
        tokens, words = {}, {}
        for p in paths:
            with open(p, encoding="utf-8", newline="") as f:
                text = f.read()
            lang = os.path.basename(p)[:-4]
            tokens[lang] = len(ref.encode(text, add_special_tokens=False).ids)
            words[lang] = len(text.split())
        same("tokens", tokens.items(), {r["language"]: r["tokens"] for r in rows[:-1]}.items())
        same("words", words.items(), {r["language"]: r["words"] for r in rows[:-1]}.items())
        n = len(tokens)
        want = {"tokens": sum(tokens.values()), "mean_fertility": sum(tokens[x] / words[x] for x in tokens) / n,
                "mean_parity": sum(tokens[x] / tokens["en"] for x in tokens) / n, "gini": gini(tokens.values()),
                "worst_parity": max(tokens[x] / tokens["en"] for x in tokens)}
        for key, v in want.items():
            if abs(rows[-1][key] - v) > 1e-9 * v:
                raise Differs(f"{key}: {v}, ours {rows[-1][key]}")
    return check


CHECKS = {
    "numpy reads what encode and merge write": numpy_reads,
    "megatron-core reads what encode and merge write": megatron_reads,
    "pairs of megatron-core's builder are sound, merge like add_index, and become token files": megatron_writes,
    "stats of qwen3": stats("qwen3"),
    "stats of deepseek_v3": stats("deepseek_v3"),
    "stats of gptoss": stats("gptoss"),
}


if __name__ == "__main__":
    sys.exit(checks.run(CHECKS.items(), sys.argv[1:]))
