#!/usr/bin/env python3
"""tok_train.py [--vocab-size N] [--scheme NAME] [--runs N] [--who a,b] TEXT... -- our training of a vocabulary and others', in turns.

Promises: A B C A B C on the same pinned cores, each run a process of its own; per run the whole time (start, reading
and writing included), processor time and peak resident memory as the kernel counted them.  All get the same text,
cut only where no piece can cross, so all have the same work.  At the end the vocabularies are compared: with the
package tokenizers every merge, with rustbpe (whose ties are its own) how many tokens are shared.  JSON lines on
stdout, a table on stderr.

Refuses: to call anything faster that learned something else.  Needs the packages tokenizers and rustbpe, whichever
are named with --who, in the python3 that runs this.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
CHUNK = 1 << 16
U, W = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
C, M, SP = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "o200k": M + U + "*" + W + "+" + C + "?|" + M + U + "+" + W + "*" + C + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SP,
    "llama3": C + "|" + M + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SP,
    "qwen2": C + "|" + M + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SP,
}


def chunks(paths):
    """Stretches of about CHUNK bytes that end with a line feed before a visible character but "/": pieces end there."""
    for path in paths:
        rest = ""
        with open(path, encoding="utf-8", newline="", errors="replace") as f:
            while True:
                more = f.read(CHUNK)
                rest += more
                if not more:
                    break
                at = len(rest) - 1
                while at > 0 and not (rest[at - 1] == "\n" and not rest[at].isspace() and rest[at] != "/"):
                    at -= 1
                if at > 0:
                    yield rest[:at]
                    rest = rest[at:]
        if rest:
            yield rest


def with_tokenizers(args, out):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLITS[args.scheme]), behavior="isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(chunks(args.text), trainers.BpeTrainer(
        vocab_size=args.vocab_size, min_frequency=args.min_frequency, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    t.save(out)


def with_rustbpe(args, out):
    import rustbpe
    t = rustbpe.Tokenizer()
    t.train_from_iterator(chunks(args.text), args.vocab_size - 1, pattern=SPLITS[args.scheme])
    with open(out, "w", encoding="utf-8") as f:
        json.dump([list(b) for b, _ in t.get_mergeable_ranks()], f)


def command(args, who, out):
    options = ["--vocab-size", str(args.vocab_size), "--scheme", args.scheme, "--min-frequency", str(args.min_frequency)]
    if who == "moe-tokenize":
        return [os.path.join(TREE, "bin", "moe-tokenize"), "train", "-q", "-f", "-j", str(len(args.cores)), "--max-word", "0",
                "--docs", "file", *options, "-o", out, *args.text]
    return [sys.executable, os.path.abspath(__file__), "--only", who, "--only-to", out, *options, *args.text]


def run(args, who, out):
    env = dict(os.environ, RAYON_NUM_THREADS=str(len(args.cores)), TOKENIZERS_PARALLELISM="true")
    begin = time.perf_counter()
    child = subprocess.Popen(command(args, who, out), env=env, preexec_fn=lambda: os.sched_setaffinity(0, args.cores))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        sys.exit(f"tok_train: {who} left with status {child.returncode}")
    return {"who": who, "s": time.perf_counter() - begin, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_rss": usage.ru_maxrss * 1024}


def merges(path):
    with open(path, encoding="utf-8") as f:
        return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in json.load(f)["model"]["merges"]]


def tokens(path):
    """As bytes, of a tokenizer.json without its special tokens."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    byte = {chr(b): b for b in keep}
    byte.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in keep)})
    with open(path, encoding="utf-8") as f:
        d = json.load(f)
    special = {a["content"] for a in d["added_tokens"]}
    return {bytes(byte[c] for c in t) for t in d["model"]["vocab"] if t not in special}


def compare(outs):
    """What the vocabularies have in common with ours."""
    ours = outs.get("moe-tokenize")
    found = {}
    if ours and "tokenizers" in outs:
        a, b = merges(ours), merges(outs["tokenizers"])
        found["tokenizers"] = "the same merges" if a == b else f"differs at merge {next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))}"
    if ours and "rustbpe" in outs:
        with open(outs["rustbpe"], encoding="utf-8") as f:
            theirs = {bytes(t) for t in json.load(f)}
        a = tokens(ours)
        found["rustbpe"] = f"{100 * len(a & theirs) / max(len(a), 1):.2f} % of our tokens"
    return found


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--vocab-size", type=int, default=65536)
    p.add_argument("--min-frequency", type=int, default=2)
    p.add_argument("--scheme", choices=SPLITS, default="o200k")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--who", default="moe-tokenize,tokenizers,rustbpe")
    p.add_argument("--cores", default="0,1")
    p.add_argument("--only")
    p.add_argument("--only-to")
    p.add_argument("text", nargs="+")
    args = p.parse_args()
    args.cores = {int(c) for c in args.cores.split(",")}
    if args.only:
        {"tokenizers": with_tokenizers, "rustbpe": with_rustbpe}[args.only](args, args.only_to)
        return 0
    who, rows = args.who.split(","), []
    with tempfile.TemporaryDirectory() as d:
        outs = {w: os.path.join(d, w + ".json") for w in who}
        for i in range(args.runs):
            for w in who:
                rows.append(run(args, w, outs[w]))
                print(json.dumps(dict(rows[-1], run=i)), flush=True)
        found = compare(outs)
    size = sum(os.path.getsize(t) for t in args.text)
    print(f"{args.vocab_size} tokens, {args.scheme}, {size / 1e6:.1f} MB, {len(args.cores)} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    for w in who:
        mine = [r for r in rows if r["who"] == w]
        row = {"who": w, "median_s": statistics.median(r["s"] for r in mine), "best_s": min(r["s"] for r in mine),
               "cpu_s": statistics.median(r["cpu_s"] for r in mine), "peak_rss": max(r["peak_rss"] for r in mine), "same": found.get(w)}
        print(json.dumps(row), flush=True)
        print(f"{w:14} {row['median_s']:9.2f} s  best {row['best_s']:9.2f} s  cpu {row['cpu_s']:9.2f} s  peak {row['peak_rss'] / 1e6:9.1f} MB  {row['same'] or ''}",
              file=sys.stderr)
    return 1 if found.get("tokenizers", "the same merges") != "the same merges" else 0


if __name__ == "__main__":
    sys.exit(main())
