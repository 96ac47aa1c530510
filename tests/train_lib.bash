# train_lib.bash -- a tiny model, its text and its configuration, for the bats
# files of the trainer:  load train_lib
#
# Small enough that a step takes milliseconds; large enough to have what a real
# run has: several documents in a window, epochs that end, a selection bias, a
# clipped gradient.
# shellcheck shell=bash

load lib

tiny_text() {
	local i
	for i in $(seq 1 "${1:-40}"); do
		printf 'Seite %d: Es war die beste Zeit, es war die schlimmste Zeit.\n\n' "$i"
		printf 'Page %d: it was the best of times, it was the worst of times, it was the age of wisdom.\n\n' "$i"
		printf "Page %d : c'était le meilleur des temps, le pire des temps.\n\n" "$i"
	done
}

# tiny_setup: text, tok.json, train.{bin,idx,json}, valid.*, tiny.yaml here.
tiny_setup() {
	tiny_text 14 > text
	tiny_text 4 > held
	moe-tokenize train -q --vocab-size 320 -o tok.json text
	moe-tokenize encode -q -t tok.json --docs blank -o train text
	moe-tokenize encode -q -t tok.json --docs blank -o valid held
	cat > tiny.yaml <<-'Y'
		model: {model_type: glm4_moe, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2,
		  head_dim: 8, vocab_size: 320, num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 16, n_shared_experts: 1,
		  first_k_dense_replace: 1, intermediate_size: 48, use_qk_norm: true, partial_rotary_factor: 1.0}
		tokenizer: tok.json
		data: {train: [{path: train}], valid: [{name: held, path: valid}], seq_len: 32}
		train: {steps: 9, tokens_per_step: 256, micro_tokens: 128, loss_chunk: 48}
		router: {aux_coef: 0.01, aux_scope: batch, z_coef: 1e-3}
		optim: {clip_norm: 0.5, schedule: {kind: cosine, warmup: 2}}
		checkpoint: {every: 3, keep: 0}
		eval: {every: 4, batches: 2}
	Y
}

# train RUN [ARG...]: the tiny run, quiet, on one thread.
train() {
	local run=$1
	shift
	moe-train run -q -j 1 --peak 100 -c tiny.yaml -o "$run" "$@"
}

# same_state RUN RUN [STEP]: every byte of tensors and indexes of a step.
same_state() {
	local step f
	step=ckpt/step-$(printf %08d "${3:-9}")
	for f in model-00001-of-00001.safetensors optim/optim-00001-of-00001.safetensors config.json tokenizer.json; do
		cmp "$1/$step/$f" "$2/$step/$f" || return 1
	done
}

# losses RUN: step and loss of every row, without what the clock decides.
losses() { sed -n 's/.*"moe.metrics\/1","step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
	local n=$(($1 * 20))
	shift
	until "$@"; do
		n=$((n - 1))
		[ $n -gt 0 ] || return 1
		sleep 0.05
	done
}

# same_tensors DIR DIR: every file of tensors of two checkpoints, of which neither
# or both have optimizer state.
same_tensors() {
	local f
	[ "$(cd "$1" && echo optim*)" = "$(cd "$2" && echo optim*)" ] || return 1
	for f in "$1"/*.safetensors "$1"/optim/*.safetensors; do
		[ -e "$f" ] || [ ! -e "$1/optim" ] || return 1
		[ -e "$f" ] || continue
		cmp "$f" "$2/${f#"$1"/}" || return 1
	done
}
