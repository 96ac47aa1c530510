#!/usr/bin/env python3
"""tok_encode.py -- text to ids: moe-tokenize encode beside other encoders that read the same tokenizer.json.

Promises: one row for each vocabulary, program and number of cores, as a table or (--json) a JSON line each: MB/s of
the first pass over the text in a fresh process (cold) and of one more (warm), by the clock and by processor seconds,
the time to load the vocabulary, and peak resident memory.  Runs are interleaved, best of --runs.  Ours stands
there twice: moe-tokenize writes the token file, its index and its checksums, and moe-stream sends the ids to /dev/null,
which is the nearest to the peers, who keep theirs in memory.  Ratios are those of moe-tokenize.  A peer whose ids are
not ours is shown with the reason and no ratio.

Refuses: the network, and to guess: what is not installed or cannot be run is named with the reason.
"""
import argparse
import array
import hashlib
import itertools
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
OURS = ["moe-tokenize", "moe-stream"]
DOC_BYTES = 100000
FIRST = 50             # documents of which the ids themselves are compared, after the clock: 5 MB


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


# ---- the peers; each gives a function from documents to runs of ids, one for each document or one for all

def use_fastokens(vocab, threads):
    from fastokens import Tokenizer
    t = Tokenizer.from_file(vocab)
    return lambda docs: [memoryview(t.encode_batch_flat(docs, split_special_tokens=True)[0]).cast("I")]


def use_snaptokens(vocab, threads):
    from snaptokens import Tokenizer
    t = Tokenizer.from_file(vocab)
    return lambda docs: [memoryview(t.encode_batch_flat(docs)[0]).cast("I")]


def use_gigatoken(vocab, threads):
    import gigatoken
    t = gigatoken.Tokenizer(vocab)
    return lambda docs: t.encode_batch(docs, parallel=threads > 1)


def use_splintr(vocab, threads):
    from splintr import from_json
    t = from_json(vocab)
    return lambda docs: [memoryview(t.encode_batch_flat(docs)[0]).cast("I")]


def use_tuetoken(vocab, threads):
    from tuetoken import Tokenizer
    t = Tokenizer(vocab)
    return lambda docs: [t.encode_ordinary_to_buffer(docs, num_threads=threads)["data"]]


def use_quicktok(vocab, threads):
    """It converts a vocabulary first and tries it on some text beside tokenizers; that is in its time to load."""
    import quicktok
    with tempfile.TemporaryDirectory() as tmp:
        os.environ["QUICKTOK_DATA"] = tmp
        quicktok.import_tokenizer(vocab, "vocabulary")
        t = quicktok.get_encoding("vocabulary")
    return lambda docs: [t.encode_batch(docs, threads)[0]]


def use_riptoken(vocab, threads):
    import riptoken
    ranks, split, prepare = as_ranks(vocab)
    t = riptoken.CoreBPE(ranks, {}, split)
    return lambda docs: t.encode_ordinary_batch(docs), prepare


def use_tiktoken(vocab, threads):
    import tiktoken
    ranks, split, prepare = as_ranks(vocab)
    t = tiktoken.Encoding("vocabulary", pat_str=split, mergeable_ranks=ranks, special_tokens={})
    return lambda docs: t.encode_ordinary_batch(docs, num_threads=threads), prepare


def use_tokenizers(vocab, threads):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(vocab)
    t.encode_special_tokens = True
    return lambda docs: (e.ids for i in range(0, len(docs), 8) for e in t.encode_batch(docs[i:i + 8], add_special_tokens=False))


def as_ranks(vocab):
    """Bytes of tokens with their ranks, the expression, and what to do to a text first, for those without normalizers."""
    with open(vocab, encoding="utf-8") as f:
        spec = json.load(f)
    pre = spec["pre_tokenizer"]
    splits = [p for p in pre.get("pretokenizers", [pre]) if p["type"] == "Split"]
    if len(splits) != 1:
        raise ValueError("it takes one expression, this vocabulary has several")
    form = (spec.get("normalizer") or {"type": None})["type"]
    if form not in (None, "NFC"):
        raise ValueError(f"it has no normalizer, this vocabulary has {form}")
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    back = {chr(b): b for b in shown}
    back.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)})
    ranks = {bytes(back[c] for c in k): i for k, i in spec["model"]["vocab"].items() if all(c in back for c in k)}
    return ranks, splits[0]["pattern"]["Regex"], lambda d: unicodedata.normalize("NFC", d) if form else d


PEERS = {f[4:]: use for f, use in list(globals().items()) if f.startswith("use_")}


def peer(name, vocab, text, threads):
    docs = documents(text)
    begun = clocks()
    run = PEERS[name](vocab, threads)
    load, passes = clocks(), []
    if isinstance(run, tuple):      # what others do is done before the clock runs
        run, prepare = run
        docs = [prepare(d) for d in docs]
    for _ in range(2 if name == "tokenizers" else 4):
        at = clocks()
        n = sum(map(len, run(docs)))
        end = clocks()
        passes.append([end[0] - at[0], end[1] - at[1]])
    warm = [min(p[k] for p in passes[1:]) for k in range(2)]
    first = array.array("I", itertools.chain.from_iterable(run(docs[:FIRST])))
    print(json.dumps({"load": load[0] - begun[0], "passes": [passes[0], warm], "ids": n, "first": [len(first), digest(first)]}))


def digest(ids):
    return hashlib.blake2b(ids.tobytes()).hexdigest()


# ---- children

def child(argv, cores, threads, discard=False):
    """Wall and processor seconds and peak bytes of a process on its own cores."""
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true" if threads > 1 else "false", OMP_NUM_THREADS=str(threads))
    begun = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL if discard else subprocess.PIPE, stderr=subprocess.PIPE, env=env, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    out, err = b"" if discard else p.stdout.read(), p.stderr.read()
    _, status, use = os.wait4(p.pid, 0)
    if status:
        lines = err.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"status {status}")
    return time.perf_counter() - begun, use.ru_utime + use.ru_stime, use.ru_maxrss * 1024, out


def about(prefix):
    """What the token file says of itself; its last token ends the document and is nobody else's."""
    with open(prefix + ".json", encoding="utf-8") as f:
        return json.load(f)


def ours(vocab, text, cores, threads, prefix):
    """Start-up is the run over an empty text; what four texts more take are the warm passes.  No prefix: a stream to /dev/null."""
    with tempfile.NamedTemporaryFile() as empty:
        runs = []
        for texts in ([empty.name], [text] * 5, [text]):
            argv = [os.path.join(TREE, "bin", "moe-tokenize"), "encode", "-q", "-f", "-t", vocab, "-j", str(threads), *texts]
            runs.append(child(argv + (["-o", prefix] if prefix else []), cores, threads, not prefix))
    load, five, once = runs
    passes = [[once[0] - load[0], once[1] - load[1]], [(five[k] - once[k]) / 4 for k in range(2)]]
    return {"load": load[0], "passes": passes, "peak": once[2], **({"ids": about(prefix)["tokens"] - 1} if prefix else {})}


def theirs(name, vocab, text, cores, threads):
    argv = [sys.executable, os.path.abspath(__file__), "--peer", name, "--threads", str(threads), vocab, text]
    _, _, peak, out = child(argv, cores, threads)
    return dict(json.loads(out.splitlines()[-1]), peak=peak)


def differs(row, prefix):
    """What is not ours in the ids of a peer, or None."""
    n = about(prefix)["tokens"] - 1
    if row["ids"] != n:
        return f"its ids: {row['ids']}, ours: {n}"
    mine = array.array("H" if about(prefix)["dtype"] == "u16" else "i")
    with open(prefix + ".bin", "rb") as f:
        mine.frombytes(f.read(row["first"][0] * mine.itemsize))
    return None if digest(array.array("I", mine)) == row["first"][1] else "as many ids as ours, but others"


def best(runs):
    """The fastest pass of each kind over all runs, and the least of the rest."""
    return {"load": min(r["load"] for r in runs), "peak": min(r["peak"] for r in runs), **{k: runs[0][k] for k in ("ids", "first") if k in runs[0]},
            "passes": [[min(r["passes"][i][k] for r in runs) for k in range(2)] for i in range(2)]}


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
    a.add_argument("--peers", default=",".join(PEERS), help="with commas; without it, all")
    a.add_argument("--json", action="store_true")
    a.add_argument("vocab", nargs="+", help="tokenizer.json, or that as .zst; the last operand is the text")
    a.add_argument("text")
    o = a.parse_args()
    if o.peer:
        try:
            peer(o.peer, o.vocab[0], o.text, o.threads)
        except ModuleNotFoundError as e:
            sys.exit(f"not installed: {e}")
        except BaseException as e:  # a panic of Rust is no Exception
            sys.exit(f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}")
        return
    cores_list, peers = [int(n) for n in o.cores.split(",")], [p for p in o.peers.split(",") if p]
    if strange := [p for p in peers if p not in PEERS]:
        a.error(f"--peers: {strange[0]} is none of {', '.join(PEERS)}")
    megabytes = os.path.getsize(o.text) / 1e6
    if not o.json:
        print(f"{o.text}: {megabytes:.1f} MB; MB/s by the clock (by processor seconds); best of {o.runs}")
        print(f"{'vocabulary':24} {'cores':>5} {'program':12} {'cold':>15} {'warm':>15} {'load s':>7} {'peak MiB':>9} {'ours/it cold':>12} {'warm':>6}")
    with tempfile.TemporaryDirectory() as tmp:
        for packed in o.vocab:
            vocab = unpack(packed, tmp)
            for n in cores_list:
                cores = sorted(os.sched_getaffinity(0))[:n]
                runs, why, prefix = {p: [] for p in [*OURS, *peers]}, {}, os.path.join(tmp, "ids")
                for _ in range(o.runs):
                    for p in runs:
                        if p in why:
                            continue
                        try:
                            runs[p].append(ours(vocab, o.text, cores, n, prefix if p == OURS[0] else None) if p in OURS else theirs(p, vocab, o.text, cores, n))
                        except RuntimeError as e:
                            why[p] = str(e)
                rows = {p: best(r) for p, r in runs.items() if p not in why}
                for p in runs:
                    other = differs(rows[p], prefix) if p in rows and p not in OURS and OURS[0] in rows else None
                    show(o.json, os.path.basename(vocab), n, p, rows.get(p), rows.get(OURS[0]), megabytes, why.get(p), other)


def show(as_json, vocab, cores, program, row, mine, megabytes, why, other):
    if row is None:
        print(json.dumps({"vocabulary": vocab, "cores": cores, "program": program, "why_not": why}) if as_json
              else f"{vocab:24} {cores:5} {program:12} {why}", flush=True)
        return
    # ours are differences of runs: on a short text or a busy machine they can come out below nothing, and say nothing
    speed = [[megabytes / s if s > 0 else None for s in p] for p in row["passes"]]
    ratio = None if other or not mine or min(mine["passes"][i][1] for i in range(2)) <= 0 else [row["passes"][i][1] / mine["passes"][i][1] for i in range(2)]
    if as_json:
        print(json.dumps({"vocabulary": vocab, "cores": cores, "program": program, "ids": row.get("ids"), "not_ours": other, "cold_mb_s": speed[0][0], "cold_mb_cpu_s": speed[0][1],
                          "warm_mb_s": speed[1][0], "warm_mb_cpu_s": speed[1][1], "load_s": row["load"], "peak_bytes": row["peak"], "ours_over_it": ratio}), flush=True)
        return
    tail = f"{ratio[0]:12.2f} {ratio[1]:6.2f}" if ratio else f"  {other or 'no time of ours'}"
    cold, warm = ("{} ({})".format(*(f"{x:.1f}" if x else "-" for x in s)) for s in speed)
    print(f"{vocab:24} {cores:5} {program:12} {cold:>15} {warm:>15} {row['load']:7.2f} {row['peak'] / 1048576:9.0f} {tail}", flush=True)


if __name__ == "__main__":
    main()
