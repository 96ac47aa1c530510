"""tok_cases.py -- small random tokenizer.json files with every kind of step, and hostile texts for them.

Promises: the same seed gives the same file and texts.  Refuses: files on which the package itself breaks (its byte
offsets go wrong under some Replace steps); the callers skip those.
"""
ALPHABET = list("aabbcdeSTt '.,!12٣Ⅳ\n\r\t -_/") + [
    "é", "e\u0301", "İ", "ß", "ſ", "中", "文", "\u200b", "\x85", "\u180e", "\u00a0", "ﬁ", "Å", "\u0327", "😀", "▁",
    "\u3000", "ക", "ി", "नम", "स्ते", "\x01", "ǆ", "ǅ", "ª", "々", "ひ", "<s>", "<tok>", "[X]", "  ", "hello", "don't"]

EXPRESSIONS = [
    r"\p{N}{1,3}", r"\s+", r"\p{N}{1,2}+", r"[a-c]+|\p{L}", r"\w+|[^\w\s]+", r"'s|'t|'re",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"\s+(?!\S)|\s+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"a$", r"^b", r" ?[^(\s|.,!?…]+", r"\p{Han}+", r"[^\s\p{Han}]+",
    r"x*", r"[\p{L}&&[^\p{Han}]]+", r"\S+\s*", r"[\S]", r"[\d\-_]+", r"(?:ab|a)*c?", r".", r"\s*[\r\n]+", r"(?<=a)b",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"]

BEHAVIORS = ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]


def byte_chars():
    """The ByteLevel alphabet: byte -> character."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in shown}
    hidden = [b for b in range(256) if b not in table]
    table.update({b: chr(256 + i) for i, b in enumerate(hidden)})
    return table


BYTES = byte_chars()


def text(rnd, n):
    return "".join(rnd.choice(ALPHABET) for _ in range(n))


def normalizer(rnd, depth=0):
    kind = rnd.choice(["NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "ReplaceRegex", "Strip", "Lowercase", "Sequence", None])
    if kind is None:
        return None if depth == 0 else {"type": "NFC"}
    if kind == "Prepend":
        return {"type": kind, "prepend": rnd.choice(["▁", "x", " "])}
    if kind == "Replace":
        return {"type": kind, "pattern": {"String": rnd.choice([" ", "a", "ab"])}, "content": rnd.choice(["▁", "", "bb"])}
    if kind == "ReplaceRegex":
        return {"type": "Replace", "pattern": {"Regex": rnd.choice(EXPRESSIONS)}, "content": rnd.choice(["▁", "", "b "])}
    if kind == "Strip":
        return {"type": kind, "strip_left": rnd.random() < .5, "strip_right": rnd.random() < .5}
    if kind == "Sequence":
        return {"type": kind, "normalizers": [normalizer(rnd, depth + 1) for _ in range(rnd.randrange(4))] if depth < 2 else []}
    return {"type": kind}


def pre_tokenizer(rnd, bytelevel, strict):
    steps = []
    for _ in range(rnd.randrange(3)):
        kind = rnd.choice(["Split", "Split", "Split", "SplitString", "Digits", "Metaspace"])
        if kind.startswith("Split"):
            pattern = {"Regex": rnd.choice(EXPRESSIONS)} if kind == "Split" else {"String": rnd.choice([" ", "a", "ab"])}
            steps.append({"type": "Split", "pattern": pattern, "behavior": rnd.choice(BEHAVIORS), "invert": rnd.random() < .3})
        elif kind == "Digits":
            steps.append({"type": kind, "individual_digits": rnd.random() < .5})
        else:
            scheme = rnd.choice(["always", "never"] if strict else ["always", "never", "first"])
            steps.append({"type": kind, "replacement": "▁", "prepend_scheme": scheme, "split": rnd.random() < .5})
    if bytelevel:
        steps.append({"type": "ByteLevel", "add_prefix_space": rnd.random() < .3, "trim_offsets": True, "use_regex": rnd.random() < .5})
    if not steps:
        return None
    return steps[0] if len(steps) == 1 and rnd.random() < .5 else {"type": "Sequence", "pretokenizers": steps}


def model(rnd, bytelevel):
    vocab, pairs = {}, []

    def add(t):
        if t not in vocab:
            vocab[t] = len(vocab)
    if bytelevel:
        for b in range(256):
            if rnd.random() < .98:
                add(BYTES[b])
    else:
        for c in sorted(set("".join(ALPHABET))):
            if rnd.random() < .8:
                add(c)
        if rnd.random() < .5:
            for b in range(256):
                if rnd.random() < .999:
                    add(f"<0x{b:02X}>")
        add("<unk>")
    add("<s>")
    for _ in range(150):
        w = text(rnd, 3)
        w = "".join(BYTES[b] for b in w.encode()) if bytelevel else w
        if len(w) < 2:
            continue
        k = rnd.randrange(1, len(w))
        for a, b in ((w[:k], w[k:]), (w[0], w[1])):
            if a in vocab and b in vocab and len(a + b) < 12 and not a.startswith("<") and not b.startswith("<"):
                add(a + b)
                if [a, b] not in pairs:
                    pairs.append([a, b])
                break
    if rnd.random() < .5:
        rnd.shuffle(pairs)
    legacy = rnd.random() < .5 and all(" " not in a + b for a, b in pairs)
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>" if "<unk>" in vocab and rnd.random() < .7 else None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": rnd.random() < .5,
            "byte_fallback": rnd.random() < .5, "ignore_merges": rnd.random() < .3, "vocab": vocab,
            "merges": [" ".join(p) for p in pairs] if legacy else pairs}


def added_tokens(rnd, vocab):
    out, free = [], max(vocab.values()) + 1
    for c in rnd.sample(["<s>", "<tok>", "[X]", "  ", "hello", "ab", "don", "é", "a b"], rnd.randrange(6)):
        if c not in vocab:
            free += 1
        out.append({"id": vocab.get(c, free - 1), "content": c, "single_word": rnd.random() < .3, "lstrip": rnd.random() < .3,
                    "rstrip": rnd.random() < .3, "normalized": rnd.random() < .5, "special": rnd.random() < .4})
    return sorted(out, key=lambda a: a["id"])


def tokenizer(rnd):
    bytelevel = rnd.random() < .6
    m = model(rnd, bytelevel)
    norm = normalizer(rnd)
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [m["vocab"]["<s>"]], "tokens": ["<s>"]}}}
    byte_step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    sp_decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                   {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(rnd, m["vocab"]), "normalizer": norm,
            "pre_tokenizer": pre_tokenizer(rnd, bytelevel, norm is not None), "post_processor": rnd.choice([None, byte_step, template]),
            "decoder": byte_step if bytelevel else sp_decoder, "model": m}
