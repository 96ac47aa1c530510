#!/usr/bin/env bats
# verify.bats -- moe-train verify: one model on every layout of ranks, and the
# mistakes that it must find (tests/mistake/mistake.c).

load train_lib

setup() {
	need_ranks
	cd "$BATS_TEST_TMPDIR"
	export OMP_NUM_THREADS=1
}

# The models: softmax and sigmoid routers, with and without shared experts.
family() {
	case $1 in
	softmax) echo 'model_type: qwen3_moe' ;;
	softmax+shared) echo 'model_type: qwen2_moe, shared_expert_intermediate_size: 24' ;;
	sigmoid+shared) echo 'model_type: glm4_moe, n_shared_experts: 1, partial_rotary_factor: 0.5, first_k_dense_replace: 0' ;;
	topk-softmax) echo 'model_type: mixtral' ;;
	sigmoid+dense) echo 'model_type: glm4_moe, n_shared_experts: 2, partial_rotary_factor: 1.0, first_k_dense_replace: 1, intermediate_size: 48' ;;
	groups) echo 'model_type: glm4_moe, n_shared_experts: 1, first_k_dense_replace: 0, n_group: 4, topk_group: 2' ;;
	esac
}

# model FAMILY TIED: m.yaml, with 4 micro-batches in a step.
model() {
	cat > m.yaml <<-Y
		model: {$(family "$1"), hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
		  head_dim: 8, vocab_size: 200, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 16, tie_word_embeddings: $2}
		data: {seq_len: 32}
		train: {steps: 9, tokens_per_step: 256, micro_tokens: 64, loss_chunk: 48}
		router: {aux_coef: 0.01, z_coef: 1e-3}
		optim: {clip_norm: 0.5, schedule: {kind: cosine, warmup: 2}}
	Y
}

verify() { moe-train verify -q -j 1 -c m.yaml --tsv "$@" < /dev/null; }

# all_ok: the table in $output has rows for every layout, and all of them are ok.
all_ok() {
	printf '%s\n' "$output" | awk -F '\t' -v want="$1" '
		/^#/ { next }
		$7 != "ok" { print; bad = 1 }
		$2 == "gradient" { n++ }
		END { exit bad || n != want }'
}

@test "every layout is the same model: routers, shared experts, tied embeddings, accumulation, recomputation" {
	# All eight combinations of the last three, each family with a pair that
	# has nothing in common.
	while read -r kind tied accumulate boundary; do
		model "$kind" "$tied"
		passes verify --synthetic train.tokens_per_step=$((256 * accumulate)) memory.boundary_every="$boundary"
		all_ok 4 || {
			echo "$kind, tied $tied, accumulation $accumulate, boundary_every $boundary"
			return 1
		}
	done <<-'T'
		softmax false 1 1
		softmax true 2 2
		softmax+shared false 1 2
		softmax+shared true 2 1
		topk-softmax false 2 1
		topk-softmax true 1 2
		sigmoid+shared true 1 1
		sigmoid+shared false 2 2
	T
}

@test "so it is with groups of experts, a dense layer, batch shares, many rounds, heads apart, split replicas, a bf16 wire" {
	model groups false
	passes verify --synthetic --layouts 1x1x1,1x1x2,1x1x4 router.aux_scope=batch mesh.rows_cap=8
	all_ok 2
	# Replicas that share the optimizer; gradients that travel in bf16.
	passes verify --synthetic --layouts 1x1x1,2x1x2,4x1x1 mesh.split_replicas=true
	all_ok 2
	passes verify --synthetic --layouts 1x1x1,1x2x2,2x1x2 mesh.grad_dtype=bf16
	all_ok 2
	model sigmoid+dense false
	passes verify --synthetic --layouts 1x1x1,2x2x1,1x4x1 --steps 3 optim.muon.split=head optim.muon.ns=polar_express
	all_ok 2
}

@test "any layout may be the first, and real data does as well as made-up tokens" {
	tiny_setup
	passes moe-train verify -q -j 1 -c tiny.yaml --tsv --layouts 2x1x2,1x1x1,1x2x1 train.micro_tokens=64 < /dev/null
	all_ok 2
}

@test "a planted mistake is found, in the row that names it" {
	[ -x "$MOE_BUILD/mistake/moe-train" ] || {
		echo "no $MOE_BUILD/mistake/moe-train: run make unit-build"
		return 1
	}
	model sigmoid+shared false
	while read -r mistake layouts row; do
		status=0
		MISTAKE=$mistake "$MOE_BUILD/mistake/moe-train" verify -q -j 1 -c m.yaml --tsv --synthetic --layouts "1x1x1,$layouts" \
			> rows 2> log < /dev/null || status=$?
		if [ "$mistake" = none ]; then
			[ $status -eq 0 ]
			continue
		fi
		if [ $status -ne 1 ] || [ -s log ] ||
			! awk -F '\t' -v row="$row" '$2 == row && $7 != "ok" && $7 != "verdict" { n++ } END { exit !n }' rows; then
			echo "$mistake: status $status, and row $row does not say so"
			cat rows log
			return 1
		fi
	done <<-'T'
		none 1x1x2
		expert-gradient 1x1x2 gradient
		norm 1x2x1 norm
		norm 1x1x2 norm
		bias 1x1x2 bias
		bias 2x1x1 bias
		aux 1x2x1 gradient
		choice 1x2x1 routing
		update 1x2x1 update
		moments 1x1x2 update
		replica 2x1x1 replicas
		start 1x2x1 start
	T
	MISTAKE=choice "$MOE_BUILD/mistake/moe-train" verify -q -j 1 -c m.yaml --synthetic --layouts 1x1x1,1x2x1 > rows < /dev/null || true
	grep -q 'routing differs without a tie' rows
}

@test "verify as JSON has one object a row, for every kind of row" {
	model sigmoid+shared false
	passes moe-train verify -q -j 1 -c m.yaml --json --synthetic --layouts 1x1x1,2x1x1 < /dev/null
	[ "$(printf '%s\n' "$output" | grep -c '^{"schema":"moe.verify/1","layout":"2x1x1","what":"[a-z]*",.*"verdict":"ok"')" -eq 9 ]
}

@test "layouts that cannot be are refused in one line" {
	model softmax false
	fails_with 2 verify --synthetic --layouts 1x1x1
	says 'nothing to be compared with'
	fails_with 2 verify --synthetic --layouts 1x1x1,1x1x3
	says 'experts'
	fails_with 2 verify --synthetic --layouts 1x1x1,1x3x1
	says 'tokens_per_step'
	fails_with 2 verify --synthetic --layouts 1x1x1,2x2
	says '--layouts'
	fails_with 2 verify --synthetic --ranks 2
	says 'needs 4 ranks, there are 2'
	fails_with 2 verify --layouts 1x1x1,1x2x1
	says 'layout 1x1x1: no token file to train on'
	fails_with 2 moe-train verify --synthetic -c - < m.yaml
	says 'standard input'
}
