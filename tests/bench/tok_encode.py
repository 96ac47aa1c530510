#!/usr/bin/env python3
"""tok_encode.py -- text to ids: moe-tokenize encode beside gigatoken, tiktoken and tokenizers.

Promises: one row for each vocabulary, program and number of cores, as a table or (--json) a JSON line each: MB/s of
the first pass over the text in a fresh process (cold) and of one more (warm), by the clock and by processor seconds,
the time to load the vocabulary, and peak resident memory.  Runs are interleaved, best of --runs.  Ours
includes writing the token file, its index and its checksums; the others keep their ids in memory.  A peer whose
number of ids is not ours is shown with both numbers and no ratio.

Refuses: the network, and to guess: what cannot be run is named with the reason.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
DOC_BYTES = 100000


def documents(path):
    """Parts of about 100 kB, cut between a line feed and a letter, where no piece of any vocabulary goes on."""
    with open(path, encoding="utf-8", newline="") as f:
        text, docs, at = f.read(), [], 0
    while at < len(text):
        end = at + DOC_BYTES
        while end < len(text) and not (text[end - 1] == "\n" and text[end].isalpha()):
            end += 1
        docs.append(text[at:end])
        at = end
    return docs


def clocks():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), r.ru_utime + r.ru_stime


# ---- the peers; each gives a function from documents to the number of ids

def use_tokenizers(vocab, threads):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(vocab)
    t.encode_special_tokens = True

    def run(docs):
        return sum(len(e.ids) for i in range(0, len(docs), 8) for e in t.encode_batch(docs[i:i + 8], add_special_tokens=False))
    return run


def use_tiktoken(vocab, threads):
    import tiktoken
    with open(vocab, encoding="utf-8") as f:
        spec = json.load(f)
    pre = spec["pre_tokenizer"]
    splits = [p for p in pre.get("pretokenizers", [pre]) if p["type"] == "Split"]
    if len(splits) != 1:
        raise ValueError("tiktoken has one expression, this vocabulary has several")
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    back = {chr(b): b for b in shown}
    back.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)})
    ranks = {bytes(back[c] for c in k): i for k, i in spec["model"]["vocab"].items() if all(c in back for c in k)}
    e = tiktoken.Encoding("vocabulary", pat_str=splits[0]["pattern"]["Regex"], mergeable_ranks=ranks, special_tokens={})
    return lambda docs: sum(map(len, e.encode_ordinary_batch(docs, num_threads=threads)))


def use_gigatoken(vocab, threads):
    import gigatoken
    t = gigatoken.Tokenizer(vocab)

    def run(docs):
        return sum(len(x) for x in t.encode_batch(docs, parallel=threads > 1))
    return run


PEERS = {"gigatoken": use_gigatoken, "tiktoken": use_tiktoken, "tokenizers": use_tokenizers}


def peer(name, vocab, text, threads):
    docs = documents(text)
    if name == "tiktoken":          # it has no normalizers; what others do is done before the clock runs
        docs = [unicodedata.normalize("NFC", d) for d in docs]
    begun = clocks()
    run = PEERS[name](vocab, threads)
    load, passes = clocks(), []
    for _ in range(2 if name == "tokenizers" else 4):
        at = clocks()
        n = run(docs)
        end = clocks()
        passes.append([end[0] - at[0], end[1] - at[1]])
    warm = [min(p[k] for p in passes[1:]) for k in range(2)]
    print(json.dumps({"load": load[0] - begun[0], "passes": [passes[0], warm], "ids": n}))


# ---- children

def child(argv, cores, threads):
    """Wall and processor seconds and peak bytes of a process on its own cores."""
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true" if threads > 1 else "false", OMP_NUM_THREADS=str(threads))
    begun = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    out, err = p.stdout.read(), p.stderr.read()
    _, status, use = os.wait4(p.pid, 0)
    if status:
        lines = err.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"status {status}")
    return time.perf_counter() - begun, use.ru_utime + use.ru_stime, use.ru_maxrss * 1024, out


def ours(vocab, text, cores, threads, tmp):
    """Start-up is the run over an empty text; what four texts more take are the warm passes."""
    empty, prefix = os.path.join(tmp, "empty"), os.path.join(tmp, "ids")
    with open(empty, "wb"):
        pass
    runs = []
    for texts in ([empty], [text], [text] * 5):
        argv = [os.path.join(TREE, "bin", "moe-tokenize"), "encode", "-q", "-f", "-t", vocab, "-j", str(threads), "-o", prefix, *texts]
        runs.append(child(argv, cores, threads))
        if len(texts) == 1 and texts[0] == text:
            with open(prefix + ".json", encoding="utf-8") as f:
                ids = json.load(f)["tokens"] - 1
    load, once, five = runs
    passes = [[once[0] - load[0], once[1] - load[1]], [(five[k] - once[k]) / 4 for k in range(2)]]
    return {"load": load[0], "passes": passes, "ids": ids, "peak": once[2]}


def theirs(name, vocab, text, cores, threads):
    argv = [sys.executable, os.path.abspath(__file__), "--peer", name, "--threads", str(threads), vocab, text]
    _, _, peak, out = child(argv, cores, threads)
    return dict(json.loads(out), peak=peak)


def best(runs):
    """The fastest pass of each kind over all runs, and the least of the rest."""
    return {"load": min(r["load"] for r in runs), "peak": min(r["peak"] for r in runs), "ids": runs[0]["ids"],
            "passes": [[max(1e-9, min(r["passes"][i][k] for r in runs)) for k in range(2)] for i in range(2)]}


def unpack(path, tmp):
    if not path.endswith(".zst"):
        return path
    to = os.path.join(tmp, os.path.basename(path)[:-4])
    subprocess.run(["zstd", "-dqf", path, "-o", to], check=True)
    return to


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    a.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    a.add_argument("--runs", type=int, default=3)
    a.add_argument("--cores", default="1,2", help="numbers of cores, with commas")
    a.add_argument("--peers", default=",".join(PEERS), help="with commas")
    a.add_argument("--json", action="store_true")
    a.add_argument("vocab", nargs="+", help="tokenizer.json, or that as .zst; the last operand is the text")
    a.add_argument("text")
    o = a.parse_args()
    if o.peer:
        peer(o.peer, o.vocab[0], o.text, o.threads)
        return
    cores_list, peers = [int(n) for n in o.cores.split(",")], [p for p in o.peers.split(",") if p]
    megabytes = os.path.getsize(o.text) / 1e6
    if not o.json:
        print(f"{o.text}: {megabytes:.1f} MB; MB/s by the clock (by processor seconds); best of {o.runs}")
        print(f"{'vocabulary':24} {'cores':>5} {'program':12} {'cold':>15} {'warm':>15} {'load s':>7} {'peak MiB':>9} {'ours/it cold':>12} {'warm':>6}")
    with tempfile.TemporaryDirectory() as tmp:
        for packed in o.vocab:
            vocab = unpack(packed, tmp)
            for n in cores_list:
                cores = sorted(os.sched_getaffinity(0))[:n]
                runs, why = {"moe-tokenize": [], **{p: [] for p in peers}}, {}
                for _ in range(o.runs):
                    for p in runs:
                        if p in why:
                            continue
                        try:
                            runs[p].append(ours(vocab, o.text, cores, n, tmp) if p == "moe-tokenize" else theirs(p, vocab, o.text, cores, n))
                        except RuntimeError as e:
                            why[p] = str(e)
                rows = {p: best(r) for p, r in runs.items() if p not in why}
                mine = rows.get("moe-tokenize")
                for p in runs:
                    show(o.json, os.path.basename(vocab), n, p, rows.get(p), mine, megabytes, why.get(p))


def show(as_json, vocab, cores, program, row, mine, megabytes, why):
    if row is None:
        print(json.dumps({"vocabulary": vocab, "cores": cores, "program": program, "why_not": why}) if as_json
              else f"{vocab:24} {cores:5} {program:12} {why}", flush=True)
        return
    speed = [[megabytes / s for s in p] for p in row["passes"]]
    ratio = [row["passes"][i][1] / mine["passes"][i][1] for i in range(2)] if mine and mine["ids"] == row["ids"] else None
    if as_json:
        print(json.dumps({"vocabulary": vocab, "cores": cores, "program": program, "ids": row["ids"], "cold_mb_s": speed[0][0], "cold_mb_cpu_s": speed[0][1],
                          "warm_mb_s": speed[1][0], "warm_mb_cpu_s": speed[1][1], "load_s": row["load"], "peak_bytes": row["peak"], "ours_over_it": ratio}), flush=True)
        return
    tail = f"{ratio[0]:12.2f} {ratio[1]:6.2f}" if ratio else f"  its ids: {row['ids']}, ours: {mine['ids'] if mine else '-'}"
    cold, warm = (f"{s[0]:.1f} ({s[1]:.1f})" for s in speed)
    print(f"{vocab:24} {cores:5} {program:12} {cold:>15} {warm:>15} {row['load']:7.2f} {row['peak'] / 1048576:9.0f} {tail}", flush=True)


if __name__ == "__main__":
    main()
