#!/usr/bin/env bats
# ckpt.bats -- moe-ckpt, and what every failure of a save leaves behind.
#
# The toy checkpoint comes from the unit test's own program: two thousand bytes
# whose every value is known, so a load can tell which step it got.

load lib

setup() {
	TOY=$MOE_BUILD/unit/test_ckpt_save
	RUN=$BATS_TEST_TMPDIR/run
	cd "$BATS_TEST_TMPDIR" || return 1
}

save() { "$TOY" save "$RUN" "$@"; }
step() { printf '%s/ckpt/step-%08d' "$RUN" "$1"; }

# What must hold after anything that happened while step 2 was saved over a run
# that has step 1: something whole is there, it opens as one of the two, and the
# next save succeeds and leaves no temporary.
still_whole() {
	local got
	got=$("$TOY" load "$RUN" 1 2) || {
		echo "$1: neither step loads"
		return 1
	}
	if [ "$2" = 0 ] && [ "$got" != 2 ]; then
		echo "$1: the save said it succeeded, but step $got is loaded"
		return 1
	fi
	moe-ckpt verify -q "$RUN" > /dev/null || {
		echo "$1: verify says no"
		return 1
	}
	save 2 2 && [ "$("$TOY" load "$RUN" 1 2)" = 2 ] && moe-ckpt verify "$RUN"/ckpt/step-* > /dev/null || {
		echo "$1: the next save fails"
		return 1
	}
	if ls -d "$RUN"/ckpt/*.tmp 2> /dev/null; then
		echo "$1: a temporary is left after the next save"
		return 1
	fi
}

# fresh FIRST KEEP: a run with the steps up to FIRST, from a template.
fresh() {
	if [ ! -d "$RUN.$1" ]; then
		for ((s = 1; s <= $1; s++)); do "$TOY" save "$RUN.$1" "$s" 0; done
	fi
	rm -rf "$RUN"
	cp -a "$RUN.$1" "$RUN"
}

# calls KIND FIRST KEEP: how many calls of the kind a save of step 2 makes.
calls() {
	fresh "$2"
	MOE_FAULT_DIR=$(pwd -P) MOE_FAULT_LOG=$BATS_TEST_TMPDIR/count LD_PRELOAD=$FAULT save 2 "$3"
	awk -v kind="$1" '$1 == kind { print $2 }' "$BATS_TEST_TMPDIR/count"
}

# every KIND ACTION FIRST KEEP: for every N, the N-th call.
every() {
	local n total status
	total=$(calls "$1" "$3" "$4")
	[ "$total" -gt 0 ] || {
		echo "a save makes no $1 call"
		return 1
	}
	for ((n = 1; n <= total; n++)); do
		fresh "$3"
		status=0
		MOE_FAULT_DIR=$(pwd -P) MOE_FAULT=$1:$n:$2 LD_PRELOAD=$FAULT save 2 "$4" 2> err || status=$?
		case $2:$status in
		KILL:137 | TORN:137 | EINTR:0) ;;
		E*:7[34])
			if [ "$(wc -l < err)" -ne 1 ]; then
				echo "$1:$n:$2: more than one line of error:"
				cat err
				return 1
			fi
			if [ "$1" != unlink ] && ls -d "$RUN"/ckpt/*.tmp 2> /dev/null; then
				echo "$1:$n:$2: a temporary is left"
				return 1
			fi
			;;
		*)
			echo "$1:$n:$2: status $status"
			cat err
			return 1
			;;
		esac
		still_whole "$1:$n:$2" "$status" || return 1
	done
}

@test "the N-th write fails, for every N: the checkpoint before is whole" {
	need_preload fault
	every pwrite EIO 1 0
	every pwrite ENOSPC 1 0
	every fallocate ENOSPC 1 0
}

@test "the N-th fsync fails, for every N: the checkpoint before is whole" {
	need_preload fault
	every fsync EIO 1 0
}

@test "the N-th rename, link, directory or removal fails, for every N: the checkpoint before is whole" {
	need_preload fault
	every rename EIO 1 0
	every symlink EIO 1 0
	every mkdir ENOSPC 1 0
	every unlink EIO 1 1
}

@test "killed at the N-th call that changes a file, for every N: something whole is loaded" {
	need_preload fault
	every any KILL 1 1
}

@test "killed in the middle of the N-th write, for every N: something whole is loaded" {
	need_preload fault
	every pwrite TORN 1 0
}

@test "killed at the N-th call while a step is saved a second time: something whole is loaded" {
	need_preload fault
	every any KILL 2 0
}

@test "short writes and interrupted calls change no byte" {
	need_preload fault
	fresh 1
	save 2 0
	cp -a "$RUN" whole
	for fault in pwrite:1+:SHORT pwrite:2:EINTR fallocate:1:EINTR fallocate:1+:EOPNOTSUPP; do
		fresh 1
		MOE_FAULT=$fault LD_PRELOAD=$FAULT save 2 0
		diff -r whole "$RUN"
	done
}

@test "memory that runs out at the N-th request leaves the checkpoint before whole" {
	need_preload fault
	total=$(calls malloc 1 0)
	for ((n = 1; n <= total; n += 1 + total / 40)); do
		fresh 1
		run env MOE_FAULT="malloc:$n:ENOMEM" LD_PRELOAD="$FAULT" "$TOY" save "$RUN" 2 0
		[ "$status" -eq 74 ] || {
			echo "malloc:$n: status $status: $output"
			return 1
		}
		still_whole "malloc:$n" 74
	done
}

@test "a read that fails is one line and 74, and a short read changes nothing" {
	need_preload fault
	fresh 1
	run --separate-stderr env MOE_FAULT=pread:3:EIO LD_PRELOAD="$FAULT" moe-ckpt verify "$RUN"
	[ "$status" -eq 74 ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	passes env MOE_FAULT=pread:1+:SHORT,read:1+:SHORT LD_PRELOAD="$FAULT" moe-ckpt verify "$RUN"
}

@test "verify says ok and 0 for a checkpoint, a run and a link to one" {
	fresh 2
	passes moe-ckpt verify "$RUN"
	says "step-00000002: ok: 8 files, 8 tensors"
	passes moe-ckpt verify "$RUN/latest" "$(step 1)"
	passes moe-ckpt verify --json "$RUN"
	says '"ok":true,"checksums":true,"problems":0,"files":8,"tensors":8,"parts":7'
}

@test "one damaged byte is one line with file and tensor, status 1" {
	fresh 1
	printf X | dd of="$(step 1)/optim/optim-00001-of-00002.safetensors" bs=1 seek=200 conv=notrunc status=none
	fails_with 1 moe-ckpt verify "$RUN"
	says 'optim-00001-of-00002.safetensors: tensor "lm_head.weight.exp_avg": checksum differs'
	run --separate-stderr moe-ckpt verify --tsv "$RUN"
	[ "$status" -eq 1 ]
	says "	false	true	1	"
	passes moe-ckpt verify --structure "$RUN"
	passes moe-ckpt ls "$RUN"
}

@test "several problems are all told, and the last line counts them" {
	fresh 1
	printf X | dd of="$(step 1)/optim/optim-00001-of-00002.safetensors" bs=1 seek=200 conv=notrunc status=none
	rm "$(step 1)/config.json"
	run --separate-stderr moe-ckpt verify "$RUN"
	[ "$status" -eq 1 ]
	[ "${#stderr_lines[@]}" -eq 3 ]
	says "damaged: 2 problems"
	says "config.json: No such file or directory"
}

@test "verify judges what latest names, not an older one that is whole" {
	fresh 2
	truncate -s 100 "$(step 2)/MANIFEST.json"
	fails_with 1 moe-ckpt verify "$RUN"
	says "step-00000002/MANIFEST.json: does not end with its own hash"
	rm -r "$(step 2)"
	fails_with 1 moe-ckpt verify "$RUN"
	says "latest: points to ckpt/step-00000002, which is not there"
}

@test "verify of a run without latest names the newest checkpoint; one without any is 66; a missing index is told of once" {
	fresh 2
	rm "$RUN/latest"
	fails_with 1 moe-ckpt verify "$RUN"
	says "$RUN/latest: No such file or directory; the newest checkpoint of the run is $(step 2)"
	rm "$(step 1)/MANIFEST.json" "$(step 2)/MANIFEST.json"
	for c in verify info card; do
		fails_with 66 moe-ckpt $c "$RUN"
		says "$RUN: a run without a complete checkpoint"
	done
	fresh 1
	rm "$(step 1)/model.safetensors.index.json"
	fails_with 1 moe-ckpt verify "$RUN"
	says "model.safetensors.index.json: No such file or directory"
}

@test "ls and info use the newest whole checkpoint when latest is broken, and say so" {
	fresh 2
	truncate -s 100 "$(step 2)/MANIFEST.json"
	passes moe-ckpt info "$RUN"
	says "warn: $(step 2)/MANIFEST.json: does not end with its own hash"
	says "using $(step 1), the newest checkpoint that verifies"
	rm -r "$(step 1)"
	fails_with 65 moe-ckpt ls "$RUN"
}

@test "ls lists tensors, patterns choose, and a name that nothing has is 1" {
	fresh 1
	passes moe-ckpt ls --tsv "$RUN"
	[ "${#lines[@]}" -eq 7 ]
	[ "${lines[0]}" = "#name	dtype	shape	elements	bytes	file" ]
	[ "${lines[1]}" = "model.embed_tokens.weight	F32	7x5	35	140	model-00001-of-00003.safetensors" ]
	passes moe-ckpt ls --tsv -a "$RUN"
	[ "${#lines[@]}" -eq 9 ]
	passes moe-ckpt ls --json "$RUN" '*.up_proj.weight'
	[ "${#lines[@]}" -eq 1 ]
	says '"schema":"moe.ckpt-ls/1","name":"model.layers.0.mlp.experts.0.up_proj.weight","dtype":"F32","shape":"3x11"'
	run moe-ckpt ls "$RUN" 'nothing*'
	[ "$status" -eq 1 ]
	fails_with 2 moe-ckpt ls --json --tsv "$RUN"
}

@test "info names step, maker, layout and groups the tensors" {
	fresh 1
	passes moe-ckpt info "$RUN"
	says "1x2x3 (replicas x efsdp x ep), 4 threads, kernels ref"
	says "model.layers.*.mlp.experts.*.up_proj.weight"
	says "a \"b\"?"
	passes moe-ckpt info --json "$RUN"
	says '"step":1,"tokens":4096'
}

@test "a Hugging Face directory has structure only: verify is 1, with --structure 0" {
	passes moe-ckpt ls "$ROOT/tests/golden/mixtral"
	passes moe-ckpt info "$ROOT/tests/golden/mixtral"
	fails_with 1 moe-ckpt verify "$ROOT/tests/golden/mixtral"
	says "no checksums"
	passes moe-ckpt verify --structure "$ROOT/tests/golden/mixtral"
	fails_with 1 moe-ckpt verify "$ROOT/tests/golden/mixtral/model.safetensors"
	passes moe-ckpt verify -s "$ROOT/tests/golden/mixtral/model.safetensors"
}

@test "index and files of a directory without MANIFEST must agree" {
	mkdir hf
	cp "$ROOT/tests/golden/mixtral/model.safetensors" hf/a.safetensors
	index() { printf '{"weight_map":{%s}}' "$1" > hf/model.safetensors.index.json; }
	all=$(moe-ckpt ls --tsv hf | awk 'NR > 1 { printf "%s\"%s\":\"a.safetensors\"", (NR > 2 ? "," : ""), $1 }')
	index "$all"
	passes moe-ckpt verify -s hf
	index "$all,\"more\":\"a.safetensors\""
	fails_with 1 moe-ckpt verify -s hf
	says 'tensor "more" is not in a.safetensors'
	fails_with 65 moe-ckpt ls hf
	index "${all%,*}"
	fails_with 1 moe-ckpt verify -s hf
	says 'not in hf/model.safetensors.index.json'
	index "$all,\"more\":\"../a.safetensors\""
	fails_with 1 moe-ckpt verify -s hf
	says "not the name of a file beside it"
	index "$all,\"more\":\"b.safetensors\""
	fails_with 1 moe-ckpt verify -s hf
	says "hf/b.safetensors: No such file or directory"
	cp hf/a.safetensors hf/b.safetensors
	run --separate-stderr moe-ckpt verify -s hf
	[ "$status" -eq 1 ]
	says "is also in a.safetensors"
	index "$all,${all%%,*}"
	fails_with 1 moe-ckpt verify -s hf
	says 'weight_map: duplicate key'
	printf '{"weight_map":{%s},"metadata":{"a":1,"a":2}}' "$all" > hf/model.safetensors.index.json
	fails_with 1 moe-ckpt verify -s hf
	says 'duplicate'
	printf '{"metadata":{},"weight_map":{%s}}x' "$all" > hf/model.safetensors.index.json
	fails_with 1 moe-ckpt verify -s hf
	says 'something after the end'
	printf '[]' > hf/model.safetensors.index.json
	fails_with 1 moe-ckpt verify -s hf
	says '"weight_map": expected an object'
	printf '{' > hf/model.safetensors.index.json
	fails_with 1 moe-ckpt verify -s hf
	fails_with 65 moe-ckpt info hf
}

@test "what is not there is 66, and a full disk under stdout is 74" {
	fails_with 66 moe-ckpt ls nowhere
	fails_with 66 moe-ckpt info nowhere
	fails_with 66 moe-ckpt verify nowhere
	mkdir empty
	fails_with 66 moe-ckpt ls empty
	fails_with 2 moe-ckpt ls
	[ -e /dev/full ] || skip "no /dev/full here"
	run sh -c 'moe-ckpt ls "$1" > /dev/full' sh "$ROOT/tests/golden/mixtral"
	[ "$status" -eq 74 ]
}

@test "a file that is no safetensors file is one line and 65" {
	echo "hello, this is text" > text.safetensors
	fails_with 65 moe-ckpt ls text.safetensors
	: > empty.safetensors
	fails_with 65 moe-ckpt info empty.safetensors
	says "0 bytes, too short for a safetensors file"
	fails_with 1 moe-ckpt verify -s empty.safetensors
	mkfifo pipe
	fails_with 65 moe-ckpt ls pipe
}

@test "a packed stream is told from a damaged file, and how to open it is said" {
	fresh 1
	moe-ckpt pack -q -o "$BATS_TEST_TMPDIR/p" "$RUN"
	fails_with 65 moe-ckpt info "$BATS_TEST_TMPDIR/p"
	says "p: a packed stream, not safetensors; moe-ckpt unpack opens it"
}

@test "cat writes .npy with type and shape, and bare bytes that are those of the file" {
	G=$ROOT/tests/golden/mixtral
	moe-ckpt cat "$G" model.norm.weight > norm.npy
	[ "$(head -c 118 norm.npy | tail -c +11 | sed 's/ *$//')" = "{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }" ]
	[ "$(stat -c %s norm.npy)" -eq $((128 + 80)) ]
	moe-ckpt cat --raw "$G" model.norm.weight > norm.raw
	same norm.raw <(tail -c 80 norm.npy)
	moe-ckpt cat --raw "$G" lm_head.weight > head.raw
	tail -c "$(stat -c %s head.raw)" "$G/model.safetensors" > /dev/null
	[ "$(stat -c %s head.raw)" -eq $((48 * 20 * 4)) ]
}

@test "cat takes slices in every dimension, also across parts that are hashed apart" {
	fresh 1
	name=model.embed_tokens.weight		# 7 x 5, in two parts
	moe-ckpt cat -r "$RUN" $name > whole
	cell() { tail -c +$((4 * (5 * $1 + $2) + 1)) whole | head -c 4; }
	moe-ckpt cat -r -s 2 "$RUN" $name > row
	for c in 0 1 2 3 4; do cell 2 $c; done | cmp - row
	moe-ckpt cat -r -s :,3 "$RUN" $name > column
	for r in 0 1 2 3 4 5 6; do cell $r 3; done | cmp - column
	moe-ckpt cat -r -s 1:6,2:4 "$RUN" $name > block
	for r in 1 2 3 4 5; do cell $r 2; cell $r 3; done | cmp - block
	moe-ckpt cat -s 3:3 "$RUN" $name | head -c 128 | tail -c +11 > nothing
	grep -q "'shape': (0, 5), }" nothing
	moe-ckpt cat -s 0,1 "$RUN" $name | grep -aq "'shape': (), }"
	for bad in 8 7 0:8 3:2 x 1,2,3 -1 '' 1: 0x1; do
		case $bad in '' | 1:) passes moe-ckpt cat -r -s "$bad" "$RUN" $name ;;
		*) fails_with 2 moe-ckpt cat -r --slice="$bad" "$RUN" $name ;;
		esac
	done
	fails_with 1 moe-ckpt cat "$RUN" no.such.tensor
	printf X | dd of="$(step 1)/model-00001-of-00003.safetensors" bs=1 seek=400 conv=notrunc status=none
	run --separate-stderr moe-ckpt cat -r "$RUN" $name
	[ "$status" -eq 65 ]
}

@test "diff is silent about what is equal, and counts elements, bits and distance of what is not" {
	G=$ROOT/tests/golden/mixtral
	passes moe-ckpt diff "$G" "$G/model.safetensors"
	[ "$output" = "identical: 47 tensors" ]
	mkdir b
	cp "$G/config.json" "$G/model.safetensors" b
	# One element of the last tensor: the sign of its last float.
	printf '\377' | dd of=b/model.safetensors bs=1 seek=$(($(stat -c %s b/model.safetensors) - 1)) conv=notrunc status=none
	run --separate-stderr moe-ckpt diff --tsv "$G" b
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 2 ]
	says "and b differ: 1 of 47 tensors"
	[ "$(cut -f2-6 <<< "${lines[1]}")" = "differs	F32	F32	$(cut -f5 <<< "${lines[1]}")	1" ]
	run --separate-stderr moe-ckpt diff -a --json "$G" b
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 47 ]
	run --separate-stderr moe-ckpt diff --tsv "$G" "$ROOT/tests/golden/qwen3_moe"
	[ "$status" -eq 1 ]
	grep -q "	only-a	F32	-	" <<< "$output"
	grep -q "	only-b	-	F32	" <<< "$output"
	grep -q "	shape	F32	F32	" <<< "$output"
	fails_with 66 moe-ckpt diff "$G" nowhere
}

@test "diff compares the optimizer when both have one, and says when one has none" {
	fresh 2
	run --separate-stderr moe-ckpt diff --tsv "$(step 1)" "$(step 2)"
	[ "$status" -eq 1 ]
	grep -q '^lm_head.weight.exp_avg	differs' <<< "$output"
	run --separate-stderr moe-ckpt diff -m --tsv "$(step 1)" "$(step 2)"
	[ "$status" -eq 1 ]
	run ! grep -q exp_avg <<< "$output"
	passes moe-ckpt diff "$(step 2)" "$RUN"
	mkdir only
	cp "$(step 2)"/model* only
	passes moe-ckpt diff only "$RUN"
	says "only has no optimizer state: only the model is compared"
}

@test "ls --plan names the owners of the plan that the checkpoint was saved under" {
	cd "$BATS_TEST_TMPDIR"
	# shellcheck disable=SC1091
	. "$ROOT/tests/examples/tiny"
	moe-train run -q -c my.yaml -o runs/a train.steps=2 checkpoint.every=2 > /dev/null
	moe-shard plan -c my.yaml > plan.tsv
	passes moe-ckpt ls --tsv -a --plan plan.tsv runs/a
	[ "${lines[0]##*	}" = owner ]
	[ "$(cut -f7 <<< "$output" | sort | uniq -c | awk '{ print $2 }' | tr '\n' ' ')" = "0 owner " ]
	moe-shard plan -c my.yaml --ranks 4 > four.tsv
	fails_with 65 moe-ckpt ls --plan four.tsv runs/a
	says "not the plan of"
	fails_with 65 moe-ckpt ls --plan plan.tsv "$ROOT/tests/golden/mixtral"
}
