#!/usr/bin/env bats
# convert.bats -- moe-ckpt convert as a user meets it, and what every failure of it leaves behind.
#
# That each element goes where it belongs is the business of tests/unit/test_convert.c.

load lib

setup() {
	G=$ROOT/tests/golden
	cd "$BATS_TEST_TMPDIR" || return 1
}

convert() { moe-ckpt convert -q "$@"; }

@test "a golden model of every family becomes ours, and nothing changes a second time" {
	for case in glm4_moe glm4_moe_groups mixtral olmoe qwen2_moe qwen3_moe qwen3_moe_dense; do
		convert "$G/$case" "$case"
		passes moe-ckpt verify "$case"
		passes moe-ckpt diff "$G/$case" "$case"
		convert -d f32 "$case" again
		same "$case/config.json" again/config.json
		same "$case/model-00001-of-00001.safetensors" again/model-00001-of-00001.safetensors
		same "$case/model.safetensors.index.json" again/model.safetensors.index.json
		rm -r again
	done
}

@test "f32 to bf16 to f32 to bf16: the first rounding is the only one" {
	convert -d bf16 "$G/glm4_moe" a
	grep -q '"dtype": "bfloat16"' a/config.json
	grep -q '"torch_dtype": "bfloat16"' a/config.json
	[ "$(moe-ckpt ls --tsv a | awk '$2 == "F32" { print $1 }')" = model.layers.1.mlp.gate.e_score_correction_bias ]
	convert -d f32 a b
	convert -d bf16 b c
	same a/model-00001-of-00001.safetensors c/model-00001-of-00001.safetensors
	run --separate-stderr moe-ckpt diff --tsv a b
	[ "$status" -eq 1 ]
	[ "$(tail -n +2 <<< "$output" | cut -f2 | sort -u)" = type ]
	run --separate-stderr moe-ckpt diff --tsv "$G/glm4_moe" a
	# Rounding to nearest with 8 bits: at most 2^-8 / (1 + 2^-8) of the greater value.
	awk -F'\t' 'NR > 1 && $8 > 0.0039063 { bad = 1 } END { exit bad }' <<< "$output"
}

@test "a checkpoint of a run converts, its tokenizer and generation_config go along, the optimizer stays" {
	# shellcheck disable=SC1091
	. "$ROOT/tests/examples/tiny"
	moe-train run -q -c my.yaml -o runs/a train.steps=2 checkpoint.every=2 > /dev/null
	passes moe-ckpt convert --dtype bf16 runs/a hf
	says "the optimizer state stays in runs/a/ckpt/step-00000002"
	same hf/tokenizer.json runs/a/latest/tokenizer.json
	same hf/generation_config.json runs/a/latest/generation_config.json
	passes moe-ckpt info --json hf
	says '"step":2,'
	passes moe-ckpt convert -d f32 runs/a native
	passes moe-ckpt diff runs/a native
	says "identical"
	moe-train run -q -c my.yaml -o runs/b --init native train.steps=1 checkpoint.every=1 > /dev/null
	# Values rounded to bf16 once are the values of the bf16 file.
	convert -d f32 hf wide
	convert -d bf16 wide narrow
	same hf/model-00001-of-00001.safetensors narrow/model-00001-of-00001.safetensors
}

@test "--shard-size cuts the files, and the index names them" {
	convert --shard-size 20k "$G/mixtral" out
	n=$(find out -name 'model-*.safetensors' | wc -l)
	[ "$n" -gt 2 ]
	[ "$(find out -name "model-0000?-of-0000$n.safetensors" | wc -l)" -eq "$n" ]
	passes moe-ckpt verify out
	passes moe-ckpt diff out "$G/mixtral"
	for f in out/model-*; do [ "$(moe-ckpt info --json "$f" | sed 's/.*"model":{[^}]*"bytes":\([0-9]*\).*/\1/')" -le 20000 ]; done
}

@test "the same again is up to date; another way is 73, replaced with -f only if it is ours" {
	convert "$G/olmoe" out
	before=$(stat -c %i out)
	passes moe-ckpt convert "$G/olmoe" out
	says "out: up to date"
	[ "$(stat -c %i out)" = "$before" ]
	passes moe-ckpt convert --json "$G/olmoe" out
	says '"current":true'
	fails_with 73 moe-ckpt convert -d bf16 "$G/olmoe" out
	says "-f replaces it"
	passes moe-ckpt convert -f -d bf16 "$G/olmoe" out
	passes moe-ckpt verify out
	mkdir mine
	echo precious > mine/file
	fails_with 73 moe-ckpt convert -f "$G/olmoe" mine
	says "was not written by moe-ckpt"
	echo precious > file
	fails_with 73 moe-ckpt convert -f "$G/olmoe" file
	[ "$(cat mine/file file)" = "precious
precious" ]
	mkdir empty
	convert "$G/olmoe" empty/
	passes moe-ckpt verify empty
	convert "$G/olmoe" deep/er/out
	[ -z "$(find . -name '*.moe-tmp')" ]
}

@test "what cannot be converted is refused with the reason and what can be done instead" {
	for type in gpt_oss deepseek_v3 deepseek_v2; do
		mkdir -p $type
		cp "$G/mixtral/model.safetensors" $type
		echo "{\"model_type\": \"$type\"}" > $type/config.json
		fails_with 2 moe-ckpt convert $type out
		says "$type is not converted: "
		says "ls, info, verify --structure, cat and diff work on its files"
		passes moe-ckpt ls $type
	done
	echo '{"model_type": "llama"}' > gpt_oss/config.json
	fails_with 2 moe-ckpt convert gpt_oss out
	says '"llama" is not one of'
	fails_with 66 moe-ckpt convert "$G/mixtral/model.safetensors" out
	says "no config.json"
	run --separate-stderr moe-ckpt convert --to qwen3_moe "$G/mixtral" out
	[ "$status" -eq 2 ]
	says "use_qk_norm: qwen3_moe has head"
	says "a mixtral model that no qwen3_moe model equals"
	convert "$G/mixtral" there
	fails_with 2 moe-ckpt convert -d bf16 -f there there
	says "is the input"
	fails_with 2 moe-ckpt convert "$G/mixtral"
	fails_with 2 moe-ckpt convert -d f64 "$G/mixtral" out
	[ ! -e out ]
}

@test "missing and unknown tensors are all named, and nothing is written" {
	mkdir in
	cp "$G/mixtral/model.safetensors" in
	sed 's/"num_local_experts": 5/"num_local_experts": 6/' "$G/mixtral/config.json" > in/config.json
	fails_with 65 moe-ckpt convert in out
	says "model.layers.0.block_sparse_moe.experts.5.w1.weight: missing"
	says "model.layers.1.block_sparse_moe.gate.weight: 5x20, expected 6x20"
	sed 's/"num_local_experts": 5/"num_local_experts": 4/' "$G/mixtral/config.json" > in/config.json
	fails_with 65 moe-ckpt convert in out
	says "model.layers.1.block_sparse_moe.experts.4.w3.weight: not used: a second layout of the experts, or no such expert"
	sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$G/mixtral/config.json" > in/config.json
	fails_with 65 moe-ckpt convert in out
	says "lm_head.weight: there, although config.json ties it to the embedding"
	[ ! -e out ]
}

@test "a damaged checkpoint is not converted" {
	convert "$G/qwen3_moe" in
	printf X | dd of=in/model-00001-of-00001.safetensors bs=1 seek=30000 conv=notrunc status=none
	fails_with 65 moe-ckpt convert -q -d bf16 in out
	says "checksum differs"
	[ -z "$(find . -name '*out*')" ]
}

# every KIND ACTION: a conversion over an older one, whose N-th call fails.
every() {
	local n total status
	[ -d old ] || convert "$G/olmoe" old
	fresh() { rm -rf out .out*; cp -a old out; }
	fresh
	MOE_FAULT_DIR=$(pwd -P) MOE_FAULT_LOG=count LD_PRELOAD=$FAULT convert -f -d bf16 --shard-size 20k "$G/olmoe" out
	total=$(awk -v kind="$1" '$1 == kind { print $2 }' count)
	[ "${total:-0}" -gt 0 ] || {
		echo "a conversion makes no $1 call"
		return 1
	}
	for ((n = 1; n <= total; n++)); do
		fresh
		status=0
		MOE_FAULT_DIR=$(pwd -P) MOE_FAULT=$1:$n:$2 LD_PRELOAD=$FAULT moe-ckpt convert -q -f -d bf16 --shard-size 20k "$G/olmoe" out 2> err || status=$?
		case $2:$status in
		KILL:137 | TORN:137 | EINTR:0) ;;
		E*:7[34])
			[ "$(wc -l < err)" -eq 1 ] || {
				echo "$1:$n:$2: more than one line of error: $(cat err)"
				return 1
			}
			if [ "$1" != unlink ] && [ -n "$(find . -name '.out*')" ]; then
				echo "$1:$n:$2: a temporary is left"
				return 1
			fi
			;;
		*)
			echo "$1:$n:$2: status $status: $(cat err)"
			return 1
			;;
		esac
		moe-ckpt verify -q out > /dev/null || {
			echo "$1:$n:$2: what is there is not whole"
			return 1
		}
		convert -f -d bf16 --shard-size 20k "$G/olmoe" out && moe-ckpt verify -q out > /dev/null && [ "$(find out -name 'model-*' | wc -l)" -gt 1 ] || {
			echo "$1:$n:$2: the next conversion fails"
			return 1
		}
		[ -z "$(find . -name '.out*')" ] || {
			echo "$1:$n:$2: a temporary is left after the next conversion: $(find . -name '.out*')"
			return 1
		}
	done
}

@test "the N-th write, fsync, rename, link or directory of a conversion fails, for every N: the older one is whole" {
	need_preload fault
	every pwrite EIO
	every fallocate ENOSPC
	every fsync EIO
	every rename EIO
	every mkdir ENOSPC
}

@test "killed at the N-th call that changes a file, for every N: something whole is there" {
	need_preload fault
	exec 2> /dev/null		# the shell tells of every process killed
	every any KILL
}

@test "a second writer of the same directory is told so" {
	need flock
	convert "$G/olmoe" other
	mkdir .out.moe-tmp
	exec 8< .out.moe-tmp
	flock -n 8
	fails_with 77 moe-ckpt convert "$G/olmoe" out
	says "another process is writing it"
	exec 8<&-
	touch .out.moe-tmp/leftover
	convert "$G/olmoe" out
	[ ! -e .out.moe-tmp ] && [ ! -e out/leftover ]
}

# sparse LAYERS EXPERTS HIDDEN: a model in big/ whose values are a hole; the
# bytes of its tensors are left in $data.
sparse() {
	mkdir big
	read -r header data < <(awk -v dir=big -v layers="$1" -v experts="$2" -v hidden="$3" -v inter=1024 -v vocab=1024 -v dtype=F32 -f "$ROOT/tests/sparse_model.awk")
	for shift in 0 8 16 24 32 40 48 56; do
		# shellcheck disable=SC2059
		printf "\\$(printf %o $((header >> shift & 255)))"
	done > big/model.safetensors
	cat big/header >> big/model.safetensors
	rm big/header
	truncate -s $((8 + header + data)) big/model.safetensors
}

# shrinks LIMIT: big/ becomes bf16 within so many KiB of address space.
shrinks() {
	(
		ulimit -v "$1"
		convert -d bf16 big out
	)
	[ "$(moe-ckpt info --json out | sed 's/.*"model":{[^}]*"bytes":\([0-9]*\).*/\1/')" -eq $((data / 2)) ]
	rm -r out big
}

@test "2 GiB are converted in less memory than a tenth of it" {
	[ -z "${MOE_SAN-}" ] || skip "a sanitizer build needs its own address space"
	[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt 3000000 ] || skip "less than 3 GB free"
	sparse 2 84 1024
	[ "$data" -gt 2147483648 ]
	shrinks 200000
}

@test "40 GiB are converted in 256 MiB and two tensors" {
	[ -n "${MOE_LONG-}" ] || skip "only in make check-long"
	[ -z "${MOE_SAN-}" ] || skip "a sanitizer build needs its own address space"
	[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt $((80 << 20)) ] || skip "less than 80 GiB free"
	sparse 14 124 2048
	[ "$data" -gt $((40 << 30)) ]
	shrinks $(((256 + 2 * 8) << 10))
}
