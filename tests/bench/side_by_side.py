#!/usr/bin/env python3
"""side_by_side.py -c CONFIG [--runs N] [--modes a,b] DATA [key.path=value...] -- our trainer and PyTorch, in turns.

Promises: A B A B on the same pinned cores with nothing of its own running meanwhile; per run the median step after
the warm-up; at the end medians over runs, peak resident memory as the kernel counted it, and the ratio to the
fastest PyTorch mode.  JSON lines on stdout, one per run, then one summary; a table on stderr.

Refuses: to compare runs that did not train.  Both sides must lower the loss.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))


def start(args, cores, env, out):
    """Runs to the end; returns status, seconds, processor seconds and peak resident bytes of that process alone."""
    begin = time.perf_counter()
    child = subprocess.Popen(args, stdout=out, env=env, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def run_ours(args, cores, env):
    with tempfile.TemporaryDirectory() as tmp:
        run = os.path.join(tmp, "run")
        steps = args.warmup + args.steps
        status, seconds, cpu, rss = start(
            [os.path.join(TREE, "bin", "moe-train"), "run", "-q", "--peak", "1", "-j", str(len(cores)), "-c", args.config,
             "-o", run, *args.override, f"tokenizer={args.tokenizer or ''}", "data.valid=[]", "optim.schedule.decay=0",
             f"train.steps={steps}", f"checkpoint.every={steps}", f"eval.every={steps + 1}", args.data], cores, env,
            subprocess.DEVNULL)
        if status:
            sys.exit(f"side_by_side: moe-train left with status {status}")
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            rows = [r for r in map(json.loads, f) if r["schema"] == "moe.metrics/1"]
    tokens = rows[0]["tokens"]
    timed = rows[args.warmup:]
    step_s = statistics.median(r["step_s"] for r in timed)
    return {"who": "moe-train", "tok_s": tokens / step_s, "best_tok_s": tokens / min(r["step_s"] for r in timed),
            "optim_s": statistics.median(r["optim_s"] for r in timed), "peak_rss": rss, "cpu_s": cpu / steps,
            "first_step_s": max(0.0, seconds - sum(r["step_s"] for r in rows[1:])), "losses": [r["loss"] for r in rows]}


def run_theirs(args, mode, cores, env):
    with tempfile.TemporaryFile() as out:
        status, _, _, rss = start(
            [args.python, os.path.join(HERE, "torch_baseline.py"), "-c", args.config, "--mode", mode, "--ns", args.ns,
             "--documents", args.documents, "--steps", str(args.steps), "--warmup", str(args.warmup),
             "--threads", str(len(cores)), args.data, *args.override], cores, env, out)
        if status:
            sys.exit(f"side_by_side: the {mode} baseline left with status {status}")
        out.seek(0)
        row = json.loads(out.read())
    return {"who": f"torch {mode}", **{k: row[k] for k in ("tok_s", "best_tok_s", "cpu_s", "optim_s", "first_step_s", "losses", "torch",
                                                           "transformers")}, "peak_rss": rss}


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("-c", "--config", required=True)
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--steps", type=int, default=20, help="timed steps of each run")
    ap.add_argument("--warmup", type=int, default=5)
    ap.add_argument("--cores", default="0,1", help="the cores both sides may use")
    ap.add_argument("--modes", default="compile,grouped_mm,eager", help="PyTorch modes")
    ap.add_argument("--ns", choices=("fp32", "bf16", "torch"), default="fp32")
    ap.add_argument("--documents", choices=("ignore", "mask"), default="ignore")
    ap.add_argument("--tokenizer", help="the tokenizer of the data; without it none is compared")
    ap.add_argument("--python", default=os.environ.get("ORACLE_PYTHON", "python3"))
    ap.add_argument("data")
    ap.add_argument("override", nargs="*", help="key.path=value, for both sides")
    args = ap.parse_args()
    cores = {int(c) for c in args.cores.split(",")}
    env = dict(os.environ, OMP_NUM_THREADS=str(len(cores)))
    if not shutil.which(args.python) or not os.access(os.path.join(TREE, "bin", "moe-train"), os.X_OK):
        print("side_by_side: it needs bin/moe-train and a python3 with torch (ORACLE_PYTHON)", file=sys.stderr)
        return 69

    results = {}
    for i in range(args.runs):
        for who in ["ours"] + args.modes.split(","):
            r = run_ours(args, cores, env) if who == "ours" else run_theirs(args, who, cores, env)
            losses = r.pop("losses")
            if not losses[-1] < losses[0]:
                sys.exit(f"side_by_side: {r['who']} did not lower its loss ({losses[0]} -> {losses[-1]})")
            results.setdefault(r["who"], []).append(r)
            print(json.dumps({"schema": "moe.bench/1", "run": i + 1, **r, "loss_first": losses[0], "loss_last": losses[-1]}), flush=True)

    medians = {who: {k: statistics.median(r[k] for r in rows) for k in ("tok_s", "best_tok_s", "cpu_s", "optim_s", "first_step_s", "peak_rss")}
               for who, rows in results.items()}
    fastest = max((w for w in medians if w != "moe-train"), key=lambda w: medians[w]["tok_s"])
    ratio = {k: medians["moe-train"][k] / medians[fastest][k] for k in ("tok_s", "best_tok_s", "cpu_s", "peak_rss")}
    print(json.dumps({"schema": "moe.bench/1", "summary": medians, "fastest": fastest, "ratio": ratio}))
    print(f"{'':18}{'tok/s':>9}{'best':>9}{'cpu s':>9}{'optim s':>9}{'first s':>9}{'MiB':>8}", file=sys.stderr)
    for who, m in medians.items():
        print(f"{who:18}{m['tok_s']:9.0f}{m['best_tok_s']:9.0f}{m['cpu_s']:9.3f}{m['optim_s']:9.3f}{m['first_step_s']:9.2f}{m['peak_rss'] / 2**20:8.0f}",
              file=sys.stderr)
    print(f"moe-train is {ratio['tok_s']:.2f} x {fastest} (best steps {ratio['best_tok_s']:.2f} x), with "
          f"{ratio['cpu_s']:.2f} of its processor time and {ratio['peak_rss']:.2f} of its memory", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
