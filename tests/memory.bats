#!/usr/bin/env bats
# memory.bats -- the memory of a run is the plan: nothing is allocated once it
# goes, and what it holds is what was printed before.
#
# The counter is tests/fault/fault.c, loaded into the program: what it says does
# not come from the code that is being measured.

load train_lib

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*} .
	need_preload fault
}

# counted LOG RUN [ARG...]: a run under the counter.  LOG gets the line of the
# start and one per row: allocations, bytes, mappings since the line before;
# allocations by libraries; anonymous resident bytes.
counted() {
	local log=$1 run=$2
	shift 2
	MOE_ALLOC_LOG=$PWD/$log MOE_ALLOC_TRACE=1 LD_PRELOAD=$FAULT moe-train run --json --peak 100 -c tiny.yaml -o "$run" "$@"
}

# lines LOG: those of the start and of the rows, without single allocations.
lines() { grep -v '^+' "$1"; }

# quiet LOG: nothing of ours between the second row and the last one.
quiet() {
	lines "$1" | awk 'NR > 3 && ($1 || $2 || $3) { print "row " NR - 1 ": " $0; bad = 1 } END { exit bad || NR < 5 }' || {
		echo "offsets in moe-train, for addr2line -f -e:"
		awk '!/^\+/ { rows++; next } rows >= 3' "$1"
		return 1
	}
}

@test "nothing is allocated or mapped between step 2 and the last: saves, evaluations, heartbeats, in every start" {
	for start in 1 2; do
		counted log$start run -j 2 checkpoint.every=20 checkpoint.keep=2 eval.every=15 train.steps=1000000 > rows 2> said 3>&- &
		pid=$!
		wait_for 20 grep -q '"step":[1-9]' run/heartbeat.json
		sleep 0.6
		touch run/save
		sleep 0.6
		touch run/stop
		status=0
		wait $pid || status=$?
		[ $status -eq 75 ]
		quiet log$start
		# It happened, more than once.
		[ "$(grep -c 'saved step' said)" -gt 2 ]
		[ "$(grep -c moe.eval rows)" -gt 2 ]
		[ ! -e run/save ]
		grep -q '"state":"stopped"' run/heartbeat.json
	done
	run -1 grep 'set aside' said
}

@test "and the counter does count: the start allocates and maps, in our code and in libraries" {
	counted log run -j 1 -q train.steps=3
	lines log | awk 'NR == 1 { exit !($1 == 0 && $5 > 0) }'
	lines log | awk 'NR == 2 { exit !($1 > 50 && $2 > 1e6 && $3 > 0 && $4 > 0) }'
	grep -q '^+[0-9]* at 0x' log
	# The same check, held against the first row: it can fail.
	{ lines log; lines log; } > twice
	run -1 quiet twice
}

@test "a step without a save allocates nothing in libraries either" {
	counted log run -j 2 -q checkpoint.every=0 eval.every=0 train.steps=40
	quiet log
	lines log | awk 'NR > 3 && $4 { print; bad = 1 } END { exit bad }'
}

# A model of 8.5 million parameters: 130 MB with gradients and optimizer state.
big=(model.vocab_size=8192 model.hidden_size=256 model.head_dim=64 model.moe_intermediate_size=128
	model.intermediate_size=512 model.num_experts=16 train.steps=4 checkpoint.every=2 eval.every=2 eval.batches=1)

@test "anonymous resident memory is the plan, from both sides, within 32 MiB" {
	counted log run -j 2 -q "${big[@]}"
	planned=$(sed -n 's/.*"mem_planned":\([0-9]*\),.*/\1/p' run/metrics.jsonl | sort -u)
	[ "$planned" -gt 100000000 ]
	lines log | awk -v planned="$planned" '
		NR == 1 { start = $5 }
		NR > 2 {
			held = $5 - start; rows++
			if (held > planned + 32 * 1048576 || held < 0.9 * planned) { print "held " held ", planned " planned ": " $0; bad = 1 }
		}
		END { exit bad || rows < 5 }'
}

@test "planned and used are one number: in every row, in the dry run and in moe-shard memory" {
	for args in "-j 1" "-j 2 memory.boundary_every=0" "-j 3 data.seq_len=64 --device=ref"; do
		rm -rf run
		# shellcheck disable=SC2086
		moe-train run -q --peak 100 -c tiny.yaml -o run $args
		sed -n 's/.*"mem_planned":\([0-9]*\),"mem_used":\([0-9]*\),.*/\1 \2/p' run/metrics.jsonl > used
		[ "$(wc -l < used)" -eq 9 ]
		# shellcheck disable=SC2086
		moe-train run -c tiny.yaml --dry-run --tsv $args > dry
		# shellcheck disable=SC2086
		moe-shard memory -c tiny.yaml --tsv $args > shard
		same dry shard
		n=$(awk -F '\t' '$1 == "reserved" { print $2 }' dry)
		[ "$(sort -u used)" = "$n $n" ] || {
			echo "$args: dry run $n, rows: $(sort -u used)"
			return 1
		}
	done
}
