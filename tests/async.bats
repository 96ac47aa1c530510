#!/usr/bin/env bats
# async.bats -- checkpoint.async: a save that goes on beside the steps is the save
# that stands still, to the byte, whatever happens to it.
#
# The slow disk waits at every write and sync, so that a save takes about a
# second and steps of some milliseconds overwrite what it is of.

load train_lib

CONSTANT=optim.schedule.kind=constant

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	train straight
	train forty $CONSTANT train.steps=80 checkpoint.every=40 eval.every=0
	command -v mpirun > /dev/null 2>&1 || return 0
	moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o straight2 mesh.ep=2 < /dev/null || true
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*} .
	STRAIGHT=$BATS_FILE_TMPDIR/data/straight
	FORTY=$BATS_FILE_TMPDIR/data/forty
	STRAIGHT2=$BATS_FILE_TMPDIR/data/straight2
}

# slow ARG...: a run without end in the background; rows, log, $pid.
slow() {
	need_preload slow_disk
	LD_PRELOAD=$FAULT MOE_SLOW_FSYNC=0.1 MOE_SLOW_PWRITE=0.02 \
		moe-train run -j 1 --peak 100 -c tiny.yaml -o run checkpoint.async=true eval.every=0 train.steps=1000000 \
		$CONSTANT "$@" > rows 2> log 3>&- &
	pid=$!
}

# ended STATUS: of the run in the background.
ended() {
	status=0
	wait "$pid" || status=$?
	[ $status -eq "$1" ] || {
		echo "status $status"
		cat log
		return 1
	}
}

step_dir() { echo "run/ckpt/step-$(printf %08d "$1")"; }

newest_row() { sed -n 's/.*"moe.metrics\/1","step":\([0-9]*\),.*/\1/p' rows | tail -n 1; }

# in_hand STEP: its save is being written, and steps went on.
in_hand() { [ -d "$(step_dir "$1").tmp" ] && [ "$(newest_row)" -gt "$1" ]; }

# clean: nothing half-made is left.
clean() { [ -z "$(find run -name '*.tmp' -o -name '*.moe-tmp')" ]; }

@test "steps, losses and every byte are those of a run that stands still" {
	passes train run checkpoint.async=true
	for step in 3 6 9; do
		same_state run "$STRAIGHT" $step
		passes moe-ckpt verify -q "$(step_dir $step)"
	done
	same <(losses run) <(losses "$STRAIGHT")
	[ "$(readlink run/latest)" = ckpt/step-00000009 ]
	clean
}

@test "a run split at several steps is the same run, whichever way each part saves" {
	passes train run checkpoint.async=true
	for part in 3:true 6:false 3:false 6:true; do
		rm -r run/ckpt/step-00000009
		[ "${part%:*}" = 6 ] || rm -rf run/ckpt/step-00000006
		ln -sfn "ckpt/step-0000000${part%:*}" run/latest
		passes train run checkpoint.async="${part#*:}"
		same_state run "$STRAIGHT"
	done
}

@test "steps go on over a slow save, which holds the step it is of and is called saved when it is there" {
	# The first save of a run makes this directory, durably, before anything else.
	mkdir -p run/ckpt
	slow checkpoint.every=40
	wait_for 20 in_hand 40
	# Not said, not named, not what latest names.
	run -1 grep -q 'saved step' log
	[ ! -e "$(step_dir 40)" ]
	[ ! -e run/latest ]
	wait_for 20 grep -q 'saved step 40:' log
	[ -e "$(step_dir 40)/MANIFEST.json" ]
	kill -9 $pid
	ended 137
	passes moe-ckpt verify -q "$(step_dir 40)"
	same_state run "$FORTY" 40
	# A second and more on the disk; what the rows count is the copy, and the little
	# that is left when the machine has other work.
	sed -n 's/.*saved step 40: [0-9.]* KiB in \([0-9.]*\) s .*/\1/p' log > took
	awk '{ exit !($1 > 1) }' took
	awk -F'"ckpt_s":' 'NF > 1 { split($2, v, ","); if ($0 ~ /"step":4[1-9],/) sum += v[1] }
		END { if (sum <= 0 || sum > 0.5) { print "stood still for " sum " s"; exit 1 } }' rows
}

@test "a second save waits for the first, says so once, and both are whole" {
	slow checkpoint.every=40
	wait_for 20 in_hand 40
	touch run/save
	wait_for 20 grep -q 'saved step 80:' log
	kill -9 $pid
	ended 137
	asked=$(sed -n 's/.*the save of step 40 is still being written: waiting for it before step \([0-9]*\) is saved$/\1/p' log)
	[ "$asked" -gt 40 ] && [ "$asked" -le 80 ]
	awk '/waiting for it before/ && !w { w = NR } /saved step 40:/ { s = NR } END { exit !(w && s && w < s) }' log
	for d in run/ckpt/step-????????; do
		passes moe-ckpt verify -q "$d"
	done
	same_state run "$FORTY" 40
	same_state run "$FORTY" 80
}

@test "kill -9 while a save is written: the one before it verifies, and the run goes on from it, bit for bit" {
	slow checkpoint.every=40 checkpoint.keep=1
	wait_for 20 grep -q 'saved step 40:' log
	wait_for 20 in_hand 80
	kill -9 $pid
	ended 137
	[ "$(readlink run/latest)" = ckpt/step-00000040 ]
	passes moe-ckpt verify run
	passes train run $CONSTANT checkpoint.async=true checkpoint.every=40 train.steps=80 eval.every=0
	same_state run "$FORTY" 80
	clean
}

@test "the old checkpoint stays until the new one is durable" {
	slow checkpoint.every=40 checkpoint.keep=1
	wait_for 20 grep -q 'saved step 40:' log
	while [ ! -e "$(step_dir 80)" ]; do
		[ -e "$(step_dir 40)/MANIFEST.json" ] || [ -e "$(step_dir 80)/MANIFEST.json" ]
		kill -0 $pid
	done
	wait_for 20 grep -q 'saved step 80:' log
	[ ! -e "$(step_dir 40)" ]
	kill -9 $pid
	ended 137
	passes moe-ckpt verify run
}

@test "TERM, INT and RUN/stop while a save is written: it is ended, this step is saved too, and the run goes on from there" {
	for how in TERM:75 INT:130 stop:75; do
		rm -rf run
		slow checkpoint.every=40
		wait_for 20 in_hand 40
		if [ "${how%:*}" = stop ]; then touch run/stop; else kill -"${how%:*}" $pid; fi
		ended "${how#*:}"
		[ ! -e run/stop ]
		grep -q 'saved step 40:' log
		last=$(newest_row)
		grep -q "saved step $last:" log
		grep -q "step $last of 1000000 is saved, run the same command again" log
		[ "$(readlink run/latest)" = "ckpt/$(basename "$(step_dir "$last")")" ]
		passes moe-ckpt verify run
		same_state run "$FORTY" 40
		clean
	done
	[ "$last" -lt 80 ] || return 0
	passes train run $CONSTANT checkpoint.async=true checkpoint.every=40 train.steps=80 eval.every=0
	same_state run "$FORTY" 80
}

@test "a second INT while a save is written leaves at once, and the checkpoint before it is whole" {
	slow checkpoint.every=40
	wait_for 20 grep -q 'saved step 40:' log
	wait_for 20 in_hand 80
	kill -INT $pid
	sleep 0.1
	kill -INT $pid 2> /dev/null || true
	ended 130
	passes moe-ckpt verify run
}

@test "a loss that is not finite while a save is written ends the run, and that save is ended first" {
	need_preload slow_disk
	passes train run train.steps=3
	LD_PRELOAD=$FAULT MOE_SLOW_FSYNC=0.2 run -1 --separate-stderr moe-train run -j 1 --peak 100 -c tiny.yaml -o run checkpoint.async=true \
		checkpoint.every=1 eval.every=0 train.steps=40 optim.schedule.warmup=0 optim.muon.lr=10 optim.adamw.lr=10 optim.adamw.eps=1e-30 optim.clip_norm=0
	[[ $stderr == *'is not finite; nothing was updated'* ]]
	# The last step before it was being written when it came.
	saved=$(printf '%s\n' "$stderr" | sed -n 's/.*saved step \([0-9]*\):.*/\1/p' | tail -n 1)
	[[ $stderr == *"step $((saved + 1)): "*'is not finite; nothing'* ]]
	[ "$(readlink run/latest)" = "ckpt/$(basename "$(step_dir "$saved")")" ]
	passes moe-ckpt verify run
	clean
}

# faulty FAULT: four steps, a save after two and at the end, which removes the
# first; the fault counts calls on checkpoints alone.
faulty() {
	rm -rf run
	status=0
	MOE_FAULT_DIR=$(pwd -P)/run/ckpt MOE_FAULT=$1 LD_PRELOAD=$FAULT train run train.steps=4 checkpoint.every=2 checkpoint.keep=1 \
		checkpoint.async=true eval.every=0 > /dev/null 2> err || status=$?
}

complain() {
	echo "$*; status $status"
	cat err
	return 1
}

# sweep KIND ACTION STEP: the N-th call of that kind for every STEP-th N.
sweep() {
	local n total d
	need_preload fault
	rm -f count
	MOE_FAULT_LOG=$PWD/count faulty none:1:EIO 2> /dev/null || true
	MOE_FAULT_LOG=$PWD/count faulty rename:99:EIO
	total=$(awk -v kind="$1" '$1 == kind { print $2 }' count)
	[ "$total" -gt 0 ] || complain "no $1 calls" || return 1
	for ((n = 1; n <= total; n += $3)); do
		faulty "$1:$n:$2"
		case $2:$status in
		KILL:137 | TORN:137) ;;
		E*:7[34])
			[ "$(wc -l < err)" -eq 1 ] || complain "$1:$n:$2: not one line" || return 1
			grep -q "run/ckpt.*\(No space left\|Input/output error\)" err || complain "$1:$n:$2: file or cause" || return 1
			;;
		*) complain "$1:$n:$2: unexpected" || return 1 ;;
		esac
		for d in run/ckpt/step-????????; do
			[ ! -d "$d" ] || moe-ckpt verify -q "$d" > /dev/null 2>> err || complain "$1:$n:$2: $d does not verify" || return 1
		done
		train run train.steps=4 checkpoint.every=2 checkpoint.keep=1 checkpoint.async=true eval.every=0 2> err || complain "$1:$n:$2: does not go on" || return 1
		same_state run four 4 && clean || complain "$1:$n:$2: other bytes, or something is left" || return 1
	done
}

@test "the N-th write, sync, rename or reservation fails in the thread: one line, status as when standing still, the same end" {
	train four train.steps=4 checkpoint.every=2 eval.every=0
	sweep pwrite ENOSPC 7
	sweep fsync EIO 6
	sweep rename EIO 1
	sweep fallocate ENOSPC 3
	sweep open ENOSPC 9
}

@test "killed at the N-th call, or in the middle of a write: nothing saved is lost, the same end" {
	train four train.steps=4 checkpoint.every=2 eval.every=0
	sweep any KILL 11
	sweep pwrite TORN 9
}

@test "planned and used are one number with the copy in it, and nothing is allocated in a step" {
	need_preload fault
	MOE_ALLOC_LOG=$PWD/alloc MOE_ALLOC_TRACE=1 LD_PRELOAD=$FAULT moe-train run -j 2 --json --peak 100 -c tiny.yaml -o run \
		checkpoint.async=true checkpoint.every=20 checkpoint.keep=2 eval.every=15 train.steps=200 > rows 2> log
	grep -v '^+' alloc | awk 'NR > 3 && ($1 || $2 || $3) { print "row " NR - 1 ": " $0; bad = 1 } END { exit bad || NR < 100 }'
	run -1 grep 'set aside' log
	[ "$(grep -c 'saved step' log)" -eq 10 ]
	moe-train run -j 2 -c tiny.yaml --dry-run --tsv checkpoint.async=true > dry
	n=$(awk -F '\t' '$1 == "reserved" { print $2 }' dry)
	[ "$(sed -n 's/.*"mem_planned":\([0-9]*\),"mem_used":\([0-9]*\),.*/\1 \2/p' run/metrics.jsonl | sort -u)" = "$n $n" ]
	# The copy has its row: every tensor of the checkpoint, each on a cache line.
	moe-shard memory -j 2 -c tiny.yaml --tsv checkpoint.async=true > shard
	same dry shard
	stage=$(awk -F '\t' '$1 == "save" { print $2 }' dry)
	bytes=$(du -bc run/latest/model-*.safetensors run/latest/optim/optim-*.safetensors | awk 'END { print $1 }')
	[ "$stage" -gt $((bytes / 2)) ] && [ "$stage" -lt $((bytes + 20000)) ]
	moe-train run -j 2 -c tiny.yaml --dry-run --tsv > without
	run -1 grep -q '^save' without
}

# ---- two ranks

run2() { moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o run mesh.ep=2 checkpoint.async=true "$@" < /dev/null; }

# faulty2 RANK FAULT: on one of two ranks.
faulty2() {
	# The inner shell expands.
	# shellcheck disable=SC2016
	RANK=$1 FAULT_ON_IT=$2 PRELOAD=$FAULT DIR=$(pwd -P)/run/ckpt timeout -k 5 120 mpirun --allow-run-as-root --oversubscribe \
		--mca mpi_yield_when_idle 1 --mca mpi_abort_print_stack 0 -q -n 2 sh -c '
		[ "$OMPI_COMM_WORLD_RANK" != "$RANK" ] || export LD_PRELOAD="$PRELOAD" MOE_FAULT="$FAULT_ON_IT" MOE_FAULT_DIR="$DIR"
		"$0" "$@"
		s=$?
		echo $s > status.$OMPI_COMM_WORLD_RANK
		[ $s -le 128 ] || exit $s' moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run mesh.ep=2 checkpoint.async=true < /dev/null
}

@test "two ranks: every layout saves the bytes that it saves standing still" {
	need_ranks
	for mesh in mesh.ep=2 mesh.efsdp=2 'mesh.replicas=2 mesh.split_replicas=true'; do
		rm -rf run still
		# shellcheck disable=SC2086
		moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o still $mesh < /dev/null
		# shellcheck disable=SC2086
		moe-train run --ranks 2 -q -j 1 --peak 100 -c tiny.yaml -o run $mesh checkpoint.async=true < /dev/null
		for step in 3 6 9; do
			same_tensors still/ckpt/step-0000000$step "$(step_dir $step)"
			passes moe-ckpt verify -q "$(step_dir $step)"
		done
		grep -q '"mem_planned":\([0-9]*\),"mem_used":\1,' run/metrics.jsonl
		clean
	done
}

@test "two ranks: what fails on one of them in its thread ends both with one line, and the same command goes on" {
	need_ranks
	need_preload fault
	for fault in 1:pwrite:2:ENOSPC 1:fsync:3:EIO 0:pwrite:9:ENOSPC 0:rename:1:EIO 1:open:1:EACCES; do
		[[ $fault != *EACCES ]] || rm -r run
		run --separate-stderr faulty2 "${fault%%:*}" "${fault#*:}"
		echo "$fault: $stderr"
		[[ $(cat status.0 status.1 | sort -u) =~ ^7[34]$ ]]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == *"rank ${fault%%:*} on $(hostname)"*run/ckpt/step-* ]]
		[ ! -L run/latest ] || passes moe-ckpt verify -q run
	done
	passes run2
	same_tensors "$STRAIGHT2/ckpt/step-00000009" run/ckpt/step-00000009
	clean
}

@test "two ranks: one is killed while it writes; the checkpoint before it is whole, the same command goes on" {
	need_ranks
	need_preload fault
	for fault in 1:any:7:KILL 1:any:14:TORN 0:any:30:KILL; do
		run faulty2 "${fault%%:*}" "${fault#*:}"
		[ "$status" -ne 0 ]
		[ ! -L run/latest ] || passes moe-ckpt verify -q run
	done
	passes run2
	same_tensors "$STRAIGHT2/ckpt/step-00000009" run/ckpt/step-00000009
	clean
}
