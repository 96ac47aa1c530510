#!/usr/bin/env bats
# ranks.bats -- one model on several ranks: the same losses, the same files,
# one end for all.

load train_lib

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	train one checkpoint.every=3
}

setup() {
	need_ranks
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*} .
	ONE=$BATS_FILE_TMPDIR/data/one
}

# ranks N RUN [ARG...]: the tiny run on N ranks.
ranks() {
	local n=$1 run=$2
	shift 2
	moe-train run --ranks "$n" -q -j 1 --peak 100 -c tiny.yaml -o "$run" "$@" < /dev/null
}

# near FILE FILE: rows of numbers that agree to 2e-7 (fp32 sums in another order).
near() {
	paste -d ' ' "$1" "$2" | awk '{
		n = NF / 2
		for (i = 1; i <= n; i++) {
			d = $i - $(n + i); if (d < 0) d = -d
			m = $i < 0 ? -$i : $i
			if (d > 2e-7 * (m + 1)) { print "differ: " $0; bad = 1 }
		}
	} END { exit bad || NR == 0 }'
}

@test "two ranks give the losses of one, whichever way they share the model" {
	losses "$ONE" > want
	for mesh in mesh.efsdp=2 mesh.ep=2 mesh.replicas=2; do
		passes ranks 2 run-$mesh $mesh
		losses run-$mesh > got
		near got want
		passes moe-ckpt verify run-$mesh
	done
}

@test "four ranks, rounds and recomputation change nothing either" {
	losses "$ONE" > want
	passes ranks 4 a mesh.efsdp=2 mesh.ep=2 train.micro_tokens=64
	passes ranks 4 b mesh.replicas=2 mesh.ep=2 train.micro_tokens=64 mesh.rows_cap=12 memory.boundary_every=2
	for r in a b; do
		losses $r > got
		near got want
	done
}

@test "rows tell of all ranks: biases that live elsewhere, rounds, time spent waiting" {
	passes ranks 4 run mesh.replicas=2 mesh.ep=2 train.micro_tokens=64 mesh.rows_cap=12
	sed -n 's/.*"load_max_mean":\(.*\),"rounds".*/\1/p' "$ONE/metrics.jsonl" > want
	sed -n 's/.*"load_max_mean":\(.*\),"rounds".*/\1/p' run/metrics.jsonl > got
	diff want got
	grep -q '"bias_range":\[0.00' run/metrics.jsonl
	# 128 rows of 64 tokens at 6 of each pair in a round.
	grep -Eq '"rounds":\[(1[1-9]|2[0-9]),' run/metrics.jsonl
	grep -q '"rounds":\[1,1\]' "$ONE/metrics.jsonl"
	grep -q '"comm_s":0,' "$ONE/metrics.jsonl"
	! grep -q '"comm_s":0,' run/metrics.jsonl
}

@test "evaluation is exact where sequences do not divide by the ranks" {
	passes train one eval.batches=0 train.steps=3
	passes ranks 3 three eval.batches=0 train.steps=3 mesh.efsdp=3 train.micro_tokens=32 train.tokens_per_step=288
	passes train alone eval.batches=0 train.steps=3 train.micro_tokens=32 train.tokens_per_step=288
	for r in three alone; do
		sed -n 's/.*"moe.eval\/1".*"tokens":\([0-9]*\),"loss":\([^,]*\),.*"bits_per_byte":\([^,}]*\).*/\1 \2 \3/p' $r/metrics.jsonl > $r.eval
	done
	near three.eval alone.eval
	[ "$(cut -d ' ' -f 1 three.eval)" = "$(cut -d ' ' -f 1 alone.eval)" ]
}

@test "replicas that share the optimizer's work make the same weights, bit for bit" {
	passes ranks 4 whole mesh.replicas=2 mesh.ep=2 train.micro_tokens=64
	passes ranks 4 split mesh.replicas=2 mesh.ep=2 train.micro_tokens=64 mesh.split_replicas=true
	losses whole > want
	losses split > got
	diff want got
	passes moe-ckpt verify split
	passes moe-ckpt diff whole/latest split/latest
	# Its state is spread over both replicas, and loads elsewhere.
	ln -sfn ckpt/step-00000006 split/latest
	rm -r split/ckpt/step-00000009
	passes ranks 4 split mesh.replicas=2 mesh.ep=2 train.micro_tokens=64 mesh.split_replicas=true
	passes moe-ckpt diff whole/latest split/latest
	passes ranks 2 other mesh.replicas=2 mesh.split_replicas=true
	passes ranks 2 same mesh.replicas=2
	passes moe-ckpt diff other/latest same/latest
}

@test "gradients that travel in bf16 are rounded once: the norm moves by less than 2^-8, the first loss not at all" {
	passes ranks 2 run mesh.efsdp=2 mesh.grad_dtype=bf16
	losses "$ONE" | head -n 1 > want
	losses run | head -n 1 > got
	paste -d ' ' want got | awk '{
		d = ($3 - $6) / $3; if (d < 0) d = -d
		l = $2 - $5; if (l < 0) l = -l
		print; exit l > 2e-7 * $2 || d == 0 || d > 1 / 256
	}'
	cp -r run again
	rm -r again/ckpt/step-00000006 again/ckpt/step-00000009
	ln -sfn ckpt/step-00000003 again/latest
	passes ranks 2 again mesh.efsdp=2 mesh.grad_dtype=bf16
	same_tensors run/ckpt/step-00000009 again/ckpt/step-00000009
}

# resave N FROM TO ARG...: loads the newest checkpoint on N ranks and saves what
# they then hold as another run.
resave() {
	local n=$1 from=$2 to=$3
	shift 3
	mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -q -n "$n" "$MOE_BUILD/unit/test_train_ranks" resave \
		"$from" "$to" tiny.yaml "$@" < /dev/null
}

@test "a checkpoint of any layout loads on any other, parameters and optimizer state bit for bit, twice in a row" {
	layouts=('1 mesh.ep=1' '2 mesh.ep=2' '2 mesh.replicas=2 mesh.split_replicas=true' '4 mesh.efsdp=2 mesh.ep=2 train.micro_tokens=64')
	[ -z "${MOE_LONG-}" ] || layouts+=('2 mesh.efsdp=2' '4 mesh.replicas=2 mesh.ep=2 train.micro_tokens=64')
	for ((from = 0; from < ${#layouts[@]}; from++)); do
		# shellcheck disable=SC2086
		set -- ${layouts[from]}
		passes ranks "$1" "from$from" "${@:2}" train.steps=3 optim.schedule.kind=constant eval.every=0
		for ((to = 0; to < ${#layouts[@]}; to++)); do
			# shellcheck disable=SC2086
			set -- ${layouts[to]}
			passes resave "$1" "from$from" "to$from$to" "${@:2}"
			passes moe-ckpt diff "from$from" "to$from$to"
		done
		# And once more, from what the last of them has written.
		to=$(((from + 3) % ${#layouts[@]}))
		# shellcheck disable=SC2086
		set -- ${layouts[to]}
		passes resave "$1" "to$from$((${#layouts[@]} - 1))" "twice$from" "${@:2}"
		passes moe-ckpt diff "from$from" "twice$from"
	done
}

@test "the same layout goes on bit for bit, on ranks too" {
	passes ranks 2 straight mesh.ep=2 checkpoint.every=3
	cp -r straight run
	rm -r run/ckpt/step-00000006 run/ckpt/step-00000009
	ln -sfn ckpt/step-00000003 run/latest
	passes ranks 2 run mesh.ep=2 checkpoint.every=3
	same_tensors straight/ckpt/step-00000009 run/ckpt/step-00000009
}

# grad N ARG...: the gradient of the step after checkpoint 3 of the run on N ranks.
grad() {
	local n=$1
	shift
	moe-train grad --ranks "$n" -q -j 1 -f -c tiny.yaml --from run/ckpt/step-00000003 "$@"
}

@test "moe-train grad and moe-optstep on ranks: one stream, one step, the one of the run, bit for bit" {
	passes ranks 2 run
	grad 2 -o g.safetensors
	# Through pipes, and by way of one rank: the same gradients make the same step.
	grad 2 < /dev/null | moe-optstep -q -j 1 --ranks 2 -c tiny.yaml --from run/ckpt/step-00000003 -o two
	passes moe-optstep -q -j 1 -c tiny.yaml --from run/ckpt/step-00000003 -g g.safetensors -o one
	passes moe-ckpt diff one two
	# What the run itself makes of step 4.
	rm -r run/ckpt/step-0000000[69]
	ln -sfn ckpt/step-00000003 run/latest
	passes ranks 2 run checkpoint.every=4 train.steps=9
	passes moe-ckpt diff two run/ckpt/step-00000004
	passes moe-ckpt verify two
}

@test "moe-optstep where replicas share the step, under a plan of moe-shard" {
	mesh='mesh.replicas=2 mesh.ep=2 train.micro_tokens=64 mesh.split_replicas=true'
	# shellcheck disable=SC2086
	{
		passes ranks 4 run $mesh
		moe-shard plan -c tiny.yaml --ranks 4 $mesh > plan
		grad 4 $mesh -o g.safetensors
		passes moe-optstep -q -j 1 --ranks 4 --plan plan -c tiny.yaml --from run/ckpt/step-00000003 -g g.safetensors -o next $mesh
		fails_with 2 moe-optstep --ranks 4 --plan - -c tiny.yaml --from run -g g.safetensors -o other $mesh
		rm -r run/ckpt/step-0000000[69]
		ln -sfn ckpt/step-00000003 run/latest
		passes ranks 4 run $mesh checkpoint.every=4
	}
	passes moe-ckpt diff next run/ckpt/step-00000004
}

# counted RANKS ARG...: what the ranks of a step say to each other.
counted() {
	local n=$1
	shift
	mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -q -n "$n" "$MOE_BUILD/unit/test_train_ranks" count \
		"$ROOT/etc/small.yaml" train.micro_tokens=256 train.tokens_per_step=$((256 * n)) data.seq_len=64 "$@" > counted
	cat counted
}

# within LINE PERCENT: the two numbers of that line.
within() {
	awk -v line="$1" -v most="$2" '$1 == line { d = $2 - $3; if (d < 0) d = -d; found = 1; bad = d > most / 100 * $3 }
		END { exit bad || !found }' counted
}

@test "between the norm and the next gather ranks say nothing; bytes and memory are those of the formulas" {
	for mesh in '2 mesh.efsdp=2' '2 mesh.efsdp=2 mesh.grad_dtype=bf16' '2 mesh.ep=2' '4 mesh.efsdp=2 mesh.ep=2'; do
		# shellcheck disable=SC2086
		counted $mesh
		grep -qx 'update 1 0 0' counted
		within gather 1
		within reduce 0.01
		# Rows go where the router sends them; the formula takes them as balanced.
		[[ $mesh != *ep=2* ]] || within dispatch 25
		[ "$(awk '$1 == "memory" { print $2 - $3 }' counted)" -eq 0 ]
		sed -i 's/^memory [0-9]* /memory /' counted
		within memory 1
	done
}

@test "replicas that share the step gather the new weights once a bucket; the bytes are those of an all-reduce" {
	counted 2 mesh.replicas=2
	grep -qx 'update 0 0 0' counted
	within replicas 0.1
	counted 4 mesh.replicas=2 mesh.ep=2 mesh.split_replicas=true
	# Both all-reduces are the norm's: over replicas, then over owners.
	grep -qx 'update 2 6 0' counted
	grep -qx 'buckets 6' counted
	within replicas 0.1
	within reduce 0.01
	within gather 1
	# A rank has state for what it steps only.
	sed -i 's/^memory [0-9]* /memory /' counted
	within memory 1
}

@test "a gradient stream that ends early on several ranks: one line, 65, no run left behind" {
	passes ranks 2 run train.steps=3 optim.schedule.kind=constant
	moe-train grad --ranks 2 -q -j 1 -c tiny.yaml --from run -o g train.steps=3 optim.schedule.kind=constant < /dev/null
	head -c 20000 g > cut
	fails_with 65 moe-optstep --ranks 2 -q -j 1 -c tiny.yaml --from run -g cut -o out train.steps=3 optim.schedule.kind=constant
	says 'cut'
	[ ! -e out ]
	fails_with 66 moe-optstep --ranks 2 -q -j 1 -c tiny.yaml --from run -g absent -o out train.steps=3 optim.schedule.kind=constant
}

@test "a mesh that cannot be is refused in one line" {
	fails_with 2 ranks 2 run mesh.ep=4
	fails_with 2 ranks 2 run mesh.efsdp=3
	fails_with 2 ranks 4 run mesh.ep=4 train.micro_tokens=64
	says 'experts'
	fails_with 2 ranks 3 run mesh.efsdp=3
	says 'tokens_per_step'
	[ ! -e run ]
}

@test "TERM to the ranks saves and leaves with 75, and the run goes on" {
	moe-train run --ranks 2 -j 1 --peak 100 -c tiny.yaml -o run mesh.ep=2 train.steps=1000000 checkpoint.every=0 \
		> rows 2> log 3>&- < /dev/null &
	pid=$!
	wait_for 30 grep -q moe.metrics rows
	touch run/stop
	status=0
	wait $pid || status=$?
	[ $status -eq 75 ]
	[ "$(grep -c 'run the same command again' log)" -eq 1 ]
	passes moe-ckpt verify run
}

@test "top draws a run of several ranks from its files: once into a pipe, each second on a terminal until q" {
	passes ranks 2 run mesh.ep=2 eval.every=3
	passes moe-train top run
	[ "$(printf '%s\n' "${lines[0]}")" = 'run: done, step 9 of 9 (100 %), 2.3 k tokens, restarts 0' ] || says 'run: done, step 9 of 9'
	says 'tokens/s'
	says 'fullest expert over the mean, a cell a layer'
	says 'held out held: loss'
	says 'for other ranks'
	[[ $output != *$'\033'* ]]
	passes ranks 2 run mesh.ep=2 eval.every=3
	fails_with 66 moe-train top absent
	command -v script > /dev/null 2>&1 || skip "script is not installed"
	(
		sleep 1.5
		printf q
	) | TERM=xterm timeout 20 script -qec 'moe-train top run' screen > /dev/null
	grep -q 'q leaves' screen
	grep -q $'\033\[?1049l' screen
	[ "$(grep -c 'step 9 of 9' screen)" -ge 2 ]
}
