#!/usr/bin/env bats
# train.bats -- a run as its owner meets it: start, stop, go on, look, repeat.

load train_lib

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	train straight
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*} .
	STRAIGHT=$BATS_FILE_TMPDIR/data/straight
}

# cut RUN STEP: as if the run had been killed right after saving STEP.
cut() {
	local d
	for d in "$1"/ckpt/step-*; do
		[ "${d##*-}" -le "$(printf %08d "$2")" ] || rm -r "$d"
	done
	ln -sfn "ckpt/step-$(printf %08d "$2")" "$1/latest"
}

@test "a run ends, and the same command then says already done" {
	cp -r "$STRAIGHT" run
	passes moe-train run -j 1 -c tiny.yaml -o run
	says 'already done'
	[ -z "$output" ]
	passes moe-ckpt verify run
	passes moe-train status run
	says 'done, step 9 of 9'
}

@test "a run split at several steps, twice in a row and across an epoch, is the same run" {
	cp -r "$STRAIGHT" run
	cut run 3
	passes train run
	cut run 6
	passes train run
	same_state run "$STRAIGHT"
	# The last row of each step, whichever start wrote it.
	losses run | sort -n -s -k1,1 | awk '{ row[$1] = $0 } END { for (i = 1; i <= 9; i++) print row[i] }' > a
	losses "$STRAIGHT" > b
	same a b
	# The set has fewer windows than the run has samples: an epoch ended.
	windows=$(sed -n 's/.*"windows":\([0-9]*\).*/\1/p' run/latest/MANIFEST.json)
	[ "$windows" -lt $((9 * 256 / 32)) ]
	grep -q '"clipped":true' run/metrics.jsonl
}

@test "kill -9 at any moment loses no saved step and changes no byte" {
	for i in 1 2 3 4 5 6; do
		moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run checkpoint.every=1 3>&- &
		pid=$!
		sleep "0.$((i * 7 % 10))$i"
		kill -9 $pid 2> /dev/null || true
		wait $pid 2> /dev/null || true
		[ ! -e run/latest ] || moe-ckpt verify -q run
	done
	passes train run checkpoint.every=1
	same_state run "$STRAIGHT"
}

@test "the number of threads changes no byte" {
	passes moe-train run -q -j 3 --peak 100 -c tiny.yaml -o run
	same_state run "$STRAIGHT"
}

@test "how much is kept for backward changes no byte" {
	for k in 0 2 3; do
		passes train run$k memory.boundary_every=$k
		same_state run$k "$STRAIGHT"
	done
}

@test "grad piped into moe-optstep equals run, bit for bit, over three steps" {
	passes train run checkpoint.every=1 train.steps=9
	cp -r run piped
	cut piped 4
	for s in 5 6 7; do
		moe-train grad -q -j 1 --from piped -o - | moe-optstep -q -j 1 --from piped --grads - -o piped
		same_state piped run $s
	done
	# ... and from there the run goes on as if nothing had happened.
	passes train piped checkpoint.every=1
	same_state piped run
}

@test "a gradient of another step or configuration is refused" {
	moe-train grad -q -j 1 --from "$STRAIGHT/ckpt/step-00000003" -o g.safetensors
	fails_with 65 moe-optstep --from "$STRAIGHT/ckpt/step-00000006" --grads g.safetensors -o out
	says 'gradients of step 4, but the checkpoint is at step 6'
	fails_with 65 moe-optstep --from "$STRAIGHT/ckpt/step-00000003" --grads g.safetensors -o out optim.muon.lr=1e-3
	says 'another configuration'
	head -c 1000 g.safetensors > short
	fails_with 65 moe-optstep --from "$STRAIGHT/ckpt/step-00000003" --grads short -o out
}

@test "TERM, USR1, USR2 and HUP save and leave with 75, INT with 130" {
	for sig in TERM USR1 USR2 HUP INT; do
		rm -f rows log
		moe-train run -j 1 --peak 100 -c tiny.yaml -o run train.steps=1000000 checkpoint.every=0 > rows 2> log 3>&- &
		pid=$!
		wait_for 20 grep -q moe.metrics rows
		kill -$sig $pid
		status=0
		wait $pid || status=$?
		if [ $sig = INT ]; then [ $status -eq 130 ]; else [ $status -eq 75 ]; fi
		grep -q 'run the same command again' log
		passes moe-ckpt verify run
		rm -r run rows
	done
}

@test "a second INT leaves at once and the last checkpoint is intact" {
	moe-train run -j 1 --peak 100 -c tiny.yaml -o run train.steps=1000000 checkpoint.every=2 > rows 2> log 3>&- &
	pid=$!
	wait_for 20 test -e run/latest
	kill -INT $pid; kill -INT $pid 2> /dev/null || true
	status=0
	wait $pid || status=$?
	[ $status -eq 130 ]
	passes moe-ckpt verify run
}

@test "RUN/save saves and goes on, RUN/stop saves and leaves with 75" {
	moe-train run -j 1 --peak 100 -c tiny.yaml -o run train.steps=1000000 checkpoint.every=0 > rows 2> log 3>&- &
	pid=$!
	wait_for 20 grep -q moe.metrics rows
	touch run/save
	wait_for 20 test -e run/latest
	[ ! -e run/save ]
	first=$(readlink run/latest)
	kill -0 $pid
	touch run/stop
	status=0
	wait $pid || status=$?
	[ $status -eq 75 ]
	[ ! -e run/stop ]
	[ "$(readlink run/latest)" != "$first" ]
}

@test "the end of the job stops a run in time, and two starts without a step end with 1" {
	export MOE_STOP_AT
	MOE_STOP_AT=$(($(date +%s) + 5))
	run -75 train run --stop-before 10s
	run -1 train run --stop-before 10s
	[[ $output == *'two starts in a row made no step'* ]]
	unset MOE_STOP_AT
	fails_with 2 train other --stop-before 10s
	says SLURM_JOB_END_TIME
}

@test "two runs in one directory: the second leaves with 77, a killed owner blocks nobody" {
	moe-train run -j 1 --peak 100 -c tiny.yaml -o run train.steps=1000000 > rows 2> log 3>&- &
	pid=$!
	wait_for 20 grep -q moe.metrics rows
	fails_with 77 train run
	says "process $pid"
	passes moe-train status run
	says running
	kill -9 $pid
	wait $pid || true
	passes moe-train status run
	says killed
	passes moe-train run -j 1 --peak 100 -c tiny.yaml -o run
	says 'taking over the lock'
}

@test "another shape or other data in the same directory is refused, other values are told" {
	cp -r "$STRAIGHT" run
	cut run 3
	fails_with 2 train run model.hidden_size=48
	says 'hidden_size'
	fails_with 2 train run data.seq_len=16
	says 'seq_len'
	passes moe-train run -j 1 --peak 100 -c tiny.yaml -o run optim.muon.lr=1e-3
	says 'changed since the run began: optim.muon.lr: 0.001, was 0.003'
}

@test "a loss that is not finite ends the run with 1 and the last checkpoint stays" {
	passes train run2 train.steps=3
	run -1 --separate-stderr train run2 train.steps=40 optim.muon.lr=10 optim.adamw.lr=10 optim.adamw.eps=1e-30 optim.clip_norm=0 optim.schedule.warmup=0
	[[ $stderr == *'is not finite; nothing was updated'* ]]
	passes moe-ckpt verify run2
	grep -q '"nonfinite":\["' run2/metrics.jsonl
}

@test "two ranks: a stop is called by the signal that the user sent, and a killed rank leaves a run that failed" {
	need_ranks
	for how in INT:130 TERM:75 HUP:75 USR1:75; do
		rm -rf run
		moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o run mesh.ep=2 train.steps=1000000 < /dev/null > rows 2> log 3>&- &
		pid=$!
		wait_for 30 test -e run/latest
		kill "-${how%:*}" $pid
		status=0
		wait $pid || status=$?
		[ $status -eq "${how#*:}" ]
		grep -q "stopped by SIG${how%:*}$" log
	done
	rm -r run
	moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o run mesh.ep=2 train.steps=1000000 < /dev/null > rows 2> log 3>&- &
	pid=$!
	wait_for 30 test -e run/latest
	kill -9 "$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' run/lock)"
	status=0
	wait $pid || status=$?
	[ $status -eq 69 ]
	passes moe-train status run
	says 'run: failed, step '
}

# on_terminal COLUMNS COMMAND: its output as a terminal of that width gets it, in typescript.
on_terminal() {
	# util-linux's script(1) gives the command a terminal.
	script -qec "stty cols $1; $2" typescript < /dev/null > /dev/null
}

@test "on a terminal the newest row is redrawn and few stay; without a width, or a dumb one, every row is a line" {
	need script
	run='moe-train run -j 1 --peak 100 -c tiny.yaml -o run train.steps=200 checkpoint.every=100 eval.every=100'
	on_terminal 60 "$run"
	tr -d '\r' < typescript | grep -c '' > lines
	# The first, two before evaluations, and what ten seconds leave.
	[ "$(cat lines)" -lt 40 ]
	wipe=$(printf '\r\033')'\[K'
	grep -q "^${wipe}step     1/200  loss .* eta [0-9.]*" typescript
	grep -q "${wipe}step   100/200  loss .* eta " typescript
	grep -q "${wipe}step   200/200  loss .* eta " typescript
	# Nothing that is drawn over is wider than the terminal.
	awk 'BEGIN { RS = "\r" } !/^\n/ && length(last) > 62 { print last; bad = 1 } { last = $0 } END { exit bad }' typescript
	# A line of the log is on a line of its own.
	tr -d '\r' < typescript | sed "s/.*$(printf '\033')\[K//" | grep -qx 'moe-train: saved step 100'
	rm -r run
	on_terminal 0 "$run"
	[ "$(tr -d '\r' < typescript | grep -c '^step ')" -eq 200 ]
	rm -r run
	on_terminal 60 "TERM=dumb $run"
	[ "$(tr -d '\r' < typescript | grep -c '^step ')" -eq 200 ]
	run -1 grep -q "$(printf '\033')" typescript
}

@test "data that is cut short under a run is one line with its name and 65, and the run goes on when it is back" {
	[ -z "${MOE_SAN-}" ] || skip "a sanitizer takes the signal itself"
	cp train.bin whole
	moe-train run -j 2 --peak 100 -c tiny.yaml -o run train.steps=1000000 checkpoint.every=5 optim.schedule.kind=constant > rows 2> log 3>&- &
	pid=$!
	wait_for 20 test -e run/latest
	: > train.bin
	status=0
	wait $pid || status=$?
	[ $status -eq 65 ]
	[ "$(tail -n 1 log)" = 'moe-train: train.bin: was cut short while it was being read' ]
	passes moe-ckpt verify run
	cp whole train.bin
	passes train run train.steps="$(($(readlink run/latest | sed 's/.*step-0*//') + 2))" optim.schedule.kind=constant
}

@test "rows, evaluation and heartbeat are there and read as JSON" {
	need jq
	jq -e -s 'map(select(.schema == "moe.metrics/1")) | length == 9 and all(.[]; (.load_max_mean | length) == 2 and .mem_planned == .mem_used)' "$STRAIGHT/metrics.jsonl"
	jq -e -s 'map(select(.schema == "moe.eval/1")) | map(.step) == [4, 8, 9]' "$STRAIGHT/metrics.jsonl"
	jq -e '.state == "done" and .step == 9' "$STRAIGHT/heartbeat.json"
	passes moe-train eval -j 1 --from "$STRAIGHT" --json
	printf '%s\n' "$output" | jq -e '.schema == "moe.eval/1" and .set == "held" and .bits_per_byte > 0'
}

@test "a row torn by a crash is cut off at the next start" {
	cp -r "$STRAIGHT" run
	cut run 6
	printf '{"schema":"moe.metrics/1","step":7,"los' >> run/metrics.jsonl
	passes train run
	run -1 grep -n '"los{' run/metrics.jsonl
	[ "$(tail -c 1 run/metrics.jsonl | od -An -c | tr -d ' ')" = '\n' ]
}

@test "one batch is learned by heart, and training lowers the loss of text never seen" {
	# Eight windows, the same ones each step: the loss of the batch falls to nearly nothing.
	head -n 2 "$BATS_FILE_TMPDIR/data/held" > few
	moe-tokenize encode -q -t tok.json --docs blank -o few few
	passes train heart 'data.train=[{path: few}]' data.seq_len=8 train.micro_tokens=8 train.tokens_per_step=8 train.steps=150 \
		eval.every=0 checkpoint.every=0 router.aux_coef=0 router.z_coef=0 optim.schedule.kind=constant optim.adamw.lr=1e-2
	losses heart | awk '{ last = $2; if (NR == 1) first = $2 } END { exit !(first > 4 && last < 0.2) }'
	passes train text train.steps=50 eval.every=10 eval.batches=0 checkpoint.every=0 optim.adamw.lr=1e-2
	sed -n 's/.*"moe.eval\/1".*"loss":\([^,]*\),.*/\1/p' text/metrics.jsonl |
		awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 5 && last < 0.8 * first) }'
}

@test "sampling is a pure function of prompt, seed and model, and several prompts stay apart" {
	printf 'Seite' | moe-tokenize encode -q -t tok.json > p
	moe-train sample -j 1 --from "$STRAIGHT" -n 12 --seed 3 < p > a 2> log
	moe-train sample -j 2 --from "$STRAIGHT" -n 12 --seed 3 < p > b 2> log
	same a b
	cmp -n "$(wc -c < p)" p a
	moe-train sample -j 1 --from "$STRAIGHT" -n 12 --seed 4 < p > c 2> log
	run -1 cmp -s a c
	{ cat p; printf '\000\001\000\000'; cat p; } | moe-train sample -j 1 --from "$STRAIGHT" -n 3 -t 0 > d 2> log
	[ "$(wc -c < d)" -gt $((2 * $(wc -c < p))) ]
	fails_with 66 moe-train sample --from "$STRAIGHT" < /dev/null
	fails_with 65 sh -c "printf abc | moe-train sample --from '$STRAIGHT' > /dev/null"
}

@test "bad input gets one line and its status" {
	fails_with 2 moe-train run -o run
	fails_with 66 moe-train run -c missing.yaml -o run
	fails_with 2 train run model.hiden_size=3
	says hidden_size
	fails_with 2 train run mesh.ep=2
	fails_with 2 train run train.compute_dtype=bf16
	fails_with 65 train run data.seq_len=16384 train.micro_tokens=16384 train.tokens_per_step=16384
	says 'seq_len 16384 is longer than'
	fails_with 66 train run nowhere
	head -c 100 train.bin > cut.bin; cp train.idx cut.idx; cp train.json cut.json
	fails_with 65 train run cut
	cp train.bin cut.bin; head -c 50 train.idx > cut.idx
	fails_with 65 train run cut
	fails_with 2 train run model.vocab_size=300
	moe-tokenize train -q --vocab-size 300 -o other.json "$BATS_FILE_TMPDIR/data/text"
	fails_with 65 train run tokenizer=other.json
	fails_with 66 moe-train eval --from nothing
	fails_with 2 moe-train eval
	fails_with 66 moe-train status nothing
	fails_with 69 train run --device tpu
	[ ! -e run ]
}

@test "the name of data may hold a quote" {
	mkdir "it's"
	cp train.bin train.idx train.json "it's"
	passes moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run "it's/train" train.steps=1 optim.schedule.warmup=0
	grep -q "it's/train" run/config.yaml
}

@test "the plan at 65,536 tokens and 256,000 entries has no buffer that grows with the square" {
	big='data.seq_len=65536 train.micro_tokens=65536 train.tokens_per_step=65536 model.vocab_size=256000'
	# shellcheck disable=SC2086
	passes moe-train run -c tiny.yaml --dry-run --buffers --tsv $big
	largest=$(printf '%s\n' "$output" | awk -F '\t' 'NR > 1 && $4 > m { m = $4 } END { print m }')
	# Nothing is larger than the parameters (two matrices of 256,000 x 32) or one
	# chunk of logits (48 x 256,000); 65,536 squared would be 16 GiB.
	[ "$largest" -lt $((256000 * 32 * 4 * 3)) ]
	[ "$(printf '%s\n' "$output" | awk -F '\t' '$2 == "logits" && $4 > m { m = $4 } END { print m }')" -eq $((48 * 256000 * 4)) ]
}

# with_tensor FILE NAME: adds one F32 number to a safetensors file.
with_tensor() {
	local n end
	n=$(od -An -tu4 -N4 "$1" | tr -d ' ')
	tail -c +9 "$1" | head -c "$n" | sed 's/ *$//; s/}$//' > head
	tail -c +$((9 + n)) "$1" > body
	end=$(wc -c < body)
	printf ',"%s":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}' "$2" "$end" $((end + 4)) >> head
	n=$(wc -c < head)
	{
		# shellcheck disable=SC2059 # the bytes of the length
		printf "$(printf '\\%03o\\%03o\\0\\0\\0\\0\\0\\0' $((n % 256)) $((n / 256)))"
		cat head body
		printf '\0\0\0\0'
	} > "$1"
}

@test "tensors of multi-token prediction are left out by name, other unknown ones are refused" {
	mkdir hf
	cp "$ROOT"/tests/golden/glm4_moe/{config.json,model.safetensors} hf
	layers=$(sed -n 's/.*"num_hidden_layers": *\([0-9]*\).*/\1/p' hf/config.json)
	printf '\1\0\0\0\2\0\0\0' > prompt
	moe-train sample -q --from hf -n 8 < prompt > want
	with_tensor hf/model.safetensors "model.layers.$layers.eh_proj.weight"
	moe-train sample -q --from hf -n 8 < prompt > got 2> said
	same want got
	grep -q "\"model.layers.$layers.eh_proj.weight\" is not used" said
	with_tensor hf/model.safetensors model.layers.0.eh_proj.weight
	run -65 moe-train sample -q --from hf -n 8 < prompt
	says 'model.layers.0.eh_proj.weight: unknown'
}

@test "a new run begins with the weights of a run, a checkpoint or a model directory" {
	mkdir hf
	cp "$STRAIGHT"/latest/{config.json,model*} hf
	for from in "$STRAIGHT" "$STRAIGHT/ckpt/step-00000009" hf; do
		rm -rf run
		# Nothing moves them in one step.
		passes train run --init "$from" train.steps=1 optim.muon.lr=0 optim.adamw.lr=0 router.bias_rate=0 optim.schedule.warmup=0
		same run/latest/model-00001-of-00001.safetensors "$STRAIGHT/latest/model-00001-of-00001.safetensors"
	done
	grep -q '"step":1,"tokens":256,' run/latest/MANIFEST.json
	# ... and a run that is begun goes on by itself.
	passes train run --init "$STRAIGHT" train.steps=2
	grep -q '"step":2,"tokens":512,' run/latest/MANIFEST.json
}

@test "the weights of another model, of none and of a damaged one are refused and nothing is begun" {
	fails_with 65 train new --init "$STRAIGHT" model.moe_intermediate_size=24
	says 'moe_intermediate_size'
	fails_with 66 train new --init nowhere
	fails_with 65 train new --init train.bin
	cp -r "$STRAIGHT/ckpt/step-00000009" bad
	printf x | dd of=bad/model-00001-of-00001.safetensors bs=1 seek=20000 conv=notrunc 2> /dev/null
	fails_with 65 train new --init bad
	[ ! -e new ]
}

@test "what a person easily gets wrong is one line that says what to do, and leaves nothing behind" {
	fails_with 66 train new train.bin
	says 'train.bin: a token file is named without .bin: train'
	fails_with 2 train new --buffers
	says '--buffers goes with --dry-run'
	fails_with 2 moe-train eval --from "$STRAIGHT" --json --tsv
	fails_with 66 moe-train status .
	says 'not a run'
	fails_with 66 moe-train eval --from nowhere
	says 'no such directory'
	fails_with 65 moe-optstep --from "$STRAIGHT" -o new < /dev/null
	[ ! -e new ]
	# A finished run of something else is not "already done".
	fails_with 2 moe-train run -j 1 -c tiny.yaml -o "$STRAIGHT" data.seq_len=64
	says 'use another RUN directory'
	fails_with 65 moe-tokenize info tiny.yaml
	says 'not a vocabulary'
}
