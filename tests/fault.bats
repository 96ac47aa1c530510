#!/usr/bin/env bats
# fault.bats -- a run whose disk, memory or life ends at the N-th call, and one
# that is to go on from a damaged checkpoint.
#
# Whatever happens: one line and the right status; what was saved before still
# verifies; nothing half-made is left lying; the same command afterwards goes on
# to the same bytes as a run that nothing happened to; and no damaged byte gets
# into a run.  With MOE_LONG every N is tried, else a sample from first to last.

load train_lib

# Two saves, the second of which removes the first; two evaluations.
faulty_run() {
	moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run train.steps=4 checkpoint.every=2 checkpoint.keep=1 \
		eval.every=2 eval.batches=1 > /dev/null
}

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	faulty_run
	mv run straight
	# A longer run with every checkpoint, for the damage.
	train kept train.steps=6 checkpoint.every=2 eval.every=0
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*} .
	STRAIGHT=$BATS_FILE_TMPDIR/data/straight
	KEPT=$BATS_FILE_TMPDIR/data/kept
}

# under FAULT: the run with that fault in its directory; $status, lines in err.
under() {
	rm -rf run
	status=0
	MOE_FAULT_DIR=$(pwd -P)/run MOE_FAULT=$1 LD_PRELOAD=$FAULT faulty_run 2> err || status=$?
}

# calls KIND: how many of them an undisturbed run makes.
calls() {
	if [ ! -e count ]; then
		rm -rf run
		MOE_FAULT_DIR=$(pwd -P)/run MOE_FAULT_LOG=$PWD/count LD_PRELOAD=$FAULT faulty_run
	fi
	awk -v kind="$1" '$1 == kind { print $2 }' count
}

complain() {
	echo "$*; status $status:"
	cat err
	return 1
}

# The last row of each step, without what the clock decides.
rows() { losses "$1" | sort -n -s -k1,1 | awk '{ row[$1] = $0 } END { for (i = 1; i <= 4; i++) print row[i] }'; }

# whole FAULT: a step that has its name verifies, and so does what latest names.
whole() {
	local d
	for d in run/ckpt/step-????????; do
		[ ! -d "$d" ] || moe-ckpt verify -q "$d" > /dev/null 2> err || complain "$1: $d does not verify" || return 1
	done
	[ ! -L run/latest ] || moe-ckpt verify -q run > /dev/null 2> err || complain "$1: latest does not verify"
}

# What a failed call may leave: an old step on its way out, when it is the
# removal that failed.
tidy() {
	local t
	for t in run/.*.moe-tmp run/ckpt/*.tmp run/ckpt/*/.*.moe-tmp; do
		[ -e "$t" ] || continue
		[ "$t" = run/ckpt/step-00000002.tmp ] && [ -e run/ckpt/step-00000004 ] ||
			complain "$1: $t is left" || return 1
	done
}

# goes_on FAULT: the same command ends as if nothing had happened.
goes_on() {
	local left
	status=0
	faulty_run 2> err || status=$?
	[ $status -eq 0 ] || complain "$1: the run does not go on" || return 1
	same_state run "$STRAIGHT" 4 || complain "$1: other bytes at the end" || return 1
	[ "$(readlink run/latest)" = ckpt/step-00000004 ] || complain "$1: latest is $(readlink run/latest)" || return 1
	left=$(find run -name '*.tmp' -o -name '*.moe-tmp')
	[ -z "$left" ] || complain "$1: still left: $left" || return 1
	[ "$(rows run)" = "$(rows "$STRAIGHT")" ] || complain "$1: other rows" || return 1
	[ "$(grep -vc '^{.*}$' run/metrics.jsonl)" -eq 0 ] || complain "$1: a torn row is left"
}

# sweep KIND ACTION MOST: the N-th call of the kind, for at most about MOST
# values of N, the first and the last among them; all of them with MOE_LONG.
sweep() {
	local total n stride=1 ended
	total=$(calls "$1")
	[ "$total" -gt 0 ] || complain "a run makes no $1 call" || return 1
	[ -n "${MOE_LONG-}" ] || stride=$((1 + (total - 1) / $3))
	for ((n = 1; n <= total; n = n + stride <= total || n == total ? n + stride : total)); do
		under "$1:$n:$2"
		ended=$status
		case $2:$status in
		KILL:137 | TORN:137) ;;
		E*:7[34])
			[ "$(wc -l < err)" -eq 1 ] || complain "$1:$n:$2: not one line" || return 1
			grep -q 'No space left\|Input/output error' err || complain "$1:$n:$2: another cause" || return 1
			tidy "$1:$n:$2" || return 1
			;;
		E*:0)
			# What a run can do without, it may do without: once, and said.
			[ "$(wc -l < err)" -le 1 ] && same_state run "$STRAIGHT" 4 || complain "$1:$n:$2: passed over" || return 1
			;;
		*) complain "$1:$n:$2: unexpected" || return 1 ;;
		esac
		whole "$1:$n:$2 ($ended)" || return 1
		goes_on "$1:$n:$2 ($ended)" || return 1
	done
	# One past the last call meets nothing.
	under "$1:$((total + 1)):$2"
	[ $status -eq 0 ] || complain "$1: more calls than were counted"
}

@test "the disk is full at the N-th write: one line, nothing saved is lost, the same end" {
	need_preload fault
	sweep pwrite ENOSPC 7
	sweep write ENOSPC 6
	sweep fallocate ENOSPC 4
}

@test "a file or directory cannot be made at the N-th time: one line, nothing saved is lost, the same end" {
	need_preload fault
	sweep open ENOSPC 7
	sweep mkdir ENOSPC 5
	sweep symlink ENOSPC 2
}

@test "the device fails at the N-th fsync, rename, removal or cut: one line, nothing saved is lost, the same end" {
	need_preload fault
	sweep fsync EIO 7
	sweep rename EIO 8
	sweep unlink EIO 4
	sweep ftruncate EIO 2
}

@test "killed at the N-th call that changes a file: nothing saved is lost, the same end" {
	need_preload fault
	sweep any KILL 11
}

@test "killed in the middle of the N-th write: nothing saved is lost, the same end" {
	need_preload fault
	sweep pwrite TORN 4
	sweep write TORN 3
}

@test "killed at random again and again, and the same command each time: every byte of the run that nothing happened to" {
	rounds=6
	[ -z "${MOE_LONG-}" ] || rounds=100
	RANDOM=${MOE_SEED:-$$}
	killed=0 ended=0 later=0
	often() {
		moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run train.steps=9 checkpoint.every=1 eval.every=3 eval.batches=1 \
			checkpoint.async="$1" > /dev/null 2> err
	}
	often false
	mv run undisturbed
	while [ $killed -lt $rounds ]; do
		async=$([ $((RANDOM % 2)) -eq 0 ] && echo true || echo false)
		often "$async" 3>&- &
		pid=$!
		sleep "0.$(printf %03d $((RANDOM % 350 + 30)))"
		# The shell in between holds the status.
		if pkill -KILL -P $pid 2> kill.err; then
			killed=$((killed + 1))
			[ ! -L run/latest ] || later=$((later + 1))
		fi
		status=0
		wait $pid || status=$?
		case $status in
		137) ;;
		0)
			same_state run undisturbed
			[ "$(losses run | sort -n -s -k1,1 | awk '{ row[$1] = $0 } END { for (i = 1; i <= 9; i++) print row[i] }')" = "$(losses undisturbed)" ]
			rm -r run
			ended=$((ended + 1))
			;;
		*) complain "seed $RANDOM, kill $killed" ;;
		esac
		[ ! -L run/latest ] || passes moe-ckpt verify -q run
	done
	often true
	same_state run undisturbed
	[ -z "$(find run -name '*.tmp' -o -name '*.moe-tmp')" ]
	echo "# $killed kills, $later of them after the first save, $((ended + 1)) runs came to their end"
	[ $later -gt 0 ]
}

@test "a disk that stays full, or a device that stays broken: one line all the same" {
	need_preload fault
	for fault in pwrite:1+:ENOSPC pwrite:60+:ENOSPC write:2+:ENOSPC fsync:9+:EIO rename:3+:EIO unlink:1+:EIO mkdir:4+:ENOSPC any:40+:EIO any:150+:EIO; do
		under $fault
		case $status in
		7[34]) [ "$(wc -l < err)" -le 2 ] && [ "$(grep -vc 'warn: ' err)" -eq 1 ] || complain "$fault: not one line" ;;
		*) complain "$fault" ;;
		esac
		whole "$fault"
		goes_on "$fault"
	done
}

@test "short and interrupted calls change nothing" {
	need_preload fault
	for fault in pwrite:1+:SHORT write:1+:SHORT read:1+:SHORT pread:1+:SHORT pwrite:2:EINTR pwrite:50:EINTR write:3:EINTR \
		read:1:EINTR read:5:EINTR pread:1:EINTR fallocate:2:EINTR fallocate:1+:EOPNOTSUPP; do
		rm -rf run
		status=0
		MOE_FAULT=$fault LD_PRELOAD=$FAULT faulty_run 2> err || status=$?
		[ $status -eq 0 ] && [ ! -s err ] || complain "$fault"
		whole "$fault"
		same_state run "$STRAIGHT" 4
		[ "$(rows run)" = "$(rows "$STRAIGHT")" ]
	done
}

@test "memory that runs out at the N-th request ends the start with one line, and the same command then works" {
	need_preload fault
	total=$(calls malloc)
	stride=$((1 + total / 8))
	[ -z "${MOE_LONG-}" ] || stride=1
	for ((n = 1; n <= total; n += stride)); do
		under "malloc:$n:ENOMEM"
		[ $status -eq 74 ] && [ "$(wc -l < err)" -eq 1 ] || complain "malloc:$n"
		goes_on "malloc:$n"
	done
}

# ---- damage

# flip FILE FROM_END: one bit of the byte that lies so far before the end, or
# (negative) of that byte from the start.
flip() {
	local at size byte
	size=$(wc -c < "$1")
	at=$(($2 < 0 ? -$2 : size - $2))
	byte=$(od -An -tu1 -j "$at" -N 1 "$1" | tr -d ' ')
	# shellcheck disable=SC2059
	printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

# damaged FILE HOW: a run of six steps whose newest checkpoint, step 4, is so.
damaged() {
	rm -rf run
	cp -r "$KEPT" run
	rm -r run/ckpt/step-00000006
	ln -sfn ckpt/step-00000004 run/latest
	case $2 in
	cut) truncate -s -2 "run/latest/$1" ;;
	longer) printf x >> "run/latest/$1" ;;
	empty) : > "run/latest/$1" ;;
	gone) rm "run/latest/$1" ;;
	*) flip "run/latest/$1" "$2" ;;
	esac
}

resume() {
	status=0
	moe-train run -j 1 --peak 100 -c tiny.yaml -o run train.steps=6 checkpoint.every=2 eval.every=0 > /dev/null 2> err || status=$?
}

# falls_back FILE HOW: the checkpoint before is used, with a warning that names
# the file, and the end is the same.
falls_back() {
	damaged "$1" "$2"
	run -1 moe-ckpt verify -q run/ckpt/step-00000004
	resume
	[ $status -eq 0 ] || complain "$1, $2"
	grep -q "warn: .*step-00000004/$1:" err && grep -q 'using run/ckpt/step-00000002' err || complain "$1, $2: no warning that names it"
	grep -q 'going on from run/ckpt/step-00000002: step 2' err || complain "$1, $2: not from step 2"
	same_state run "$KEPT" 6
	passes moe-ckpt verify -q run/ckpt/step-00000006
}

# refused FILE HOW: 65, one line that names the file; nothing was trained.
refused() {
	damaged "$1" "$2"
	cp run/metrics.jsonl before
	resume
	[ $status -eq 65 ] && [ "$(grep -vc '[0-9] threads\?, ' err)" -eq 1 ] && grep -q "step-00000004/*$1" err || complain "$1, $2"
	same before run/metrics.jsonl
	[ ! -e run/ckpt/step-00000006 ]
}

@test "a checkpoint whose MANIFEST, index or header is damaged is passed over, said and by name" {
	for how in -30 400 2 cut longer empty; do
		falls_back MANIFEST.json $how
	done
	for how in -9 -40 cut longer empty gone; do
		for f in model-00001-of-00001.safetensors optim/optim-00001-of-00001.safetensors; do
			falls_back $f $how
		done
	done
	for how in cut empty gone; do
		falls_back model.safetensors.index.json $how
		falls_back optim/index.json $how
	done
}

@test "a checkpoint without its MANIFEST is none: the one before is used" {
	damaged MANIFEST.json gone
	resume
	[ $status -eq 0 ] && grep -q 'warn: .*no MANIFEST.*using run/ckpt/step-00000002' err || complain "without MANIFEST"
	same_state run "$KEPT" 6
}

@test "one damaged bit of a weight, of optimizer state or of the configuration is refused with 65" {
	refused model-00001-of-00001.safetensors 1
	refused model-00001-of-00001.safetensors 100000
	refused optim/optim-00001-of-00001.safetensors 1
	refused optim/optim-00001-of-00001.safetensors 200000
	refused config.json 20
	refused config.json cut
	refused config.json gone
}

@test "what a run does not read cannot harm it, and verify names it all the same" {
	for f in tokenizer.json generation_config.json; do
		for how in 10 cut gone; do
			damaged $f $how
			run -1 --separate-stderr moe-ckpt verify run/ckpt/step-00000004
			says $f
			resume
			[ $status -eq 0 ] && grep -q 'going on from run/ckpt/step-00000004' err || complain "$f, $how"
			same_state run "$KEPT" 6
		done
	done
}

@test "a latest that leads astray is passed over for the newest checkpoint that verifies" {
	for target in ckpt/step-00000009 ../elsewhere ckpt/step-00000004.tmp /; do
		damaged tokenizer.json gone
		cp "$KEPT/ckpt/step-00000004/tokenizer.json" run/ckpt/step-00000004/
		ln -sfn $target run/latest
		resume
		[ $status -eq 0 ] && grep -q 'warn: .*run/latest.*using run/ckpt/step-00000004' err || complain "latest -> $target"
		same_state run "$KEPT" 6
	done
}
