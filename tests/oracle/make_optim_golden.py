#!/usr/bin/env python3
"""make_optim_golden.py DIR -- ten steps of torch.optim.AdamW and torch.optim.Muon, as DIR/optim.safetensors.

Promises: the reference runs are torch's own optimizers on float64 parameters that start from values and see
gradients a float32 holds exactly; results are rounded once to float32.  torch.optim.Muon orthogonalises in
bfloat16 whatever its parameters are, so it runs twice: with that cast replaced by float64, and as it is.

Refuses: to write gradients so ill conditioned that a float32 or bfloat16 run of the same optimizer would miss
the limits of the tests by itself.
"""
import contextlib
import json
import os
import sys

import torch
from safetensors.torch import save_file
from torch.optim import _muon

torch.set_num_threads(1)

STEPS = 10
LR = [2e-3, 4e-3, 6e-3, 8e-3, 1e-2, 1e-2, 9e-3, 7e-3, 4e-3, 1e-3]
ADAMW = dict(betas=(0.9, 0.95), eps=1e-8, foreach=False)
ADAMW_SHAPES = {"matrix": (7, 5), "vector": (11,)}
ADAMW_DECAY = {"matrix": 0.1, "vector": 0.0}
MUON = dict(weight_decay=0.1, momentum=0.95, eps=1e-7, ns_steps=5)
MUON_SHAPES = {"tall": (24, 10), "wide": (9, 26), "square": (16, 16), "row": (1, 13), "idle": (6, 5)}
MUON_MODES = {"match_rms_adamw": dict(adjust_lr_fn="match_rms_adamw", nesterov=True),
              "original": dict(adjust_lr_fn="original", nesterov=True),
              "plain": dict(adjust_lr_fn="match_rms_adamw", nesterov=False)}
LIMIT_EXACT, LIMIT_BF16 = 1e-5, 3e-2     # what the tests of our own optimizer allow


class _CastTo:
    """Stands in for `torch` inside torch's Muon: bfloat16 means another type, all else is unchanged."""

    def __init__(self, dtype):
        self.bfloat16 = dtype

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def newton_schulz_in(dtype):
    _muon.torch = _CastTo(dtype)
    try:
        yield
    finally:
        _muon.torch = torch


def draw(shapes, gen, scale):
    """Start values and a [STEPS, ...] block of gradients that share a direction and drift, as in training."""
    init, grads = {}, {}
    for name, shape in shapes.items():
        init[name] = (0.1 * torch.randn(shape, generator=gen)).float()
        common = torch.randn(shape, generator=gen)
        g = torch.stack([scale * (1 + 0.2 * i) * (0.4 * common + torch.randn(shape, generator=gen)) for i in range(STEPS)])
        grads[name] = torch.zeros_like(g) if name == "idle" else g
    return init, grads


def run(make, init, grads, dtype):
    """Parameters after steps 1 and STEPS, and the optimizer with its state."""
    params = {n: torch.nn.Parameter(t.to(dtype).clone()) for n, t in init.items()}
    opt = make(params)
    kept = {}
    for i in range(STEPS):
        for group in opt.param_groups:
            group["lr"] = LR[i]
        for n, p in params.items():
            p.grad = grads[n][i].to(dtype).clone()
        opt.step()
        if i in (0, STEPS - 1):
            kept[i + 1] = {n: p.detach().clone() for n, p in params.items()}
    return kept, {n: opt.state[p] for n, p in params.items()}


def worst_error(got, want):
    return max((got[n].double() - want[n].double()).abs().max().item() / want[n].abs().max().item() for n in want)


def adamw(out, gen):
    init, grads = draw(ADAMW_SHAPES, gen, 0.01)

    def make(params):
        return torch.optim.AdamW([{"params": [p], "weight_decay": ADAMW_DECAY[n]} for n, p in params.items()], **ADAMW)

    kept, state = run(make, init, grads, torch.float64)
    single, _ = run(make, init, grads, torch.float32)
    for step, values in kept.items():
        if worst_error(single[step], values) > LIMIT_EXACT / 3:
            return False
        out.update({f"adamw.step{step}.{n}": t for n, t in values.items()})
    for n in init:
        out[f"adamw.init.{n}"], out[f"adamw.grad.{n}"] = init[n], grads[n]
        out[f"adamw.exp_avg.{n}"], out[f"adamw.exp_avg_sq.{n}"] = state[n]["exp_avg"], state[n]["exp_avg_sq"]
    return True


def muon(out, gen):
    init, grads = draw(MUON_SHAPES, gen, 0.003)
    worst_bf16 = 0.0
    for mode, knobs in MUON_MODES.items():
        def make(params):
            return torch.optim.Muon(list(params.values()), **MUON, **knobs)

        with newton_schulz_in(torch.float64):
            exact, state = run(make, init, grads, torch.float64)
        with newton_schulz_in(torch.float32):
            single, _ = run(make, init, grads, torch.float32)
        rough, _ = run(make, init, grads, torch.float32)
        for step in exact:
            if worst_error(single[step], exact[step]) > LIMIT_EXACT / 3:
                return False
            for n in init:
                out[f"muon.{mode}.f64.step{step}.{n}"] = exact[step][n]
                out[f"muon.{mode}.bf16.step{step}.{n}"] = rough[step][n]
                moved = (exact[step][n] - init[n]).norm().item()
                if n != "idle":
                    worst_bf16 = max(worst_bf16, (rough[step][n] - exact[step][n]).norm().item() / moved)
        for n in init:
            out[f"muon.momentum.{n}"] = state[n]["momentum_buffer"]
    for n in init:
        out[f"muon.init.{n}"], out[f"muon.grad.{n}"] = init[n], grads[n]
        with newton_schulz_in(torch.float64):
            ns = _muon._zeropower_via_newtonschulz(grads[n][0].double(), (3.4445, -4.7750, 2.0315), 5, 1e-7)
        out[f"ns.jordan.{n}"] = ns
    out["_bf16"] = worst_bf16
    return worst_bf16 < LIMIT_BF16 * 0.7


def main(argv):
    if len(argv) != 2:
        print("usage: make_optim_golden.py DIR", file=sys.stderr)
        return 2
    for seed in range(1, 500):
        out = {}
        gen = torch.Generator().manual_seed(seed)
        if adamw(out, gen) and muon(out, gen):
            break
    else:
        print("no seed gives well conditioned gradients", file=sys.stderr)
        return 1
    worst_bf16 = out.pop("_bf16")
    tensors = {n: t.to(torch.float32).contiguous() for n, t in out.items()}
    tensors["lr"] = torch.tensor(LR, dtype=torch.float64)
    meta = {"format": "pt", "torch": torch.__version__, "seed": str(seed), "steps": str(STEPS), "lr": json.dumps(LR),
            "adamw": json.dumps(dict(betas=ADAMW["betas"], eps=ADAMW["eps"], weight_decay=ADAMW_DECAY)),
            "muon": json.dumps(dict(MUON, ns_coefficients=[3.4445, -4.775, 2.0315], modes=MUON_MODES)),
            "computed": "float64, rounded once to float32; bf16: torch.optim.Muon as it is, float32 parameters",
            "bf16_distance": f"{worst_bf16:.1e}"}
    path = os.path.join(argv[1], "optim.safetensors")
    save_file(tensors, path, metadata=meta)
    os.chmod(path, 0o644)
    print(f"optim: seed {seed}, {len(tensors)} tensors, bf16 run of Muon is {worst_bf16:.1e} from the float64 run")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
