# demo.awk -- the summary of etc/demo, from the files that its steps made.
#
# Reads count.tsv, the sidecars of the token files, the tables of the
# yardsticks, eval.tsv and metrics.jsonl.  It prints nothing that does not
# stand in one of them, and ends with 1 when the model does not beat both
# yardsticks over all languages (with short set: always 0).
BEGIN { FS = "\t" }
FNR == 1 { file = FILENAME; sub(/.*\//, "", file) }

# Value of a key of the JSON object in $0, "" without it.
function get(key,    v) {
	if (!match($0, "\"" key "\":[^,}]*")) return ""
	v = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
	gsub(/"/, "", v)
	return v
}
function base(path) { sub(/.*\//, "", path); return path }
function lang_of(path) { path = base(path); sub(/^held\./, "", path); sub(/\.(txt|bin)$/, "", path); return path }

# 1234567 -> 1,234,567
function commas(n,    s) {
	for (n = sprintf("%.0f", n); length(n) > 3; n = substr(n, 1, length(n) - 3)) s = "," substr(n, length(n) - 2) s
	return n s
}
function mega(n) { return sprintf("%.1f", n / 1e6) }

file == "count.tsv" && $1 == "all" { params = $3; active = $4 }
file == "train.json" { train_tokens = get("tokens"); train_bytes = get("text_bytes"); vocab = get("vocab_size") }
file == "held.json" { held_tokens = get("tokens"); held_bytes = get("text_bytes") }
file == "bytes.tsv" && !/^#/ { bytes_bpb[lang_of($1), $2] = $6 }
file == "tokens.tsv" && !/^#/ { token_bpb[lang_of($1)] = $6 }
# Columns are found by name: others may join them.
file == "eval.tsv" && FNR == 1 { for (i = 1; i <= NF; i++) { name = $i; sub(/^#/, "", name); col[name] = i }; next }
file == "eval.tsv" {
	bpb = $(col["bits_per_byte"]) + 0
	bits = $(col["loss"]) * $(col["tokens"]) / log(2)
	model_bpb[$(col["set"])] = bpb
	sets[++n_sets] = $(col["set"])
	all_bits += bits
	if (bpb > 0) all_bytes += bits / bpb
}
# A repeated step stands again after a restart: the last one counts.
file == "metrics.jsonl" && get("schema") == "moe.metrics/1" {
	step = get("step") + 0
	if (!(step in loss)) order[++n_steps] = step
	loss[step] = get("loss")
	step_s[step] = get("step_s")
	flops[step] = get("flops")
	mfu[step] = get("mfu")
	new[step] = get("tokens")
	used = get("mem_used")
	rss = get("rss")
}

# Losses, averaged into at most width bars of eight heights.
function sparkline(width,    glyph, n, i, k, b, sum, cnt, mean, lo, hi, s) {
	n = split(utf8 ? "▁ ▂ ▃ ▄ ▅ ▆ ▇ █" : "_ . - ~ = + * #", glyph, " ")
	if (n_steps < width) width = n_steps
	for (i = 1; i <= n_steps; i++) {
		b = int((i - 1) * width / n_steps) + 1
		sum[b] += loss[order[i]]
		cnt[b]++
	}
	for (b = 1; b <= width; b++) {
		mean[b] = sum[b] / cnt[b]
		if (b == 1 || mean[b] < lo) lo = mean[b]
		if (b == 1 || mean[b] > hi) hi = mean[b]
	}
	for (b = 1; b <= width; b++) {
		k = hi > lo ? int((mean[b] - lo) / (hi - lo) * 7.999) + 1 : 1
		s = s glyph[k]
	}
	return sprintf("%.2f %s %.2f", mean[1], s, mean[width])
}
function row(name, what, model,    l, i) {
	printf "  %-8s %9s %9s %9s %9s\n", name, number(bytes_bpb[what, 2]), number(bytes_bpb[what, 3]), number(token_bpb[what]), number(model)
}
function number(x) { return x == "" ? "-" : sprintf("%.3f", x) }
function head(s) { printf "\n%s%s%s\n", bold, s, plain }

END {
	n_langs = split(langs, l, " ")
	for (i = 1; i <= n_steps; i++) {
		time += step_s[order[i]]
		work += flops[order[i]]
		if (mfu[order[i]] > 0) peak = flops[order[i]] / step_s[order[i]] / mfu[order[i]]
	}
	last = order[n_steps]
	tokens = new[last]

	head("What was made")
	printf "  %-22s %s\n", D "/text", "text of " n_langs " language" (n_langs > 1 ? "s" : "") ": " mega(train_bytes) " MB to train on, " sprintf("%.2f", held_bytes / 1e6) " MB held out"
	printf "  %-22s %s\n", D "/tok.json", "byte-level BPE, " commas(vocab) " tokens, " sprintf("%.2f", train_bytes / train_tokens) " bytes a token"
	printf "  %-22s %s\n", D "/data", commas(train_tokens) " tokens to train on, " commas(held_tokens) " held out"
	printf "  %-22s %s\n", D "/run/latest", "the model at step " last ": " mega(params) " M parameters, " mega(active) " M active for a token"
	printf "  %-22s %s\n", "", "a directory that Hugging Face transformers opens as it is"

	head("How it went")
	if (time > 0) {
		printf "  speed    %s tokens/s, %.0f GFLOP/s", commas(tokens / time), work / time / 1e9
		if (peak > 0) printf ", %.0f %% of the %.0f GFLOP/s measured for matrix products here", 100 * work / time / peak, peak / 1e9
		printf "\n  training %s tokens in %.0f s (%.2f passes over the text), %.0f MB of memory\n", commas(tokens), time, tokens / train_tokens, rss / 1e6
	}
	if (n_steps) printf "  loss     %s\n", sparkline(48)

	head("Held-out text, bits per byte (less is better)")
	printf "  %-8s %9s %9s %9s %9s\n", "", "2 bytes", "3 bytes", "1 token", "model"
	for (i = 1; i <= n_sets; i++) row(sets[i], sets[i], model_bpb[sets[i]])
	all = all_bytes > 0 ? all_bits / all_bytes : ""
	row("all", "all", all)
	printf "  The first three count n-grams, Witten-Bell, with so much context. The model saw\n"
	printf "  %.0f %% of the held-out bytes: whole windows, and no first token of a page.\n", 100 * all_bytes / held_bytes

	head("Try next")
	printf "  PATH=$PWD/bin:$PATH\n"
	printf "  printf %%s \"Your words\" | moe-tokenize encode -t %s/tok.json | moe-train sample --from %s/run | moe-tokenize decode -t %s/tok.json\n", D, D, D
	printf "  moe-ckpt info %s/run\n", D
	printf "  TEXT=your/texts DEMO=%s2 sh etc/demo\n", D

	won = all != "" && all < bytes_bpb["all", 3] + 0 && all < token_bpb["all"] + 0
	if (short) {
		printf "\nDone in %d s. A short run trains too little to be held to the yardsticks.\n", seconds
		exit 0
	}
	if (won) {
		printf "\nDone in %d s: the model beats three bytes of context by %.0f %% and one token of context by %.0f %%.\n", seconds,
			100 * (1 - all / bytes_bpb["all", 3]), 100 * (1 - all / token_bpb["all"])
		exit 0
	}
	printf "\nDone in %d s, but the model does not beat both yardsticks on held-out text.\n", seconds
	exit 1
}
