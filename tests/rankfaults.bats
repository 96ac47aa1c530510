#!/usr/bin/env bats
# rankfaults.bats -- several ranks, one of which fails: all of them end, one
# speaks, the last checkpoint is whole, and the same command goes on as if
# nothing had happened.

load train_lib

# The run that nothing happens to: two ranks, a checkpoint every third step.
MESH='mesh.ep=2'

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	command -v mpirun > /dev/null 2>&1 || return 0
	moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o straight $MESH < /dev/null || true
}

setup() {
	need_ranks
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*} .
	STRAIGHT=$BATS_FILE_TMPDIR/data/straight
}

MPIRUN='mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 --mca mpi_abort_print_stack 0 -q'

run2() { moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o run $MESH "$@" < /dev/null; }

# faulty RANK VAR=VALUE... -- ARG...: the run with these variables on that rank.
# The status of each is left in status.RANK; mpirun must not see it, since it
# would end the others before they have one.
faulty() {
	local rank=$1 vars=
	shift
	while [ "$1" != -- ]; do
		vars="$vars $1"
		shift
	done
	shift
	rm -f status.*
	# The inner shell expands.
	# shellcheck disable=SC2016
	RANK=$rank VARS=$vars timeout -k 5 120 $MPIRUN -n 2 sh -c '
		[ "$OMPI_COMM_WORLD_RANK" != "$RANK" ] || export $VARS
		"$0" "$@"
		s=$?
		echo $s > status.$OMPI_COMM_WORLD_RANK
		[ $s -le 128 ] || exit $s' moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run $MESH "$@" < /dev/null
}

# ends RANK STATUS TEXT VAR=VALUE... -- ARG...: that fault ends both with the
# status and one line that names the rank and holds the text.
ends() {
	local rank=$1 want=$2 text=$3
	shift 3
	run --separate-stderr faulty "$rank" "$@"
	echo "$stderr"
	[ "$(cat status.0)" -eq "$want" ]
	[ "$(cat status.1)" -eq "$want" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"rank $rank on $(hostname)"* ]]
	[[ $stderr == *"$text"* ]]
	[ -z "$output" ]
}

# goes_on: the same command makes the weights of the undisturbed run.
goes_on() {
	passes run2
	passes moe-ckpt verify -q run
	same_tensors "$STRAIGHT/ckpt/step-00000009" run/ckpt/step-00000009
	[ -z "$(find run -name '*.tmp' -o -name '*.moe-tmp')" ]
}

# newest RUN: what latest names verifies, if there is one.
whole() { [ ! -L run/latest ] || passes moe-ckpt verify -q run; }

@test "a data file that one rank cannot open: one line with rank and cause, nothing is begun" {
	need_preload fault
	D=$(pwd -P)
	ends 1 66 'No such file' LD_PRELOAD="$FAULT" MOE_FAULT_DIR="$D/train.bin" MOE_FAULT=open:1:ENOENT --
	[ ! -e run ]
	ends 0 66 'No such file' LD_PRELOAD="$FAULT" MOE_FAULT_DIR="$D/valid.idx" MOE_FAULT=open:1:ENOENT --
	[ ! -e run ]
	ends 1 74 'train.idx' LD_PRELOAD="$FAULT" MOE_FAULT_DIR="$D/train.idx" MOE_FAULT=open:1:EIO --
	[ ! -e run ]
}

@test "a disk that is full for one rank in a save: one line, 74, the old checkpoint is whole" {
	need_preload fault
	D=$(pwd -P)
	for n in 2 5; do
		ends 1 74 'No space left' LD_PRELOAD="$FAULT" MOE_FAULT_DIR="$D/run" MOE_FAULT="pwrite:$n:ENOSPC" --
		whole
	done
	goes_on
}

@test "a rank that is killed while it saves: the checkpoint before it is whole, the same command goes on" {
	need_preload fault
	D=$(pwd -P)
	for fault in 1:2 1:6 0:9; do
		run faulty "${fault%:*}" LD_PRELOAD="$FAULT" MOE_FAULT_DIR="$D/run/ckpt" MOE_FAULT="any:${fault#*:}:KILL" --
		[ "$status" -ne 0 ]
		whole
	done
	goes_on
}

@test "a number that is not finite on one rank is found out: rank, host and step, nothing updated" {
	need_preload nan
	faulty 1 LD_PRELOAD="$FAULT" MOE_NAN_LOG=calls -- train.steps=4 optim.schedule.kind=constant checkpoint.every=0 eval.every=0
	rm -r run
	# In the last of four steps: the router's scores are part of the loss, those of
	# attention are seen by the backward pass alone.
	n=$(awk '$1 == "log" { print int($2 * 0.8) }' calls)
	[ "$n" -gt 100 ]
	ends 1 1 'step 4: the loss on rank 1' LD_PRELOAD="$FAULT" MOE_NAN="log:$n" -- eval.every=0
	[ "$(readlink run/latest)" = ckpt/step-00000003 ]
	n=$(awk '$1 == "logf" { print int($2 * 0.9) }' calls)
	[ "$n" -gt 100 ]
	run --separate-stderr faulty 1 LD_PRELOAD="$FAULT" MOE_NAN="logf:$n" -- eval.every=0
	[ "$(cat status.0 status.1 | sort -u)" = 1 ]
	[[ $stderr =~ ^moe-train\[0\]:\ step\ [0-9]+:\ the\ gradient\ of\ \"model\..*,\ owned\ by\ rank\ [01]\ on ]]
	goes_on
}

@test "Slurm's tasks that cannot meet are told the remedy, and nothing is begun" {
	SLURM_NTASKS=2 fails_with 69 moe-train run -q -c tiny.yaml -o run
	says 'srun --mpi=pmix'
	[ ! -e run ]
}

@test "another configuration or another program on one rank is refused" {
	sed 's/cosine/linear/' tiny.yaml > other.yaml
	args='run -q -j 1 --peak 100 -o run mesh.ep=2'
	fails_with 2 $MPIRUN -n 1 moe-train $args -c tiny.yaml : -n 1 moe-train $args -c other.yaml
	says 'rank 1 has another configuration than rank 0'
	{
		cat "$MOE_BIN/moe-train"
		echo
	} > moe-other
	chmod +x moe-other
	fails_with 2 $MPIRUN -n 1 moe-train $args -c tiny.yaml : -n 1 ./moe-other $args -c tiny.yaml
	says 'rank 1 has another program than rank 0'
	# A plan for other work, and one for another mesh.
	moe-shard plan -c tiny.yaml --ranks 2 mesh.ep=2 > plan
	moe-shard plan -c tiny.yaml --ranks 2 mesh.efsdp=2 > plan.other
	run --separate-stderr $MPIRUN -n 1 moe-train $args -c tiny.yaml --plan plan : -n 1 moe-train $args -c tiny.yaml --plan plan.other
	[ "$status" -eq 2 ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	says "rank 1 on $(hostname): plan.other: "
	[ ! -e run ]
}

@test "what every rank reads cannot be standard input" {
	fails_with 2 moe-train run --ranks 2 -c - -o run < tiny.yaml
	says 'give a file'
	fails_with 2 moe-train run --ranks 2 -c tiny.yaml --plan - -o run < /dev/null
}

# start ARG...: the run in the background, its ranks in RANKS once it trains.
start() {
	moe-train run --ranks 2 -j 1 --peak 100 -c tiny.yaml -o run $MESH "$@" > rows 2> log 3>&- < /dev/null &
	PID=$!
}

# ranks_of: the processes of rank 0 and 1, in RANKS.
ranks_of() {
	local p
	RANKS=()
	for p in $(pgrep -P "$(pgrep -P "$PID" mpirun)" moe-train); do
		RANKS[$(tr '\0' '\n' < "/proc/$p/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')]=$p
	done
	[ ${#RANKS[@]} -eq 2 ]
}

trains() { grep -q '"step":4,' rows; }

@test "a rank that is killed: the others report it and leave with 69; the same command goes on" {
	start train.steps=1000000 checkpoint.every=3 checkpoint.keep=1 optim.schedule.kind=constant
	wait_for 30 trains
	ranks_of
	kill -9 "${RANKS[1]}"
	status=0
	wait $PID || status=$?
	cat log
	[ $status -eq 69 ]
	[ "$(grep -c 'rank [01] on' log)" -eq 1 ]
	grep -q "rank 1 on $(hostname) (process ${RANKS[1]}) is gone, .*(step [0-9]*); rank 0 waits in" log
	whole
	# No rank is left behind.
	wait_for 10 gone "${RANKS[0]}"
	passes moe-train status run
	says failed
}

@test "a rank that stops answering: a report of who waits where, 69" {
	start train.steps=1000000 checkpoint.every=0 --hang-timeout 2
	wait_for 30 trains
	ranks_of
	kill -STOP "${RANKS[1]}"
	status=0
	wait $PID || status=$?
	cat log
	[ $status -eq 69 ]
	grep -q "rank 0 on $(hostname) waits [0-9]* s in [a-z_]* of [a-z]* #[0-9]* (step [0-9]*)" log
	grep -q "rank 1 on $(hostname) " log
	wait_for 10 gone "${RANKS[1]}"
}

gone() { ! kill -0 "$1" 2> kill.err; }

@test "a signal to one rank alone stops all at a step border, saved, with 75" {
	start train.steps=1000000 checkpoint.every=0
	wait_for 30 trains
	ranks_of
	kill -TERM "${RANKS[1]}"
	status=0
	wait $PID || status=$?
	cat log
	[ $status -eq 75 ]
	[ "$(grep -c 'run the same command again' log)" -eq 1 ]
	grep -q 'rank 1 on .*: stopped by SIGTERM' log
	passes moe-ckpt verify -q run
	[ "$(readlink run/latest)" = "ckpt/step-$(printf %08d "$(sed -n 's/.*"moe.metrics\/1","step":\([0-9]*\).*/\1/p' rows | tail -n 1)")" ]
}

@test "saving is no hang, however long it takes" {
	need_preload slow_disk
	faulty 1 LD_PRELOAD="$FAULT" MOE_SLOW_FSYNC=3 -- train.steps=3 optim.schedule.kind=constant --hang-timeout 1 eval.every=0
	[ "$(cat status.0 status.1 | sort -u)" = 0 ]
	whole
}

# rows_or_end N: that many steps of this start are done, or it is over.
rows_or_end() { [ "$(grep -c 'moe.metrics' rows)" -ge "$1" ] || ! kill -0 "$PID" 2> kill.err; }

@test "random kills of random ranks while training and saving: the weights of the undisturbed run" {
	rounds=4
	[ -z "${MOE_LONG-}" ] || rounds=20
	RANDOM=${MOE_SEED:-$$}
	killed=0 later=0
	for ((k = 0; killed < rounds && k < 6 * rounds; k++)); do
		start checkpoint.every=1
		# After up to three steps, and some moment: a step with its save takes
		# about as long as the longest of these.
		wait_for 30 rows_or_end $((RANDOM % 4))
		sleep "0.0$((RANDOM % 90 + 10))"
		if ranks_of 2> ranks.err && kill -9 "${RANKS[RANDOM % 2]}" 2> kill.err; then
			killed=$((killed + 1))
		fi
		status=0
		wait $PID || status=$?
		echo "start $k: status $status, $(readlink run/latest || true), $(tail -n 1 log)"
		case $status in
		69 | 137) [ ! -L run/latest ] || later=$((later + 1)) ;;
		0) rm -r run ;;
		*) false ;;
		esac
		whole
	done
	[ $killed -eq $rounds ]
	# Not all of them before the first save.
	[ $later -gt 0 ]
	passes run2 checkpoint.every=1
	passes moe-ckpt verify -q run
	same_tensors "$STRAIGHT/ckpt/step-00000009" run/ckpt/step-00000009
}

# saver ARG...: the unit test's own program, on 3 ranks.
saver() { timeout -k 5 300 $MPIRUN -n 3 "$@"; }

@test "each call of a save fails on each rank and on all: the same status everywhere, one line that names the rank, the old checkpoint" {
	need_preload fault
	TOY=$MOE_BUILD/unit/test_ckpt_ranks
	saver "$TOY" save run 7 0 1
	replicas=1
	[ -z "${MOE_LONG-}" ] || replicas='1 3'
	for r in $replicas; do
		for how in apart beside; do
			stride=7
			[ -z "${MOE_LONG-}" ] || stride=1
			passes saver -x LD_PRELOAD="$FAULT" "$TOY" product run 7 "$r" $stride $how
			echo "$r replicas, $how: $output"
			[ "${output%% *}" -gt 50 ]
			[ "$(ls -A run/ckpt)" = step-00000007 ]
		done
	done
}

@test "a rank is killed at each call of a save: the old checkpoint or the new one, whole, and the next save sweeps" {
	need_preload fault
	TOY=$MOE_BUILD/unit/test_ckpt_ranks
	D=$(pwd -P)/run
	saver "$TOY" save run 7 0 1
	cp -a run before
	stride=7 first=3
	[ -z "${MOE_LONG-}" ] || stride=1 first=1
	killed=0
	# The inner shells expand.
	# shellcheck disable=SC2016
	for ((rank = 0; rank < 3; rank++)); do
		for ((n = first; ; n += stride)); do
			rm -rf run
			cp -a before run
			ended=0
			RANK=$rank SO=$FAULT DIR=$D N=$n saver sh -c '[ "$OMPI_COMM_WORLD_RANK" != "$RANK" ] ||
				export LD_PRELOAD="$SO" MOE_FAULT_DIR="$DIR" MOE_FAULT="any:$N:KILL"
				exec "$0" save run 8 0 1' "$TOY" > said 2> err || ended=$?
			echo "rank $rank, call $n: $ended"
			got=$("$TOY" load run 7 3 > /dev/null && echo 7 || { "$TOY" load run 8 3 > /dev/null && echo 8; })
			[ $ended -ne 0 ] || [ "$got" = 8 ]
			[ -n "$got" ] || {
				echo "rank $rank, call $n: neither step loads"
				return 1
			}
			saver "$TOY" save run 8 0 1
			passes "$TOY" load run 8 3
			[ -z "$(find run -name '*.tmp' -o -name '*.moe-tmp')" ]
			[ $ended -ne 0 ] || break
			killed=$((killed + 1))
		done
	done
	echo "$killed kills"
	[ $killed -gt 4 ]
}
