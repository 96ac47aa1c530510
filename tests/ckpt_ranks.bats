#!/usr/bin/env bats
# ckpt_ranks.bats -- one checkpoint from several ranks, and from several that fail.
#
# Needs mpirun and a build with MPI.  What is read back is compared with the
# formula that it was made from, so every layout is compared with one rank.

load lib

setup() {
	need_ranks
	TOY=$MOE_BUILD/unit/test_ckpt_ranks
	cd "$BATS_TEST_TMPDIR"
}

# ranks N COMMAND...: on N ranks, however many cores there are.
ranks() {
	local n=$1
	shift
	timeout -k 5 120 mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -q -n "$n" "$@"
}

# faulty N RANK FAULT COMMAND...: the fault happens on one rank.  The status of
# each is left in status.RANK; mpirun must not see it, since it would end the
# others before they have one.
faulty() {
	local n=$1 rank=$2 fault=$3
	shift 3
	# The inner shell expands.
	# shellcheck disable=SC2016
	RANK=$rank MOE_FAULT_ON_IT=$fault PRELOAD=$FAULT DIR="$(pwd -P)/run" ranks "$n" sh -c '
		if [ "$OMPI_COMM_WORLD_RANK" = "$RANK" ]; then
			export MOE_FAULT="$MOE_FAULT_ON_IT" MOE_FAULT_DIR="$DIR" LD_PRELOAD="$PRELOAD"
		fi
		"$0" "$@"
		s=$?
		echo $s > status.$OMPI_COMM_WORLD_RANK
		[ $s -le 128 ] || exit $s' "$@"
}

@test "every layout of 1 to 4 ranks saves the same tensors, rows that do not divide included" {
	for layout in 1:1 2:1 2:2 3:1 3:3 4:1 4:2 4:4; do
		n=${layout%:*} replicas=${layout#*:}
		passes ranks "$n" "$TOY" save "run-$n-$replicas" 7 0 "$replicas"
		[ -z "$output" ]
		# Owners of the same layout read their own bytes and no others.
		passes "$TOY" load "run-$n-$replicas" 7 $((n / replicas))
		[ "$output" = "extra 0" ]
		passes moe-ckpt verify -q "run-$n-$replicas"
	done
	# Other owners find the same values, and have to read more for it.
	passes "$TOY" load run-4-1 7 3
	[ "$output" != "extra 0" ]
}

@test "files are spread over the ranks, and each name is there once" {
	passes ranks 4 "$TOY" save run 7 0 1
	for f in run/latest/model-*.safetensors run/latest/optim/optim-*.safetensors; do
		grep -q "\"${f#run/latest/}\":{\"bytes\":" run/latest/MANIFEST.json
	done
	[ "$(find run/latest/ -name 'model-0000?-of-0000?.safetensors' | wc -l)" -ge 4 ]
	[ "$(find run/latest/ -name '*.safetensors' | wc -l)" -eq "$(grep -c '"header"' run/latest/MANIFEST.json)" ]
}

@test "two saves of one layout are the same bytes" {
	passes ranks 3 "$TOY" save one 7 0 1
	passes ranks 3 "$TOY" save two 7 0 1
	diff -r one two
}

@test "rows of more than 64 MiB travel in several rounds" {
	passes ranks 3 "$TOY" save run 7 0 1 90001
	[ -z "$output" ]
	passes "$TOY" load run 7 3 90001
	[ "$output" = "extra 0" ]
	passes ranks 3 "$TOY" save beside 7 0 1 90001 beside
	[ -z "$output" ]
	diff -r run beside
	rm -rf run beside
}

@test "a save that goes on beside the caller, who overwrites everything, has the same bytes in every layout" {
	for layout in 1:1 2:1 2:2 3:1 4:1 4:2; do
		n=${layout%:*} replicas=${layout#*:}
		passes ranks "$n" "$TOY" save "waits-$n-$replicas" 7 0 "$replicas"
		passes ranks "$n" "$TOY" save "beside-$n-$replicas" 7 0 "$replicas" 13 beside
		[ -z "$output" ]
		diff -r "waits-$n-$replicas" "beside-$n-$replicas"
	done
}

@test "old checkpoints go, and a step that is saved again is exchanged" {
	for step in 1 2 3 2; do
		passes ranks 2 "$TOY" save run "$step" 2 1
		passes "$TOY" load run "$step" 2
	done
	[ "$(ls run/ckpt)" = "$(printf 'step-0000000%s\n' 2 3)" ]
}

@test "replicas that drifted, other lists and missing rows: one line, status 70, nothing saved" {
	passes ranks 4 "$TOY" save run 7 0 2
	for case in 'drift:tensor "model.layers.0.experts.0.up.weight": ranks 0 and 2 ' \
		'other:rank 3 saves other tensors than rank 0' 'hole:tensor "model.embed_tokens.weight": rows 7 '; do
		run --separate-stderr ranks 4 "$TOY" save run 8 1 2 13 "${case%%:*}"
		[ "$status" -eq 70 ]
		[ "${#lines[@]}" -eq 1 ]
		says "${case#*:}"
		[ "$(ls -A run/ckpt)" = step-00000007 ]
		passes "$TOY" load run 7 2
	done
}

# spoils "FAULT..." [HOW...]: 3 ranks save, and one of them meets the fault.
spoils() {
	local fault faults=$1
	shift
	for fault in $faults; do
		run --separate-stderr faulty 3 "${fault%%:*}" "${fault#*:}" "$TOY" save run 8 1 1 "$@"
		echo "$fault: $status $output"
		[[ $output =~ ^7[34]:\ rank\ ${fault%%:*}\ on\  ]]
		[ "${#lines[@]}" -eq 1 ]
		[ "$(cat status.0 status.1 status.2 | sort -u)" = "${output%%:*}" ]
		[ "$(ls -A run/ckpt)" = step-00000007 ]
		passes "$TOY" load run 7 3
	done
}

@test "a disk that fails on one rank: all ranks leave with 74 or 73 and one message, the old checkpoint is whole" {
	need_preload fault
	passes ranks 3 "$TOY" save run 7 0 1
	spoils "0:pwrite:1:ENOSPC 1:pwrite:1:ENOSPC 2:pwrite:2:EIO 0:pwrite:4:ENOSPC 1:fsync:1:EIO 2:fallocate:1:ENOSPC
		0:fsync:2:EIO 0:mkdir:3:EACCES 0:rename:1:EIO 1:open:1:EACCES"
	passes ranks 3 "$TOY" save run 8 1 1
	passes "$TOY" load run 8 3
}

@test "and when it fails in the thread that writes beside the caller" {
	need_preload fault
	passes ranks 3 "$TOY" save run 7 0 1
	spoils "0:pwrite:1:ENOSPC 1:pwrite:1:ENOSPC 2:pwrite:2:EIO 0:pwrite:4:ENOSPC 1:fsync:1:EIO 2:fallocate:1:ENOSPC
		0:fsync:2:EIO 0:rename:1:EIO 1:open:1:EACCES" 13 beside
}

@test "a rank that is killed while it saves: the old checkpoint is whole, the next save sweeps" {
	need_preload fault
	passes ranks 3 "$TOY" save run 7 0 1
	for fault in 1:any:1:KILL 2:any:4:TORN 0:any:5:KILL 0:any:12:KILL; do
		run faulty 3 "${fault%%:*}" "${fault#*:}" "$TOY" save run 8 0 1
		[ "$status" -ne 0 ]
		passes "$TOY" load run 7 3
	done
	passes ranks 3 "$TOY" save run 8 1 1
	[ "$(ls -A run/ckpt)" = step-00000008 ]
	passes "$TOY" load run 8 3
}
