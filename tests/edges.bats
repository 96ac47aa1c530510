#!/usr/bin/env bats
# edges.bats -- the edges of the machine: few descriptors, long names, rights,
# closed streams, pipes where files belong, a disk too slow for the end of a job;
# and files of an earlier or a later version.

load train_lib

setup() {
	TOY=$MOE_BUILD/unit/test_ckpt_save
	G=$ROOT/tests/golden
	OLD=$ROOT/tests/old/1
	cd "$BATS_TEST_TMPDIR" || return 1
}

# many: a model of 57 files.
many() { moe-ckpt convert -q --shard-size 1k "$G/olmoe" many; }

@test "16 descriptors are enough for a model of 57 files, and with 6 there is one line" {
	many
	moe-ckpt pack -q -o whole many
	for few in 16 6; do
		for what in 'verify many' 'ls many' 'info many' 'diff many many' 'convert -q -d bf16 many out' 'reshard -q -n 2 many out' \
			'average -q many many many many out' 'pack -q -o out many' 'unpack -q whole out'; do
			status=0
			# shellcheck disable=SC2086
			(
				ulimit -n $few
				exec moe-ckpt $what
			) > said 2> err || status=$?
			case $few:$status in
			16:0 | 6:0) ;;
			6:7[34])
				[ "$(wc -l < err)" -eq 1 ]
				grep -q 'Too many open files' err
				[ ! -e out ]
				;;
			*)
				echo "$few, $what: status $status"
				cat err
				return 1
				;;
			esac
			# Six are too few to remove a directory too: the next call does it.
			[ $few = 6 ] || [ -z "$(find . -name '*.moe-tmp')" ]
			rm -rf out .out.*
		done
	done
}

@test "a name of 255 bytes is taken, a longer one is refused with its reason" {
	"$TOY" save run 1 0
	moe-ckpt pack -q -o whole run
	name=$(printf 'n%.0s' $(seq 255))
	for what in 'convert -q many' 'reshard -q -n 2 many' 'pack -q run -o' 'unpack -q whole'; do
		[ -d many ] || many
		# shellcheck disable=SC2086
		passes moe-ckpt $what "$name"
		[ -e "$name" ]
		rm -r "$name"
		# shellcheck disable=SC2086
		fails_with 73 moe-ckpt $what "${name}n"
		says 'File name too long'
		[ -z "$(find . -name '.n*')" ]
	done
	fails_with 66 moe-ckpt verify "${name}n"
	"$TOY" save "$name" 1 0
	passes moe-ckpt verify "$name"
}

@test "no right to write, or a file system that is read-only, is one line that says so" {
	need_preload fault
	many
	"$TOY" save run 1 0
	"$TOY" save run 2 0
	moe-ckpt pack -q -o whole run
	for error in EACCES:'Permission denied' EROFS:'Read-only file system' ESTALE:'Stale file handle'; do
		for what in 'convert -q many out' 'reshard -q -n 2 many out' 'pack -q -o out run' 'unpack -q whole out' 'average -q many many out'; do
			kind="mkdir"
			[[ $what != pack* ]] || kind="fsync"
			# shellcheck disable=SC2086
			MOE_FAULT_DIR=$(pwd -P) MOE_FAULT=$kind:1+:${error%:*} LD_PRELOAD=$FAULT run --separate-stderr moe-ckpt $what
			echo "$what: $status $stderr"
			[[ $status = 7[34] ]]
			[ "${#stderr_lines[@]}" -eq 1 ]
			# Of a stale handle the folder tells first.
			says out || [ ${error%:*} = ESTALE ]
			says "${error#*:}"
			[ ! -e out ]
		done
		MOE_FAULT_DIR=$(pwd -P)/run MOE_FAULT=unlink:1+:${error%:*} LD_PRELOAD=$FAULT fails_with 74 moe-ckpt gc -q --keep 1 run
		says "${error#*:}"
		passes moe-ckpt verify run
		# What cannot be read is not absent, not damaged, and no reason to go back to an older one.
		for file in MANIFEST.json config.json model.safetensors.index.json optim/index.json model-00002-of-00003.safetensors; do
			for cmd in 'verify run' 'pack -o out run' 'ls run'; do
				[ "$cmd:$file" != 'ls run:config.json' ] || continue
				# shellcheck disable=SC2086
				MOE_FAULT_DIR=$(pwd -P)/run/ckpt/step-00000002/$file MOE_FAULT=open:1+:${error%:*} LD_PRELOAD=$FAULT fails_with 74 moe-ckpt $cmd
				says "step-00000002/$file: ${error#*:}"
				[ ! -e out ]
			done
		done
	done
}

@test "with streams closed every command works on files or says what it lacks; with a full one it is 74" {
	many
	"$TOY" save run 1 0
	moe-ckpt pack -q -o whole run
	for what in 'ls many' 'ls --json many' 'info many' 'verify many' 'cat many model.norm.weight' 'cat -r many model.norm.weight' 'pack -q many' \
		'unpack -t model.scalar whole' 'gc -n --keep 1 run'; do
		for to in '> /dev/full' '>&-'; do
			eval "moe-ckpt $what $to" 2> err && return 1 || status=$?
			[ $status -eq 74 ] && [ "$(grep -c '^moe-ckpt: standard output: ' err)" -eq 1 ] || {
				echo "$what $to: $status"
				cat err
				return 1
			}
		done
		# A reader that leaves is quiet.
		eval "moe-ckpt $what" 2> err < /dev/null | head -c 1 > first
		[ "$(grep -vc 'would go' err)" -eq 0 ]
	done
	for closed in '2>&-' '>&-' '<&-' '<&- >&- 2>&-'; do
		eval "moe-ckpt convert many out $closed"
		eval "moe-ckpt pack -o packed many $closed"
		eval "moe-ckpt unpack packed again $closed"
		passes moe-ckpt verify out again
		rm -r out packed again
	done
	fails_with 74 sh -c 'exec moe-ckpt unpack - out <&-'
	says 'standard input'
	[ ! -e out ]
}

@test "a pipe or a device where a file belongs is refused, and nobody waits" {
	many
	mkfifo pipe
	for what in 'ls pipe' 'info pipe' 'verify pipe' 'cat pipe x' 'diff pipe many' 'convert pipe out' 'pack -o out pipe' 'unpack -t x pipe' \
		'ls /dev/zero' 'verify /dev/zero' 'unpack -t x /dev/zero' 'convert /dev/zero out'; do
		# shellcheck disable=SC2086
		run --separate-stderr timeout 10 moe-ckpt $what
		echo "$what: $status $stderr"
		[[ $status = 65 || $what:$status = verify*:1 ]]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[ ! -e out ]
	done
	for file in config.json model-00003-of-00057.safetensors MANIFEST.json; do
		mv "many/$file" aside
		mkfifo "many/$file"
		for what in 'convert many out' 'pack -o out many' 'reshard -n 2 many out' 'average many many out'; do
			# shellcheck disable=SC2086
			run --separate-stderr timeout 10 moe-ckpt $what
			echo "$what: $status $stderr"
			[ "$status" -eq 65 ]
			says "$file: n"	# no regular file, neither a file nor a directory
			[ ! -e out ]
		done
		rm "many/$file"
		mv aside "many/$file"
	done
}

@test "links under the names of temporaries are not followed" {
	many
	"$TOY" save run 1 0
	"$TOY" save victim 1 0
	cp -a victim whole
	moe-ckpt pack -q -o packed run
	for what in 'convert many' 'reshard -n 2 many' 'unpack packed' 'average many many'; do
		ln -s victim/ckpt/step-00000001 .out.moe-tmp
		# shellcheck disable=SC2086
		fails_with 73 moe-ckpt $what out
		says '.out.moe-tmp: Not a directory'
		diff -r whole victim
		rm .out.moe-tmp
		ln -s victim/ckpt/step-00000001 .out.old.moe-tmp
		# shellcheck disable=SC2086
		moe-ckpt $what out
		diff -r whole victim
		rm -rf out .out.old.moe-tmp
	done
}

@test "files of the first version are read" {
	passes moe-ckpt verify "$OLD/step"
	passes "$TOY" load "$OLD/step" 1
	passes moe-ckpt unpack -q "$OLD/whole.moepack" whole
	diff -r "$OLD/step" whole
	passes moe-ckpt unpack -q -b "$OLD/step" "$OLD/delta.moepack" two
	passes "$TOY" load two 2
	passes moe-ckpt diff -q "$OLD/step" whole
}

@test "files of a later version are refused by name" {
	moe-ckpt pack -q -o whole "$OLD/step"
	sed '1s/^MOEPACK1/MOEPACK2/' whole > later
	fails_with 65 moe-ckpt unpack later out
	says later
	cp -r "$OLD/step" step
	sed 's|moe.checkpoint/1|moe.checkpoint/2|' step/MANIFEST.json > text
	# Whoever wrote it knew its own hash.
	printf '%s' "$(sed 's/"self":.*//' text)" > head
	mv text step/MANIFEST.json
	for cmd in ls verify info; do
		run --separate-stderr moe-ckpt $cmd step
		[[ $status = 65 || $cmd:$status = verify:1 ]]
		says 'step/MANIFEST.json'
	done
	[ ! -e out ]
}

@test "TERM, and KILL while a slow disk still takes the checkpoint: the old one, and the same end" {
	need_preload slow_disk
	tiny_setup
	train straight train.steps=6 checkpoint.every=2 eval.every=0
	MOE_SLOW_FSYNC=1 LD_PRELOAD=$FAULT moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run train.steps=6 checkpoint.every=2 eval.every=0 \
		> rows 2> err 3>&- &
	pid=$!
	wait_for 60 grep -qs '"step":3,' run/metrics.jsonl
	# The next save takes that disk ten seconds.
	wait_for 30 test -d run/ckpt/step-00000004.tmp
	kill -TERM $pid
	sleep 0.5
	kill -KILL $pid
	status=0
	wait $pid || status=$?
	[ $status -eq 137 ]
	[ "$(readlink run/latest)" = ckpt/step-00000002 ]
	passes moe-ckpt verify run
	passes train run train.steps=6 checkpoint.every=2 eval.every=0
	same_state run straight 6
	[ -z "$(find run -name '*.tmp' -o -name '*.moe-tmp')" ]
}
