#!/usr/bin/env bats
# shard.bats -- moe-shard: counts, plans and planned memory from a configuration.

load lib

setup() {
	cd "$ROOT" || return 1
	T=$BATS_TEST_TMPDIR
}

# field KEY LINE: a number of a JSON row.
# One rank of the large configuration, as this trainer computes.
ALONE='mesh.replicas=1 mesh.efsdp=1 mesh.ep=1 mesh.rows_cap=auto mesh.grad_dtype=fp32 train.compute_dtype=fp32 memory.boundary_home=device memory.state_home=device'

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
	passes timeout 2 moe-shard plan -c etc/europa-952b.yaml -o "$T/plan.tsv" $ALONE
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
	passes timeout 2 moe-shard plan -c etc/europa-952b.yaml --ranks 1536 -o "$T/plan.tsv"
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
	passes moe-shard memory -c etc/europa-952b.yaml --buffers --tsv $ALONE
	# Activations of a step: at most rows x width; logits: chunk x vocabulary x 4 bytes.
	printf '%s\n' "$output" | awk -F '\t' '
		/^#/ || $3 == "(run)" { next }
		$1 == "logits" && $4 > 1024 * 256000 * 4 { print "too large:", $0; bad = 1 }
		$4 >= 65536 * 65536 * 4 { print "grows with the square:", $0; bad = 1 }
		{ n++ }
		END { exit bad || n < 20 }'
}

@test "planned memory is the same every time, and keeping activations needs more" {
	passes moe-shard memory -c etc/small.yaml --tsv memory.boundary_every=1
	local once=$output again kept
	passes moe-shard memory -c etc/small.yaml --tsv memory.boundary_every=1
	[ "$output" = "$once" ]
	again=$(printf '%s\n' "$output" | awk -F '\t' '$1 == "reserved" { print $2 }')
	passes moe-shard memory -c etc/small.yaml --tsv memory.boundary_every=0
	kept=$(printf '%s\n' "$output" | awk -F '\t' '$1 == "reserved" { print $2 }')
	[ "$kept" -gt "$again" ]
}

# classes ARGS...: "class bytes" of a memory table; the most of the ranks.
classes() {
	moe-shard memory --tsv "$@" | awk -F '\t' '/^#/ { for (i = 1; i <= NF; i++) if ($i == "max" || $i == "bytes") col = i; next }
		{ print $1 == "reserved" ? "all" : $1, $col }' | sort
}

@test "the formulas for many ranks give for one rank what its trace gives" {
	local c
	while read -r c; do
		# shellcheck disable=SC2086
		classes -c $c > "$T/trace"
		# shellcheck disable=SC2086
		classes -c $c --estimate | awk '!seen[$1]++ || $2 > 0' | grep -v ' 0$' > "$T/formula"
		join "$T/trace" "$T/formula" | awk -v c="$c" '
			{ n++; d = $2 > $3 ? $2 - $3 : $3 - $2 }
			$1 ~ /^(act|rows|logits|boundary|batch)$/ && d > 1024 { print c ": " $0; bad = 1 }
			$1 ~ /^(master|state|grad|routing|table)$/ && d > 4096 && d > $2 / 1000 { print c ": " $0; bad = 1 }
			$1 == "ws" { ws2 = $2; ws3 = $3 }
			$1 == "all" { all2 = $2; all3 = $3 }
			END {
				# Scratch is the own affair of a device.
				off = (all2 - ws2) / (all3 - ws3) - 1
				if (off < -0.001 || off > 0.02) { print c ": all without ws is off by", off; bad = 1 }
				exit bad || n < 11
			}'
	done <<- EOF
		etc/small.yaml
		etc/small.yaml memory.boundary_every=1
		etc/small.yaml memory.boundary_every=2 model.tie_word_embeddings=true
		etc/small.yaml model.first_k_dense_replace=1 model.intermediate_size=300
		etc/small.yaml model.first_k_dense_replace=2 model.intermediate_size=1500 memory.boundary_every=0
		etc/small.yaml model.n_shared_experts=3 model.use_qk_norm=none train.loss_chunk=500
		etc/europa-952b.yaml $ALONE
	EOF
}

@test "the 952 B run on 1,536 ranks fits 94 GiB of device and 111 GiB of host memory a rank, in the printed table" {
	passes moe-shard memory -c etc/europa-952b.yaml --ranks 1536 --tsv
	printf '%s\n' "$output" | awk -F '\t' '
		$1 == "boundary" { host = $2 == "host" && $5 == 55.5 * 1073741824 }
		$1 ~ /^(master|state|grad)$/ { state += $4 / 1073741824 }
		$1 == "all" && $2 == "device" { fits = $5 + 3 * 1073741824 < 94 * 1073741824 }
		$1 == "all" && $2 == "host" { fits_host = $5 < 111 * 1073741824 }
		END { exit !(host && fits && fits_host && state > 27.65 && state < 27.8) }'
	passes moe-shard memory -c etc/europa-952b.yaml
	says 'mesh 4x96x4 (1,536 ranks): BF16'
}

@test "memory of one rank lies between the least and the most of all" {
	local all one
	all=$(moe-shard memory -c etc/small.yaml --ranks 6 mesh.ep=2 --json | grep '"all","home":"device"')
	one=$(moe-shard memory -c etc/small.yaml --ranks 6 mesh.ep=2 --rank 5 --json | grep '"all","home":"device"')
	[ "$(field min "$one")" = "$(field max "$one")" ]
	[ "$(field min "$all")" -le "$(field max "$one")" ]
	[ "$(field max "$all")" -ge "$(field max "$one")" ]
	fails_with 2 moe-shard memory -c etc/small.yaml --ranks 6 mesh.ep=2 --rank 6
	says 'there are 6 ranks'
	fails_with 2 moe-shard memory -c etc/small.yaml --ranks 2 --buffers
}

@test "memory refuses what its formulas do not know" {
	fails_with 2 moe-shard memory -c etc/small.yaml --ranks 2 mesh.seqs_per_gather=2
	says 'mesh.seqs_per_gather: memory is known for 1 only'
	fails_with 2 moe-shard memory -c etc/small.yaml --ranks 2 mesh.gather_dtype=fp8
	fails_with 2 moe-shard fit -c etc/small.yaml --ranks 2 mesh.gather_dtype=fp32 --dtype bf16
	passes moe-shard memory -c etc/small.yaml --ranks 2 mesh.gather_dtype=bf16 --dtype bf16
}

@test "what the ranks of show own adds up to the model once in every replica" {
	passes moe-shard show -c etc/small.yaml --ranks 12 mesh.replicas=2 mesh.ep=2 --tsv
	printf '%s\n' "$output" | awk -F '\t' '!/^#/ { n++; b[$2] += $6 } END { exit !(n == 12 && b[0] == b[1]) }'
	local total parts
	total=$(moe-shard count -c etc/small.yaml --tsv | awk -F '\t' '$1 == "all" { print $3 * 4 }')
	[ "$(printf '%s\n' "$output" | awk -F '\t' '!/^#/ && $2 == 1 { b += $6 } END { printf "%.0f", b }')" = "$total" ]
	parts=$(printf '%s\n' "$output" | awk -F '\t' '$1 == 7 { print $5 }')
	passes moe-shard show -c etc/small.yaml --ranks 12 mesh.replicas=2 mesh.ep=2 --tsv --rank 7
	[ "$(printf '%s\n' "$output" | grep -vc '^#')" = "$parts" ]
}

@test "show finds the ranks of a tensor" {
	passes moe-shard show -c etc/small.yaml --ranks 8 mesh.replicas=2 mesh.ep=2 --tensor model.layers.2.mlp.experts.9.up_proj.weight --tsv
	# Experts 8 to 15 live in EP rank 1; the second of them on efsdp rank 1, in both replicas.
	[ "$(printf '%s\n' "$output" | grep -v '^#' | cut -f 3-7 | tr '\t\n' ' /')" = '0 3 3 1 1/1 7 3 1 1/' ]
	fails_with 2 moe-shard show -c etc/small.yaml --tensor lm_head
	fails_with 2 moe-shard show -c etc/small.yaml --tensor lm_head.weight --rank 0
	fails_with 2 moe-shard show -c etc/small.yaml --ranks 4 --rank 4
}

@test "check proves a plan whole, says how even it is, and refuses a damaged one" {
	passes moe-shard check -c etc/europa-952b.yaml --ranks 1536
	says 'each of 86,065 tensors has one owner in every replica'
	passes moe-shard check -c etc/europa-952b.yaml --ranks 1536 --limit 1.05 --tsv
	run --separate-stderr moe-shard check -c etc/small.yaml --ranks 7 --limit 1.0001
	[ "$status" -eq 1 ]
	says 'times the mean'
	moe-shard plan -c etc/small.yaml --ranks 4 mesh.ep=2 > "$T/plan.tsv"
	passes moe-shard check -c etc/small.yaml mesh.ep=2 --plan "$T/plan.tsv"
	passes sh -c "moe-shard check -c etc/small.yaml mesh.ep=2 --plan - < $T/plan.tsv"
	sed '40s/\t\([0-3]\)\t\([0-9]*\)\t\([0-9]*\)\t\([0-9]*\)$/\t4\t\2\t\3\t\4/' "$T/plan.tsv" > "$T/bad.tsv"
	run ! cmp -s "$T/plan.tsv" "$T/bad.tsv"
	fails_with 65 moe-shard check -c etc/small.yaml mesh.ep=2 --plan "$T/bad.tsv"
	says 'their hash differs'
	sed 40d "$T/plan.tsv" > "$T/bad.tsv"
	fails_with 65 moe-shard check -c etc/small.yaml mesh.ep=2 --plan "$T/bad.tsv"
	fails_with 2 moe-shard check -c etc/small.yaml mesh.ep=4 --plan "$T/plan.tsv"
	says 'made for another configuration'
	fails_with 2 moe-shard check -c etc/small.yaml mesh.ep=2 --ranks 4 --plan "$T/plan.tsv"
	fails_with 66 moe-shard check -c etc/small.yaml --plan "$T/absent.tsv"
}

@test "diff of a plan with itself is empty and 0, with another it names the rows that move and is 1" {
	local v=model.vocab_size=8192
	moe-shard plan -c etc/small.yaml --ranks 4 $v > "$T/a.tsv"
	moe-shard plan -c etc/small.yaml --ranks 2 mesh.ep=2 $v > "$T/b.tsv"
	passes moe-shard diff -c etc/small.yaml --tsv $v "$T/a.tsv" "$T/a.tsv"
	[ "${#lines[@]}" -eq 1 ]
	passes moe-shard diff -c etc/small.yaml --ranks 4 $v "$T/a.tsv"
	run --separate-stderr moe-shard diff -c etc/small.yaml --tsv $v "$T/a.tsv" "$T/b.tsv"
	[ "$status" -eq 1 ]
	[ -z "$stderr" ]
	# Rows of the head: 32 of a's 128 blocks per rank, 64 of b's.
	[ "$(printf '%s\n' "$output" | awk -F '\t' '$1 == "lm_head.weight" { printf "%s+%s:%s-%s ", $2, $3, $4, $5 }')" = '2048+2048:1-0 4096+2048:2-1 6144+2048:3-1 ' ]
	fails_with 2 moe-shard diff -c etc/small.yaml
	fails_with 65 moe-shard diff -c etc/small.yaml etc/small.yaml
}

@test "fit lists layouts within the memories, fastest first, with that of the reference run among them" {
	passes moe-shard fit -c etc/europa-952b.yaml --ranks 1536 --top 0 --tsv
	printf '%s\n' "$output" | awk -F '\t' '/^#/ { next }
		$7 > 94 * 1073741824 || $8 > 111 * 1073741824 { print "too large:", $0; bad = 1 }
		NR > 2 && $11 > last { print "not sorted:", $0; bad = 1 }
		{ last = $11; split($1, m, "x"); if (m[1] * m[2] * m[3] != 1536 || 4 % m[3]) bad = 1 }
		$1 == "4x96x4" && $2 == 1 { found = 1 }
		END { exit bad || !found }'
	# What it chose is what memory says of that layout.
	local row
	row=$(printf '%s\n' "$output" | awk -F '\t' '$1 == "4x96x4" && $2 == 1')
	[ "$(moe-shard memory -c etc/europa-952b.yaml --tsv memory.boundary_home="$(printf %s "$row" | cut -f 3)" \
		memory.state_home="$(printf %s "$row" | cut -f 4)" mesh.rows_cap="$(printf %s "$row" | cut -f 5)" \
		train.loss_chunk="$(printf %s "$row" | cut -f 6)" | awk -F '\t' '$1 == "all" && $2 == "device" { printf "%.0f", $5 + 3 * 1073741824 }')" = \
		"$(printf %s "$row" | cut -f 7)" ]
	run --separate-stderr moe-shard fit -c etc/europa-952b.yaml --ranks 32
	[ "$status" -eq 1 ]
	says 'nothing fits: host and device memory of 32 ranks'
	run --separate-stderr moe-shard fit -c etc/europa-952b.yaml --ranks 1536 --device-memory 20Gi
	[ "$status" -eq 1 ]
	says 'nothing fits: the leanest layout needs'
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
	for kv in mesh.seqs_per_gather=2 mesh.gather_dtype=fp8 \
		memory.state_home=host memory.boundary_home=host train.compute_dtype=bf16; do
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
	[ "$(grep -c moe-shard "$T/examples.sh")" -ge 12 ]
	(cd "$T" && ln -s "$ROOT/etc" etc)
	cd "$T"
	passes sh -e "$T/examples.sh"
}

@test "moe-train reserves what moe-shard says" {
	passes moe-train -c etc/small.yaml --dry-run --tsv tokenizer=
	local run=$output
	passes moe-shard memory -c etc/small.yaml --tsv
	[ "$output" = "$run" ]
}
