#!/usr/bin/env bats
# faults.bats -- a run whose disk, memory or life ends at the N-th call.
#
# Whatever happens while it saves: the last complete checkpoint verifies, and
# the same command goes on from it to the same bytes as a run that nothing
# happened to.

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
	need_preload fault
}

# faulty FAULT: the run under a fault in its directory; $status, $stderr.
faulty() {
	rm -rf run
	run --separate-stderr env MOE_FAULT_DIR="$(pwd -P)/run" MOE_FAULT="$1" LD_PRELOAD="$FAULT" \
		moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run checkpoint.every=3 checkpoint.keep=1 eval.every=0
}

# calls KIND: how many of them an undisturbed run makes.
calls() {
	rm -rf run
	MOE_FAULT_DIR=$(pwd -P)/run MOE_FAULT_LOG=$BATS_TEST_TMPDIR/count LD_PRELOAD=$FAULT \
		moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run checkpoint.every=3 checkpoint.keep=1 eval.every=0 > /dev/null
	awk -v kind="$1" '$1 == kind { print $2 }' "$BATS_TEST_TMPDIR/count"
}

# goes_on WHAT: what is left of the run is whole and leads to the same end.
goes_on() {
	if [ -e run/latest ] && ! moe-ckpt verify -q run > /dev/null; then
		echo "$1: what latest names does not verify"
		return 1
	fi
	if ! moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run checkpoint.every=3 checkpoint.keep=1 eval.every=0 > said 2>&1; then
		echo "$1: the run does not go on"
		cat said
		return 1
	fi
	same_state run "$STRAIGHT" || {
		echo "$1: other bytes at the end"
		return 1
	}
	if compgen -G 'run/ckpt/*.tmp' > /dev/null; then
		echo "$1: a temporary is left"
		return 1
	fi
}

# each KIND ACTION: at most about 16 values of N, from the first to the last.
each() {
	local total n
	total=$(calls "$1")
	[ "$total" -gt 3 ]
	for ((n = 1; n <= total; n += 1 + total / 16)); do
		faulty "$1:$n:$2"
		case $2:$status in
		KILL:137 | TORN:137) ;;
		E*:7[34])
			[ "${#stderr_lines[@]}" -eq 1 ] || {
				echo "$1:$n:$2: ${#stderr_lines[@]} lines: $stderr"
				return 1
			}
			;;
		*)
			echo "$1:$n:$2: status $status: $stderr"
			return 1
			;;
		esac
		goes_on "$1:$n:$2" || return 1
	done
}

@test "a disk that is full at the N-th write of a run: one line, nothing saved is lost, the same end" {
	each pwrite ENOSPC
}

@test "an fsync that fails at any point of a run: one line, nothing saved is lost, the same end" {
	each fsync EIO
}

@test "killed at the N-th call that changes a file: nothing saved is lost, the same end" {
	each any KILL
}

@test "nothing is allocated between step 2 and the last one, saves and evaluations included" {
	MOE_ALLOC_LOG=$PWD/log MOE_ALLOC_TRACE=1 LD_PRELOAD=$FAULT \
		moe-train run -q -j 2 --peak 100 -c tiny.yaml -o run checkpoint.every=2 eval.every=2 > /dev/null
	# A line per write of a row, up to the last: rows of steps and of evaluations.
	[ "$(grep -c '^[0-9]' log)" -ge 9 ]
	awk '/^[0-9]/ { rows++ } rows >= 2' log > after
	if grep '^+' after; then
		echo "offsets in moe-train, for addr2line -f -e"
		return 1
	fi
	grep -qx '0 0 0' after
}
