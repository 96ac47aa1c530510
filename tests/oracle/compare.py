#!/usr/bin/env python3
"""compare.py [NAME...] -- our files and programs beside transformers, tokenizers and safetensors.

Promises and refuses what checks.py does.  NAME selects checks whose names contain it.
"""
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

import checks
from checks import HERE, TREE, UDHR, Differs, Skip, program, unless

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()

GOLDEN = os.path.join(TREE, "tests", "golden")
CASES = sorted(d for d in os.listdir(GOLDEN) if os.path.exists(os.path.join(GOLDEN, d, "config.json")))
EOD = "<|endoftext|>"
SEQ_LEN = 64


# ---- our programs

def call(args, stdin=None, status=0):
    done = subprocess.run(args, input=stdin, capture_output=True, check=False)
    if done.returncode != status:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Differs(f"{' '.join(os.path.basename(a) for a in args[:2])}: status {done.returncode}, wanted {status}: "
                      f"{said[-1] if said else 'it said nothing'}")
    return done.stdout


# ---- golden files

def relative_error(got, want):
    scale = want.double().abs().max().item()
    error = (got.double() - want.double()).abs().max().item()
    return error / scale if scale else error


def same_tensors(new, old, limit_of):
    unless(new.keys() == old.keys(), f"names differ: {sorted(new.keys() ^ old.keys())[:3]}")
    for name in sorted(old):
        a, b = new[name], old[name]
        unless(a.shape == b.shape and a.dtype == b.dtype, f"{name}: shape or type differs")
        limit = limit_of(name)
        if limit == 0:
            unless(torch.equal(a, b), f"{name}: values differ")
        else:
            unless(relative_error(a, b) <= limit, f"{name}: off by {relative_error(a, b):.1e}, limit {limit:.0e}")


def golden_model(case):
    def check(tmp):
        call([sys.executable, os.path.join(HERE, "make_model_golden.py"), tmp, case])
        new, old = os.path.join(tmp, case), os.path.join(GOLDEN, case)
        configs = [json.load(open(os.path.join(d, "config.json"), encoding="utf-8")) for d in (new, old)]
        for c in configs:
            c.pop("transformers_version")
        unless(configs[0] == configs[1], "config.json differs")
        same_tensors(load_file(new + "/model.safetensors"), load_file(old + "/model.safetensors"), lambda n: 0)
        # Both were computed in double and rounded once, so one ulp of float32 is all that may differ.
        exact = ("input_ids", "targets", "doc_start", "position_ids", "routing.")
        same_tensors(load_file(new + "/golden.safetensors"), load_file(old + "/golden.safetensors"),
                     lambda n: 0 if n.startswith(exact) else 2e-7)
    return check


def golden_optim(tmp):
    call([sys.executable, os.path.join(HERE, "make_optim_golden.py"), tmp])
    # bfloat16 arithmetic depends on the CPU's instructions, so there only the order of magnitude is held.
    same_tensors(load_file(tmp + "/optim.safetensors"), load_file(GOLDEN + "/optim.safetensors"),
                 lambda n: 3e-2 if ".bf16." in n else 0 if ".init." in n or ".grad." in n or n == "lr" else 2e-7)


def golden_tok(tmp):
    call([sys.executable, os.path.join(HERE, "make_tok_golden.py"), tmp])
    for name in ("ids.bin", "tokenizer.json"):
        new, old = (open(os.path.join(d, name), "rb").read() for d in (tmp, os.path.join(GOLDEN, "tok")))
        unless(new == old if name == "ids.bin" else json.loads(new) == json.loads(old), f"{name} differs")


# ---- checkpoints that save_pretrained wrote, read by us

def listing(directory):
    found = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors") and name != "golden.safetensors":
            with safe_open(os.path.join(directory, name), "pt") as f:
                for key in f.keys():
                    s = f.get_slice(key)
                    found[key] = (s.get_dtype(), "x".join(map(str, s.get_shape())))
    return found


def reads_save_pretrained(case):
    def check(tmp):
        ckpt = program("moe-ckpt")
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(GOLDEN, case), dtype=torch.float32)
        whole, cut = os.path.join(tmp, "whole"), os.path.join(tmp, "cut")
        model.save_pretrained(whole)
        model.save_pretrained(cut, max_shard_size="20KB")
        unless(os.path.exists(cut + "/model.safetensors.index.json"), "save_pretrained wrote no shards")
        for directory in (whole, cut):
            call([ckpt, "verify", "--structure", directory])
            rows = [json.loads(line) for line in call([ckpt, "ls", "--json", directory]).splitlines()]
            ours = {r["name"]: (r["dtype"], r["shape"]) for r in rows}
            theirs = listing(directory)
            wrong = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
            unless(not wrong, f"{os.path.basename(directory)}: {wrong[:1]}: {ours.get(wrong[0]) if wrong else ''} against "
                              f"{theirs.get(wrong[0]) if wrong else ''}")
        file = os.path.join(cut, sorted(n for n in os.listdir(cut) if n.endswith(".safetensors"))[0])
        with open(file, "r+b") as f:
            f.truncate(os.path.getsize(file) - 1)
        call([ckpt, "verify", "--structure", cut], status=1)
    return check


# ---- moe-ckpt convert

def golden_inputs(case):
    golden = load_file(os.path.join(GOLDEN, case, "golden.safetensors"))
    doc = golden["doc_start"].long()
    i, j = torch.arange(len(doc))[:, None], torch.arange(len(doc))[None, :]
    seen = (j <= i) & (doc[:, None] == doc[None, :])
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]
    return golden["input_ids"].long()[None], golden["position_ids"].long()[None], mask


def logits(directory, case, dtype):
    """The logits of the golden text, and the model; loading must report nothing odd."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    odd = {k: sorted(v)[:2] for k, v in info.items() if v}
    unless(not odd, f"{os.path.basename(directory)}: loading reports {odd}")
    ids, positions, mask = golden_inputs(case)
    with torch.no_grad():
        return model.eval()(input_ids=ids, attention_mask=mask.to(dtype), position_ids=positions, use_cache=False).logits[0], model


def convert_is_opened(case):
    def check(tmp):
        ckpt = program("moe-ckpt")
        source = os.path.join(GOLDEN, case)
        f32, bf16 = os.path.join(tmp, "f32"), os.path.join(tmp, "bf16")
        call([ckpt, "convert", "--dtype", "f32", "--shard-size", "20k", source, f32])
        call([ckpt, "convert", "--dtype", "bf16", source, bf16])
        want, model = logits(source, case, torch.float32)
        got, _ = logits(f32, case, torch.float32)
        unless(torch.equal(got, want), f"logits in fp32 differ by {relative_error(got, want):.1e}")
        # The same rounding by torch, of the same weights: the router's selection bias stays float32.
        stored = load_file(os.path.join(bf16, "model-00001-of-00001.safetensors"))
        for name, t in load_file(os.path.join(source, "model.safetensors")).items():
            same = t if name.endswith("e_score_correction_bias") else t.bfloat16()
            unless(stored[name].dtype == same.dtype and torch.equal(stored[name], same), f"{name}: not rounded as torch rounds")
        rounded = {n: p.bfloat16().float() if not n.endswith("e_score_correction_bias") else p for n, p in model.state_dict().items()}
        model.load_state_dict(rounded)
        ids, positions, mask = golden_inputs(case)
        with torch.no_grad():
            want = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits[0]
        got, _ = logits(bf16, case, torch.float32)
        unless(torch.equal(got, want), f"logits of the bf16 weights differ by {relative_error(got, want):.1e}")
        call([ckpt, "convert", "--dtype", "f16", source, os.path.join(tmp, "f16")])
        stored = load_file(os.path.join(tmp, "f16", "model-00001-of-00001.safetensors"))
        for name, t in load_file(os.path.join(source, "model.safetensors")).items():
            unless(name.endswith("e_score_correction_bias") or torch.equal(stored[name], t.half()), f"{name}: not rounded to f16 as torch rounds")
    return check


def convert_reads_save_pretrained(case):
    def check(tmp):
        ckpt = program("moe-ckpt")
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(GOLDEN, case), dtype=torch.float32)
        ways = {"single": {}, "cut": {"max_shard_size": "20KB"}, "fused": {"save_original_format": False},
                "fused-cut": {"save_original_format": False, "max_shard_size": "20KB"}}
        want = load_file(os.path.join(GOLDEN, case, "model.safetensors"))
        for way, options in ways.items():
            source, out = os.path.join(tmp, way), os.path.join(tmp, way + "-out")
            model.save_pretrained(source, **options)
            unless(("fused" in way) == any(n.endswith("gate_up_proj") for n in listing(source)), f"{way}: not the layout that was meant")
            call([ckpt, "convert", source, out])
            same_tensors(load_file(os.path.join(out, "model-00001-of-00001.safetensors")), want, lambda n: 0)
            call([ckpt, "verify", out])
        bf16 = os.path.join(tmp, "half")
        model.to(torch.bfloat16).save_pretrained(bf16)
        call([ckpt, "convert", bf16, bf16 + "-out"])
        same_tensors(load_file(os.path.join(bf16 + "-out", "model-00001-of-00001.safetensors")),
                     {n: t.float() if n.endswith("e_score_correction_bias") else t for n, t in load_file(os.path.join(bf16, "model.safetensors")).items()},
                     lambda n: 0)
    return check


def convert_to_other_family(tmp):
    ckpt = program("moe-ckpt")
    config = transformers.MixtralConfig(
        vocab_size=48, hidden_size=24, intermediate_size=14, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=256, sliding_window=None, rms_norm_eps=1e-6, initializer_range=0.5)
    torch.manual_seed(5)
    source, out = os.path.join(tmp, "mixtral"), os.path.join(tmp, "qwen2_moe")
    transformers.MixtralForCausalLM(config).float().save_pretrained(source)
    call([ckpt, "convert", "--to", "qwen2_moe", source, out])
    want, _ = logits(source, "mixtral", torch.float32)
    got, model = logits(out, "mixtral", torch.float32)
    unless(model.config.model_type == "qwen2_moe", "not the family that was asked for")
    unless(relative_error(got, want) <= 1e-6, f"logits differ by {relative_error(got, want):.1e}")


# ---- texts

def udhr():
    if not os.path.isdir(UDHR):
        raise Skip("no texts in 24 languages: set ORACLE_UDHR to a folder of them")
    return {n: open(os.path.join(UDHR, n), encoding="utf-8").read() for n in sorted(os.listdir(UDHR)) if n.endswith(".txt")}


def tree_text():
    """Code and prose that every checkout has."""
    out = {}
    for folder, _, names in os.walk(TREE):
        if os.path.relpath(folder, TREE).split(os.sep)[0] in (".git", "build", "bin", "demo"):
            continue
        for n in sorted(names):
            path = os.path.join(folder, n)
            if n.endswith((".c", ".h", ".py", ".awk", ".1", ".5", ".7", ".md")) or n in ("Makefile", "LICENSE", "README", "check"):
                out[os.path.relpath(path, TREE)] = open(path, encoding="utf-8").read()
    return dict(sorted(out.items()))


def hostile_texts():
    rng = random.Random(7)
    assigned = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF
                and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    spaces = [c for c in assigned if c.isspace()]
    marks = [c for c in assigned if unicodedata.category(c).startswith("M")]
    ascii_chars = [chr(c) for c in range(128)]
    out = {"empty": "", "one letter": "a", "newlines": "\n\n\r\n \r\n\t\n  x\n   \n", "spaces": "   a    b  \u00a0\u3000c   ",
           "contractions": "I'm you'LL he'S they'Ve 'tis don\u2019t it\u017f's we'\u017f Maße'D",
           "controls": "".join(ascii_chars[:32]) + "\x7f\x80\u200b\u2028\u2029\ufeff\x00\x00a\x01b",
           "digits": "1 12 123 1234 12345678 3.14159 ١٢٣٤ ½²³ Ⅷ 2026-12-01T10:00:00Z",
           "paths": "a/b//c\n/d /\n\n// ///x !?/\r\n",
           "cases": "HTTPServer camelCase ǅungla ΑΒΓδε ЁжИК iPhone ßẞ ʰʱ ªº"}
    for i in range(20):
        out[f"any code points {i}"] = "".join(rng.choice(assigned) for _ in range(400))
    for i in range(20):
        pools = (ascii_chars, spaces, marks, assigned, ["'s", "'RE", "\r\n", "  ", "é", "e\u0301", "12", "/"])
        out[f"mixed {i}"] = "".join(rng.choice(rng.choice(pools)) for _ in range(400))
    return out


# ---- tokenizers

def trained_vocabulary(tmp, vocab_size=1500):
    tokenize = program("moe-tokenize")
    files = []
    texts = udhr() if os.path.isdir(UDHR) else tree_text()
    for i, text in enumerate(texts.values()):
        files.append(os.path.join(tmp, f"text{i:03}.txt"))
        with open(files[-1], "w", encoding="utf-8", newline="") as f:
            f.write(text)
    path = os.path.join(tmp, "tok.json")
    call([tokenize, "train", "--vocab-size", str(vocab_size), "-o", path, *files])
    return path, files


def same_ids(texts_of):
    def check(tmp):
        from tokenizers import Tokenizer
        tokenize = program("moe-tokenize")
        path, _ = trained_vocabulary(tmp)
        theirs = Tokenizer.from_file(path)
        theirs.encode_special_tokens = True     # the name of a special token in a text is text
        for name, text in texts_of().items():
            raw = text.encode()
            out = call([tokenize, "encode", "-t", path], stdin=raw)
            ours = list(struct.unpack(f"<{len(out) // 4}i", out))
            want = theirs.encode(text, add_special_tokens=False).ids
            if ours != want:
                i = next((i for i, (a, b) in enumerate(zip(ours, want)) if a != b), min(len(ours), len(want)))
                raise Differs(f"{name}: {len(ours)} against {len(want)} ids; id {i}: {ours[i:i + 3]} against {want[i:i + 3]} "
                              f"({[theirs.id_to_token(t) for t in want[i:i + 3]]})")
            unless(call([tokenize, "decode", "-t", path], stdin=out) == raw, f"{name}: decode gives other bytes")
    return check


def same_training(tmp):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    path, files = trained_vocabulary(tmp)
    ours = json.load(open(path, encoding="utf-8"))

    def regexes(node):
        if isinstance(node, dict):
            if "Regex" in node:
                yield node["Regex"]
            for v in node.values():
                yield from regexes(v)
        elif isinstance(node, list):
            for v in node:
                yield from regexes(v)

    split = list(regexes(ours["pre_tokenizer"]))
    unless(len(split) == 1, f"{len(split)} split expressions in tok.json, wanted 1")
    special = [t["content"] for t in ours["added_tokens"] if t["special"]]
    unless(EOD in special, f"{EOD} is not among the special tokens")

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split[0]), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    # A file is one document for us; their trainer reads files line by line, which would cut runs of newlines.
    texts = [open(f, encoding="utf-8", newline="").read() for f in files]
    frequency = int(os.environ.get("ORACLE_MIN_FREQUENCY", "2"))
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=len(ours["model"]["vocab"]) + len([s for s in special if s not in ours["model"]["vocab"]]),
        min_frequency=frequency, special_tokens=special, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    theirs = json.loads(t.to_str())["model"]
    split_pair = lambda m: m.split(" ") if isinstance(m, str) else list(m)
    a, b = [split_pair(m) for m in ours["model"]["merges"]], [split_pair(m) for m in theirs["merges"]]
    i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    unless(a == b, f"{len(a)} against {len(b)} merges; merge {i}: {a[i:i + 1]} against {b[i:i + 1]}")
    words = lambda v: set(v) - set(special)
    unless(words(ours["model"]["vocab"]) == words(theirs["vocab"]), "the vocabularies hold other tokens")


# ---- our checkpoint, opened by transformers

def window_losses(model, tokens, eod):
    """Sum of the cross entropy and number of targets over all windows, with attention inside documents.

    The experts must run eager: grouped_mm wants strides in multiples of 16 bytes, which tiny experts do not have."""
    total, count = 0.0, 0
    for start in range(0, len(tokens) - SEQ_LEN, SEQ_LEN):
        window = torch.tensor(tokens[start:start + SEQ_LEN + 1], dtype=torch.int64)
        ids, nxt = window[:-1], window[1:]
        doc = torch.cat([torch.zeros(1, dtype=torch.int64), (ids[:-1] == eod).cumsum(0)])
        first = torch.searchsorted(doc, doc)
        i, j = torch.arange(SEQ_LEN)[:, None], torch.arange(SEQ_LEN)[None, :]
        seen = (j <= i) & (doc[:, None] == doc[None, :])
        mask = torch.zeros(SEQ_LEN, SEQ_LEN).masked_fill(~seen, float("-inf"))[None, None]
        with torch.no_grad():
            logits = model(input_ids=ids[None], attention_mask=mask, use_cache=False,
                           position_ids=(torch.arange(SEQ_LEN) - first)[None]).logits[0]
        valid = ids != eod
        total += torch.nn.functional.cross_entropy(logits[valid].double(), nxt[valid], reduction="sum").item()
        count += int(valid.sum())
    return total, count


def write_run_config(path, config_json, data, valid, tok, n_windows):
    """One window per step and per evaluation batch, so that n_windows batches are each window once in any order."""
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""model: {config_json}
init: {{seed: 3, std: 0.2}}
tokenizer: {tok}
data:
  train: [{{path: {data}, weight: 1}}]
  valid: [{{name: held, path: {valid}}}]
  seq_len: {SEQ_LEN}
  seed: 1
train: {{steps: 4, tokens_per_step: {SEQ_LEN}, micro_tokens: {SEQ_LEN}, compute_dtype: fp32}}
router: {{bias_rate: 1e-3}}
optim:
  muon: {{lr: 1e-2}}
  adamw: {{lr: 1e-2}}
  schedule: {{kind: constant, warmup: 0}}
checkpoint: {{every: 4, keep: 1}}
eval: {{every: 4, batches: {n_windows}}}
""")


def opens_our_checkpoint(case):
    def check(tmp):
        train, tokenize = program("moe-train"), program("moe-tokenize")
        tok, files = trained_vocabulary(tmp, 400)
        data, valid, run = (os.path.join(tmp, n) for n in ("train", "valid", "run"))
        call([tokenize, "encode", "-t", tok, "-o", data, *files[1:]])
        with open(files[0], encoding="utf-8") as f:
            text = f.read()[:3000]
        parts = [os.path.join(tmp, f"valid{i}.txt") for i in range(3)]
        for i, p in enumerate(parts):
            with open(p, "w", encoding="utf-8") as f:
                f.write(text[i * 1000:(i + 1) * 1000])
        call([tokenize, "encode", "-t", tok, "-o", valid, *parts])
        side = json.load(open(valid + ".json", encoding="utf-8"))
        eod = side["eod"]["id"]
        with open(valid + ".bin", "rb") as f:
            raw = f.read()
        tokens = list(struct.unpack(f"<{len(raw) // 2}H" if side["dtype"] == "u16" else f"<{len(raw) // 4}i", raw))
        n_windows = (len(tokens) - 1) // SEQ_LEN

        config = json.load(open(os.path.join(GOLDEN, case, "config.json"), encoding="utf-8"))
        config["vocab_size"] = side["vocab_size"]
        model_json = os.path.join(tmp, "model.json")
        with open(model_json, "w", encoding="utf-8") as f:
            json.dump(config, f)
        yaml = os.path.join(tmp, "run.yaml")
        write_run_config(yaml, model_json, data, valid, tok, n_windows)
        call([train, "run", "-c", yaml, "-o", run])
        rows = [json.loads(line) for line in call([train, "eval", "-c", yaml, "--from", run, "--json"]).splitlines()]
        row = next(r for r in rows if r.get("schema") == "moe.eval/1")

        directory = os.path.join(run, "latest")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
            output_loading_info=True)
        odd = {k: sorted(v)[:2] for k, v in info.items() if v}
        unless(not odd, f"loading reports {odd}")
        for name, t in model.state_dict().items():
            unless(t.dtype == torch.float32, f"{name} is {t.dtype} after loading")
        total, count = window_losses(model.eval(), tokens, eod)
        unless(row["tokens"] in (count, n_windows * SEQ_LEN), f"{row['tokens']} tokens evaluated, wanted {count} targets")
        want = total / count
        unless(abs(row["loss"] - want) <= 1e-5 * want, f"loss {row['loss']:.8f} against {want:.8f} of transformers")
    return check


CHECKS = [(f"{c}: transformers makes the golden files again", golden_model(c)) for c in CASES]
CHECKS += [("torch makes the golden optimizer steps again", golden_optim)]
CHECKS += [(f"{c}: our reader lists what save_pretrained wrote", reads_save_pretrained(c)) for c in CASES]
CHECKS += [(f"{c}: transformers opens what convert wrote, and the logits are equal", convert_is_opened(c)) for c in CASES]
CHECKS += [(f"{c}: convert reads what save_pretrained wrote, fused and per expert", convert_reads_save_pretrained(c)) for c in CASES]
CHECKS += [("mixtral in the words of qwen2_moe gives the same logits", convert_to_other_family)]
CHECKS += [("tokenizers makes the golden vocabulary and ids again", golden_tok),
           ("tokenizers gives our ids for 24 languages", same_ids(udhr)),
           ("tokenizers gives our ids for code", same_ids(tree_text)),
           ("tokenizers gives our ids for hostile text", same_ids(hostile_texts)),
           ("tokenizers trains our vocabulary", same_training)]
CHECKS += [(f"{c}: transformers opens our checkpoint and finds our loss", opens_our_checkpoint(c)) for c in CASES]


if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, sys.argv[1:]))
