#!/usr/bin/env bats
# shard.bats -- moe-shard: counts, plans and planned memory from a configuration.

load lib

setup() {
	cd "$ROOT" || return 1
	T=$BATS_TEST_TMPDIR
}

# field KEY LINE: a number of a JSON row.
field() { printf '%s\n' "$2" | sed -n "s/.*\"$1\":\\([0-9]*\\).*/\\1/p"; }

@test "the 952 B configuration counts to 951.857 B in all and 32.827 B active" {
	passes moe-shard count -c etc/europa-952b.yaml
	says '951.857 B parameters, 32.827 B active'
	passes moe-shard count -c etc/europa-952b.yaml --json
	local all
	all=$(printf '%s\n' "$output" | grep '"kind":"all"')
	[ "$(field total "$all")" = 951857342208 ]
	[ "$(field active "$all")" = 32826615552 ]
}

@test "its header says that the shape of the attention is one of several fits" {
	grep -q 'attention was not' etc/europa-952b.yaml
	grep -q 'one of several' etc/europa-952b.yaml
}

@test "the kinds of a count add up to its last row" {
	passes moe-shard count -c etc/small.yaml --tsv
	printf '%s\n' "$output" | awk -F '\t' '/^#/ { next } $1 == "all" { ok = n == $2 && t == $3 && a == $4 } { n += $2; t += $3; a += $4 } END { exit !ok }'
	passes moe-shard count -c etc/small.yaml model.num_experts=32
	says 384
}

@test "a plan of 86,000 tensors is made in 2 seconds and names each once" {
	passes bash -c 'time timeout 2 moe-shard plan -c etc/europa-952b.yaml -o '"$T/plan.tsv"
	[ "$(grep -vc '^#' "$T/plan.tsv")" = 86065 ]
	[ "$(grep -v '^#' "$T/plan.tsv" | cut -f 1 | sort -u | wc -l)" = 86065 ]
	[ "$(awk -F '\t' '!/^#/ { n += $6 * $7 } END { printf "%.0f", n }' "$T/plan.tsv")" = 951857342208 ]
}

@test "lines of a plan are what the formats say" {
	passes moe-shard plan -c etc/small.yaml model.vocab_size=8192 model.hidden_size=256 model.moe_intermediate_size=128
	[ "${lines[0]}" = '# moe-plan 1' ]
	[[ ${lines[1]} =~ ^'# config '[0-9a-f]{32}' mesh 1x1x1 world 1 plan '[0-9a-f]{32}$ ]]
	[ "${lines[2]}" = $'#name\tkind\tlayer\texpert\toptim\trows\tcols\tfirst_row\tn_rows\towner\tbytes\tstate_bytes\tns_flops' ]
	says $'model.layers.0.mlp.experts.3.up_proj.weight\texpert\t0\t3\tmuon\t128\t256\t0\t128\t0\t131072\t131072\t104857600'
	says $'model.embed_tokens.weight\tembed\t-\t-\tadamw\t8192\t256\t0\t8192\t0\t8388608\t16777216\t0'
	says $'model.layers.1.mlp.gate.e_score_correction_bias\trouter_bias\t1\t-\tnone\t16\t1\t0\t16\t0\t64\t0\t0'
}

@test "on 1,536 ranks rank r of a replica owns expert 96 (r mod 4) + r / 4 of every layer, and the plan takes under 2 seconds" {
	passes bash -c 'time timeout 2 moe-shard plan -c etc/europa-952b.yaml --ranks 1536 mesh.replicas=4 mesh.ep=4 -o '"$T/plan.tsv"
	grep -q 'mesh 4x96x4 world 1536' "$T/plan.tsv"
	[ "$(awk -F '\t' '!/^#/ { n += $9 * $7 } END { printf "%.0f", n }' "$T/plan.tsv")" = 951857342208 ]
	awk -F '\t' '$2 == "expert" { n++; if ($4 != 96 * ($10 % 4) + int($10 / 4)) { print; bad = 1 } } END { exit bad || n != 74 * 384 * 3 }' "$T/plan.tsv"
}

@test "the same plan again is up to date, another one needs -f" {
	passes moe-shard plan -c etc/small.yaml -o "$T/plan.tsv"
	passes moe-shard plan -c etc/small.yaml -o "$T/plan.tsv"
	says 'up to date'
	fails_with 73 moe-shard plan -c etc/small.yaml -o "$T/plan.tsv" model.num_experts=32
	passes moe-shard plan -c etc/small.yaml -o "$T/plan.tsv" -f model.num_experts=32
}

@test "what --print-config prints gives the same plan" {
	moe-shard count -c etc/small.yaml --print-config model.num_experts=8 > "$T/printed.yaml"
	grep -q 'num_experts: 8.*command line' "$T/printed.yaml"
	moe-shard plan -c "$T/printed.yaml" > "$T/a"
	moe-shard plan -c etc/small.yaml model.num_experts=8 > "$T/b"
	same "$T/a" "$T/b"
}

@test "every configuration of transformers that we read makes a plan and reads back when printed" {
	local d
	for d in tests/golden/*/config.json; do
		printf 'model: %s\ndata: {seq_len: 64}\n' "$ROOT/$d" > "$T/run.yaml"
		passes moe-shard plan -c "$T/run.yaml" -o "$T/a.tsv" -f
		moe-shard plan -c "$T/run.yaml" --print-config > "$T/printed.yaml"
		passes moe-shard plan -c "$T/printed.yaml" -o "$T/a.tsv"
		says 'up to date'
	done
}

@test "planned memory has no buffer that grows with the square of the length, and none above chunk x vocabulary" {
	passes moe-shard memory -c etc/europa-952b.yaml --buffers --tsv
	# Activations of a step: at most rows x width; logits: chunk x vocabulary x 4 bytes.
	printf '%s\n' "$output" | awk -F '\t' '
		/^#/ || $3 == "(run)" { next }
		$1 == "logits" && $4 > 1024 * 256000 * 4 { print "too large:", $0; bad = 1 }
		$4 >= 65536 * 65536 * 4 { print "grows with the square:", $0; bad = 1 }
		{ n++ }
		END { exit bad || n < 20 }'
}

@test "planned memory is the same every time, and keeping activations needs more" {
	passes moe-shard memory -c etc/small.yaml --tsv
	local once=$output again kept
	passes moe-shard memory -c etc/small.yaml --tsv
	[ "$output" = "$once" ]
	again=$(printf '%s\n' "$output" | awk -F '\t' '$1 == "reserved" { print $2 }')
	passes moe-shard memory -c etc/small.yaml --tsv memory.boundary_every=0
	kept=$(printf '%s\n' "$output" | awk -F '\t' '$1 == "reserved" { print $2 }')
	[ "$kept" -gt "$again" ]
}

@test "bad input is one line with its place and the right status" {
	fails_with 2 moe-shard count
	fails_with 66 moe-shard count -c "$T/absent.yaml"
	fails_with 2 moe-shard count -c etc/small.yaml --json --tsv
	fails_with 2 moe-shard count -c etc/small.yaml model.head_dim=63
	says 'model.partial_rotary_factor'
	fails_with 2 moe-shard count -c etc/small.yaml model.num_exprts=4
	says 'num_experts'
	fails_with 2 moe-shard plan -c etc/small.yaml mesh.ep=3
	says '16 experts cannot be divided among 3'
	fails_with 2 moe-shard plan -c etc/small.yaml --ranks 6 mesh.ep=4
	says '6 ranks are no multiple of replicas 1 x ep 4'
	fails_with 69 moe-shard memory -c etc/small.yaml -d gpu
	printf 'model: absent.json\ndata: {seq_len: 64}\n' > "$T/run.yaml"
	fails_with 66 moe-shard count -c "$T/run.yaml"
	printf '{"model_type": "llama"}' > "$T/c.json"
	printf 'model: c.json\ndata: {seq_len: 64}\n' > "$T/run.yaml"
	fails_with 2 moe-shard count -c "$T/run.yaml"
	says 'c.json: model_type: "llama" is not one of'
}

@test "values that a later stage brings are planned with, but refused with 2 and named where something is to be computed" {
	local kv
	for kv in mesh.seqs_per_gather=2 mesh.gather_dtype=fp8 mesh.replicas=2 mesh.efsdp=2 mesh.ep=2 mesh.split_replicas=true \
		mesh.grad_dtype=bf16 memory.state_home=host checkpoint.async=true train.compute_dtype=bf16; do
		passes moe-shard count -c etc/small.yaml $kv
		fails_with 2 moe-train -c etc/small.yaml --dry-run tokenizer= $kv
		says "${kv%=*}: "
		[ ! -e "$T/run" ]
		fails_with 2 moe-train -c etc/small.yaml -o "$T/run" tokenizer= $kv
		[ ! -e "$T/run" ]
	done
	passes moe-shard count -c etc/small.yaml train.compute_dtype=auto --print-config
	[[ $output == *compute_dtype:*fp32* ]]
}

@test "sizes that do not fit each other are refused with 2 and named" {
	fails_with 2 moe-shard count -c etc/small.yaml train.micro_tokens=1000 train.tokens_per_step=4000
	says 'train.micro_tokens: 1000 is not a multiple of data.seq_len 256'
	fails_with 2 moe-shard count -c etc/small.yaml train.micro_tokens=4096 train.tokens_per_step=5000
	says 'train.tokens_per_step: 5000 is not a multiple of train.micro_tokens 4096'
	fails_with 2 moe-shard count -c etc/small.yaml memory.boundary_every=9
	fails_with 2 moe-shard count -c etc/small.yaml optim.schedule.warmup=1300
}

@test "several faults of a model are told together, one a line" {
	run --separate-stderr moe-shard count -c etc/small.yaml model.scoring_func=softmax model.n_group=3
	[ "$status" -eq 2 ]
	says 'model.scoring_func: the router of glm4_moe is sigmoid'
	says 'model.n_group: 16 experts are no multiple of 3'
}

@test "the manual page has the options of the tables, both ways" {
	moe-shard --print-options | awk -F '\t' '!/^#/ && $3 != "" { print "-" $3 }' | sort -u > "$T/tables"
	sed -n 's/^\.It .*Fl -\([a-z-]*\).*/-\1/p' man/moe-shard.1 | sort -u > "$T/page"
	same "$T/tables" "$T/page"
}

@test "the examples of the manual page run" {
	mandoc -T ascii -O width=200 man/moe-shard.1 | col -bx | sed -n '/^EXAMPLES/,/^SEE ALSO/p' | grep -E '^ {10,}' |
		sed 's/^ *//' > "$T/examples.sh"
	[ "$(grep -c moe-shard "$T/examples.sh")" = 5 ]
	passes sh -e "$T/examples.sh"
}

@test "moe-train reserves what moe-shard says" {
	passes moe-train -c etc/small.yaml --dry-run --tsv tokenizer=
	local run=$output
	passes moe-shard memory -c etc/small.yaml --tsv
	[ "$output" = "$run" ]
}
