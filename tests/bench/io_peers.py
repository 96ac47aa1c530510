#!/usr/bin/env python3
"""io_peers.py -- moe-ckpt beside safetensors, torch.save and transformers, in one run.

usage: io_peers.py [-n ROUNDS] [--bin DIR] MODEL [TEMPORARY]

MODEL is a Hugging Face directory of a family that moe-ckpt converts.  In turns,
each in a process of its own: reading every tensor (page cache warm), writing
them (fsync included on all sides), and load-and-save of the whole model.
Prints medians, GB/s, ratios to ours and the peak of resident memory.  It
refuses to compare what differs: the tensors that all sides read are counted.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

PEERS = {
    "safetensors load": "from safetensors.torch import load_file\n# It maps the file: a copy makes it read.\nfor f in files:\n"
                        "  for t in load_file(f).values(): t.clone()",
    "torch.load": "import torch\ntorch.load(pt, weights_only=True)",
    "safetensors save": "from safetensors.torch import load_file, save_file\nt = {}\nfor f in files: t.update(load_file(f))\n"
                        "start()\nsave_file(t, out)\nsync(out)",
    "torch.save": "import torch\nfrom safetensors.torch import load_file\nt = {}\nfor f in files: t.update(load_file(f))\n"
                  "start()\ntorch.save(t, out)\nsync(out)",
    "transformers load and save": "from transformers import AutoModelForCausalLM\nstart()\n"
                                  "AutoModelForCausalLM.from_pretrained(model, dtype='auto').save_pretrained(out)\n"
                                  "for f in os.listdir(out): sync(os.path.join(out, f))",
}
FRAME = """
import os, sys, time, json, resource
model, out, pt, files = json.loads(sys.argv[1])
def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
begun = None
def start():
    global begun
    begun = time.perf_counter()
import torch, safetensors.torch
start()
%s
print(json.dumps([time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def peer(name, a):
    r = subprocess.run([sys.executable, "-c", FRAME % PEERS[name], json.dumps(a)], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{name}: {r.stderr.strip().splitlines()[-1]}")
    return json.loads(r.stdout.splitlines()[-1])


def ours(argv):
    t = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"{' '.join(argv)}: status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - t, usage.ru_maxrss


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=5)
    p.add_argument("--bin", default=os.path.join(os.path.dirname(__file__), "../../bin"))
    p.add_argument("model")
    p.add_argument("tmp", nargs="?", default=".")
    a = p.parse_args()
    ckpt = os.path.join(a.bin, "moe-ckpt")
    files = sorted(os.path.join(a.model, f) for f in os.listdir(a.model) if f.endswith(".safetensors"))
    size = sum(os.path.getsize(f) for f in files)
    tmp = tempfile.mkdtemp(prefix="io-peers-", dir=a.tmp)
    try:
        out, pt, whole = (os.path.join(tmp, n) for n in ("out", "pt", "whole"))
        # Not in this process: the peak of a child begins with what its parent holds.
        peer("torch.save", [a.model, pt, pt, files])
        subprocess.run([ckpt, "reshard", "-q", "-n", "1", a.model, whole], check=True, stdout=subprocess.DEVNULL)
        rows = {
            "verify": ("read", lambda: ours([ckpt, "verify", whole])),
            "safetensors load": ("read", None),
            "torch.load": ("read", None),
            "reshard": ("write", lambda: ours([ckpt, "reshard", "-q", "-n", "1", a.model, out])),
            "safetensors save": ("write", None),
            "torch.save": ("write", None),
            "convert": ("convert", lambda: ours([ckpt, "convert", "-q", a.model, out])),
            "transformers load and save": ("convert", None),
        }
        got = {name: [] for name in rows}
        for _ in range(a.n):
            for name, (_, run) in rows.items():
                remove(out)
                got[name].append(run() if run else peer(name, [a.model, out, pt, files]))
        mine = {}
        print(f"{'job':8} {'program':28} {'s':>8} {'GB/s':>7} {'of ours':>8} {'peak MiB':>9}")
        for name, (job, run) in rows.items():
            s = statistics.median(v[0] for v in got[name])
            rss = statistics.median(v[1] for v in got[name]) / 1024
            mine.setdefault(job, s)
            print(f"{job:8} {name:28} {s:8.3f} {size / s / 1e9:7.2f} {s / mine[job]:7.2f}x {rss:9.0f}")
    finally:
        shutil.rmtree(tmp)


main()
