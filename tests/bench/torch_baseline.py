#!/usr/bin/env python3
"""torch_baseline.py [-c CONFIG] [options] DATA [key.path=value...] -- our model, trained by PyTorch on the CPU.

Promises: the model of a moe-tools configuration as transformers' Glm4MoeForCausalLM, in float32, on the same
token file, with the same work per step: forward, backward, clipping, Muon for matrices (every expert's three
matrices orthogonalised on their own), AdamW for the rest, selection bias update.  One JSON line on stdout:
median tokens/s of the timed steps, best step, time to the first step, peak resident memory, losses, versions.
It chooses what is fast for PyTorch: fused AdamW, Newton-Schulz batched by shape, flushed denormals, scaled dot
product attention; documents are ignored unless --documents mask, which lets the flash kernel run.

Refuses: to draw our random numbers.  The order of windows is PyTorch's own; --init starts from a checkpoint.
"""
import argparse
import json
import os
import resource
import statistics
import struct
import sys
import time

STARTED = time.perf_counter()
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy
import torch
import transformers
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

DEFAULTS = {   # the demo's model
    "model": dict(model_type="glm4_moe", hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=64, vocab_size=8192, num_experts=16, num_experts_per_tok=2, moe_intermediate_size=128,
                  n_shared_experts=1, first_k_dense_replace=0, norm_topk_prob=True, routed_scaling_factor=1.0,
                  use_qk_norm=True, partial_rotary_factor=1.0, rope_theta=10000, rms_norm_eps=1e-6,
                  tie_word_embeddings=False, attention_bias=False),
    "init": dict(seed=1, std=0.02),
    "data": dict(seq_len=256, seed=1),
    "train": dict(tokens_per_step=4096, micro_tokens=4096),
    "router": dict(bias_rate=1e-3),
    "optim": dict(muon=dict(lr=3e-3, momentum=0.95, nesterov=True, weight_decay=0.1, scale="match_rms_adamw"),
                  adamw=dict(lr=3e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1),
                  clip_norm=1.0, schedule=dict(warmup=20)),
}
JORDAN = (3.4445, -4.7750, 2.0315)


# ---- configuration

def merge(base, over):
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value
    return base


def read_config(path, overrides):
    config = json.loads(json.dumps(DEFAULTS))
    if path:
        import yaml      # a dependency of transformers
        loader = type("Loader", (yaml.SafeLoader,), {})
        with open(path, encoding="utf-8") as f:
            merge(config, yaml.load(f, loader) or {})
    for item in overrides:
        key, _, text = item.partition("=")
        node = config
        *parents, last = key.split(".")
        for p in parents:
            node = node.setdefault(p, {})
        try:
            node[last] = json.loads(text)
        except ValueError:
            node[last] = text
    if not isinstance(config["model"], dict) or config["model"]["model_type"] != "glm4_moe":
        sys.exit("torch_baseline: the baseline needs a model section of model_type glm4_moe")
    return config


UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def number(value):
    """YAML 1.1 reads 1e-3 as text, and sizes may carry units."""
    if isinstance(value, str):
        for unit in sorted(UNITS, key=len, reverse=True):
            if value.endswith(unit):
                return int(value[:-len(unit)]) * UNITS[unit]
        return float(value)
    return value


def build_model(config, mode, init):
    m = config["model"]
    names = ("hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim vocab_size num_experts_per_tok "
             "moe_intermediate_size n_shared_experts first_k_dense_replace norm_topk_prob routed_scaling_factor "
             "use_qk_norm tie_word_embeddings attention_bias").split()
    hf = Glm4MoeConfig(
        **{n: m[n] for n in names}, n_routed_experts=m["num_experts"], n_group=m.get("n_group", 1),
        topk_group=m.get("topk_group", 1), intermediate_size=m.get("intermediate_size") or 4 * m["hidden_size"],
        rms_norm_eps=number(m["rms_norm_eps"]), num_nextn_predict_layers=0, use_cache=False,
        max_position_embeddings=max(4096, config["data"]["seq_len"]), initializer_range=number(config["init"]["std"]),
        rope_parameters={"rope_type": "default", "rope_theta": float(number(m["rope_theta"])),
                         "partial_rotary_factor": number(m["partial_rotary_factor"])})
    experts = "eager" if mode == "eager" else "grouped_mm"
    torch.manual_seed(config["init"]["seed"])
    if init:
        model = Glm4MoeForCausalLM.from_pretrained(init, dtype=torch.float32, attn_implementation="sdpa",
                                                   experts_implementation=experts)
    else:
        hf._attn_implementation = "sdpa"
        hf._experts_implementation = experts
        model = Glm4MoeForCausalLM(hf)
        with torch.no_grad():      # transformers leaves fused experts to its own rule; the configuration says one std
            for name, p in model.named_parameters():
                if p.ndim >= 2:
                    p.normal_(0, number(config["init"]["std"]))
    return model.train()


# ---- data

def read_tokens(path):
    """The token stream of a Megatron .bin/.idx pair; documents follow one another in it."""
    with open(path + ".idx", "rb") as f:
        head = f.read(34)
    if head[:9] != b"MMIDIDX\x00\x00":
        sys.exit(f"torch_baseline: {path}.idx: not a Megatron index")
    version, code = struct.unpack("<QB", head[9:18])
    if version != 1 or code not in (4, 8):
        sys.exit(f"torch_baseline: {path}.idx: version {version}, dtype code {code}; wanted 1 and 4 (i32) or 8 (u16)")
    return numpy.memmap(path + ".bin", dtype=numpy.uint16 if code == 8 else numpy.int32, mode="r")


def eod_of(path):
    try:
        with open(path + ".json", encoding="utf-8") as f:
            return json.load(f)["eod"]["id"]
    except (OSError, KeyError, TypeError):
        return -1


class Batches:
    """Windows of seq_len + 1 tokens in a random order; the last token of one is the first of the next."""

    def __init__(self, tokens, eod, seq_len, n_seqs, seed, vocab_size):
        self.tokens, self.eod, self.seq_len, self.n_seqs = tokens, eod, seq_len, n_seqs
        self.n_windows = (len(tokens) - 1) // seq_len
        if self.n_windows < 1:
            sys.exit("torch_baseline: the data is shorter than one window")
        if int(tokens.max()) >= vocab_size:
            sys.exit("torch_baseline: the data holds ids beyond the model's vocabulary")
        self.gen = torch.Generator().manual_seed(seed)
        self.order = []

    def next(self):
        rows = []
        while len(rows) < self.n_seqs:
            if not self.order:
                self.order = torch.randperm(self.n_windows, generator=self.gen).tolist()
            start = self.order.pop() * self.seq_len
            rows.append(torch.from_numpy(self.tokens[start:start + self.seq_len + 1].astype(numpy.int64)))
        rows = torch.stack(rows)
        ids, targets = rows[:, :-1].contiguous(), rows[:, 1:].clone()
        targets[ids == self.eod] = -1       # the end of a document has no target
        return ids, targets


def document_mask(ids, eod):
    """Attention inside documents as a 4-D boolean mask, and positions that restart."""
    n = ids.shape[1]
    doc = torch.zeros_like(ids)
    doc[:, 1:] = (ids[:, :-1] == eod).cumsum(1)
    mask = (doc[:, :, None] == doc[:, None, :]) & torch.ones(n, n, dtype=torch.bool).tril()
    first = torch.searchsorted(doc, doc)
    return mask[:, None], torch.arange(n) - first


# ---- optimizers

def newton_schulz(x, dtype):
    """x [batch, rows, cols] -> the orthogonalised batch; five steps of the quintic, on the short side."""
    a, b, c = JORDAN
    turned = x.shape[1] > x.shape[2]
    x = (x.transpose(1, 2) if turned else x).to(dtype).contiguous()
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(5):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.transpose(1, 2) if turned else x).float()


class BatchedMuon:
    """Muon whose Newton-Schulz runs once per shape.  blocks(p) is a [n, rows, cols] view of a parameter's matrices."""

    def __init__(self, params, knobs, dtype):
        self.knobs, self.dtype = knobs, dtype
        self.lr = knobs["lr"]
        self.momentum = {p: torch.zeros_like(p) for _, p in params}
        self.by_shape = {}
        for name, p in params:
            self.by_shape.setdefault(blocks(name, p).shape[1:], []).append((name, p))

    @torch.no_grad()
    def step(self):
        mu, decay = self.knobs["momentum"], self.knobs["weight_decay"]
        for (rows, cols), members in self.by_shape.items():
            updates = []
            for name, p in members:
                buf = self.momentum[p]
                buf.lerp_(p.grad, 1 - mu)
                updates.append(blocks(name, p.grad.lerp(buf, mu) if self.knobs["nesterov"] else buf))
            ortho = newton_schulz(torch.cat(updates), self.dtype)
            ratio = 0.2 * max(rows, cols) ** 0.5 if self.knobs["scale"] == "match_rms_adamw" else max(1, rows / cols) ** 0.5
            start = 0
            for (name, p), u in zip(members, updates):
                p.mul_(1 - self.lr * decay)
                blocks(name, p).add_(ortho[start:start + len(u)], alpha=-self.lr * ratio)
                start += len(u)


class TorchMuon:
    """torch.optim.Muon as it is, one 2-D view per matrix: what the library itself offers."""

    def __init__(self, params, knobs):
        self.views = []
        for name, p in params:
            for i, view in enumerate(blocks(name, p.detach())):
                self.views.append((name, p, i, torch.nn.Parameter(view)))
        self.opt = torch.optim.Muon([v for *_, v in self.views], lr=knobs["lr"], momentum=knobs["momentum"],
                                    nesterov=knobs["nesterov"], weight_decay=knobs["weight_decay"],
                                    adjust_lr_fn=knobs["scale"])
        self.lr = knobs["lr"]

    def step(self):
        for name, p, i, view in self.views:
            view.grad = blocks(name, p.grad)[i]
        self.opt.param_groups[0]["lr"] = self.lr
        self.opt.step()


def blocks(name, t):
    """The matrices inside a parameter: transformers keeps gate and up of all experts in one tensor."""
    if name.endswith("experts.gate_up_proj"):
        return t.view(t.shape[0] * 2, t.shape[1] // 2, t.shape[2])
    return t if t.ndim == 3 else t[None]


def make_optimizers(model, optim, ns):
    matrices, decayed, plain = [], [], []
    for name, p in model.named_parameters():
        if p.ndim < 2:
            plain.append(p)
        elif name.endswith(("embed_tokens.weight", "lm_head.weight", "mlp.gate.weight")):
            decayed.append(p)
        else:
            matrices.append((name, p))
    knobs = {k: number(v) if k in ("lr", "momentum", "weight_decay") else v for k, v in optim["muon"].items()}
    if ns == "torch":
        muon = TorchMuon(matrices, knobs)
    else:
        muon = BatchedMuon(matrices, knobs, torch.bfloat16 if ns == "bf16" else torch.float32)
    a = optim["adamw"]
    adamw = torch.optim.AdamW([{"params": decayed, "weight_decay": number(a["weight_decay"])},
                               {"params": plain, "weight_decay": 0.0}], lr=number(a["lr"]),
                              betas=tuple(number(b) for b in a["betas"]), eps=number(a["eps"]), fused=True)
    return muon, adamw


def watch_routers(model):
    """Counts per expert, added up in forward; the selection bias follows them once a step."""
    routers = [m for m in model.modules() if type(m).__name__ == "Glm4MoeTopkRouter"]
    for r in routers:
        r.register_buffer("counts", torch.zeros(r.num_experts), persistent=False)

        def hook(module, args, out):
            with torch.no_grad():
                flat = out[2].reshape(-1)
                module.counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.float32))
        r.register_forward_hook(hook)
    return routers


def update_biases(routers, rate):
    with torch.no_grad():
        for r in routers:
            d = torch.sign(r.counts.mean() - r.counts)
            r.e_score_correction_bias.add_(rate * (d - d.mean()))
            r.counts.zero_()


# ---- measure

def step_flops(model, config, tokens):
    """6 x matmul parameters that act on a token x tokens, plus attention over the pairs seen; no recomputation."""
    m, active = config["model"], 0.0
    for name, p in model.named_parameters():
        if p.ndim >= 2 and not name.endswith("embed_tokens.weight"):
            active += p.numel() * (m["num_experts_per_tok"] / m["num_experts"] if ".experts." in name else 1)
    if m["tie_word_embeddings"]:
        active += m["vocab_size"] * m["hidden_size"]
    s = config["data"]["seq_len"]
    pairs = tokens / s * s * (s + 1) / 2
    return 6 * active * tokens + 12 * m["num_hidden_layers"] * m["num_attention_heads"] * m["head_dim"] * pairs


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("-c", "--config", help="a moe-tools YAML; default: the demo's model")
    ap.add_argument("--mode", choices=("eager", "compile", "grouped_mm"), default="grouped_mm",
                    help="expert kernels; compile is torch.compile over grouped_mm")
    ap.add_argument("--ns", choices=("fp32", "bf16", "torch"), default="fp32",
                    help="Newton-Schulz batched in fp32 or bf16, or torch.optim.Muon itself")
    ap.add_argument("--documents", choices=("ignore", "mask"), default="ignore", help="attention across documents or inside them")
    ap.add_argument("--init", help="checkpoint directory to start from")
    ap.add_argument("--steps", type=int, default=20, help="timed steps")
    ap.add_argument("--warmup", type=int, default=5, help="steps before them")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--trace", action="store_true", help="one line per step on stderr")
    ap.add_argument("data", help="DATA.bin and DATA.idx, or 'random'")
    ap.add_argument("override", nargs="*", help="key.path=value")
    args = ap.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    config = read_config(args.config, args.override)
    m, t = config["model"], config["train"]
    seq_len = config["data"]["seq_len"] = int(number(config["data"]["seq_len"]))
    tokens_per_step, micro = int(number(t["tokens_per_step"])), int(number(t["micro_tokens"]))
    if micro % seq_len or tokens_per_step % micro:
        sys.exit("torch_baseline: micro_tokens must divide tokens_per_step and be a multiple of seq_len")

    if args.data == "random":
        # Ranks follow a power law, so that routing is as uneven as on text.
        ranks = numpy.random.default_rng(1).zipf(1.3, 400000)
        tokens, eod = (ranks % m["vocab_size"]).astype(numpy.int32), 0
    else:
        tokens, eod = read_tokens(args.data), eod_of(args.data)
    batches = Batches(tokens, eod, seq_len, micro // seq_len, config["data"]["seed"], m["vocab_size"])

    model = build_model(config, args.mode, args.init)
    muon, adamw = make_optimizers(model, config["optim"], args.ns)
    routers = watch_routers(model)
    run = torch.compile(model) if args.mode == "compile" else model
    lrs, warm = (muon.lr, number(config["optim"]["adamw"]["lr"])), number(config["optim"]["schedule"].get("warmup", 0))

    times, losses, first_step = [], [], None
    for step in range(1, args.warmup + args.steps + 1):
        if step == args.warmup + 1:
            cpu_begin = time.process_time()
        begin = time.perf_counter()
        scale = min(1.0, step / warm) if warm else 1.0
        muon.lr = lrs[0] * scale
        for g in adamw.param_groups:
            g["lr"] = lrs[1] * scale
        work = [batches.next() for _ in range(tokens_per_step // micro)]
        valid = sum(int((targets >= 0).sum()) for _, targets in work)
        total = 0.0
        for ids, targets in work:
            extra = {}
            if args.documents == "mask":
                extra["attention_mask"], extra["position_ids"] = document_mask(ids, eod)
            logits = run(input_ids=ids, use_cache=False, **extra).logits
            loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1,
                                                     reduction="sum") / valid
            del logits
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), number(config["optim"]["clip_norm"]))
        optim_begin = time.perf_counter()
        muon.step()
        adamw.step()
        update_biases(routers, number(config["router"].get("bias_rate", 0)))
        model.zero_grad(set_to_none=True)
        end = time.perf_counter()
        first_step = first_step or end - STARTED
        losses.append(total)
        if step > args.warmup:
            times.append((end - begin, end - optim_begin))
        if args.trace:
            print(f"step {step} loss {total:.4f} {end - begin:.3f} s, optimizer {end - optim_begin:.3f} s", file=sys.stderr, flush=True)

    cpu_s = (time.process_time() - cpu_begin) / len(times)
    step_s = statistics.median(s for s, _ in times)
    best = min(s for s, _ in times)
    flops = step_flops(model, config, tokens_per_step)
    print(json.dumps({
        "schema": "moe.baseline/1", "mode": args.mode, "ns": args.ns, "documents": args.documents, "threads": args.threads,
        "parameters": sum(p.numel() for p in model.parameters()), "tokens_per_step": tokens_per_step, "steps": len(times),
        "tok_s": round(tokens_per_step / step_s, 1), "best_tok_s": round(tokens_per_step / best, 1),
        "step_s": round(step_s, 4), "cpu_s": round(cpu_s, 4), "optim_s": round(statistics.median(o for _, o in times), 4),
        "gflop_s": round(flops / step_s / 1e9, 2), "first_step_s": round(first_step, 2),
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "losses": [round(x, 5) for x in losses],
        "torch": torch.__version__, "transformers": transformers.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
