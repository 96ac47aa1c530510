#!/usr/bin/env bats
# pack.bats -- moe-ckpt pack and unpack.

load lib

setup() {
	TOY=$MOE_BUILD/unit/test_ckpt_save
	cd "$BATS_TEST_TMPDIR" || return 1
}

@test "what was packed comes back byte for byte: a checkpoint, a model directory, one file" {
	"$TOY" save run 1 0
	passes moe-ckpt pack -o a.pack run
	passes moe-ckpt unpack a.pack a
	diff -r run/ckpt/step-00000001 a
	passes moe-ckpt verify a
	for case in glm4_moe olmoe qwen3_moe_dense; do
		moe-ckpt pack -q "$ROOT/tests/golden/$case" | moe-ckpt unpack -q - $case
		diff -r "$ROOT/tests/golden/$case" $case
		moe-ckpt convert -q -d bf16 "$ROOT/tests/golden/$case" half
		moe-ckpt pack -q half | moe-ckpt unpack -q - half2
		diff -r half half2
		rm -r half half2
	done
	moe-ckpt pack -q "$ROOT/tests/golden/olmoe/model.safetensors" | moe-ckpt unpack -q - one
	same one/model.safetensors "$ROOT/tests/golden/olmoe/model.safetensors"
	[ "$(ls one)" = model.safetensors ]
}

@test "--json counts what was packed and unpacked, and never mixes with the stream" {
	"$TOY" save run 1 0
	passes moe-ckpt pack --json -o a.pack run
	grep -qx '{"schema":"moe.ckpt-packed/1","path":"a.pack","how":"pack","files":'"$(find run/latest/ -type f | wc -l)"',.*"packed_bytes":'"$(stat -c %s a.pack)"',.*' <<< "$output"
	passes moe-ckpt unpack --json a.pack a
	grep -q '"path":"a","how":"unpack",.*"bytes":'"$(cat a/*.* a/optim/* | wc -c)"',"packed_bytes":'"$(stat -c %s a.pack)" <<< "$output"
	fails_with 2 moe-ckpt pack --json run
	says "--json needs -o FILE"
	fails_with 2 moe-ckpt unpack --json -t x a.pack
}

@test "one tensor is taken out of the middle, and a name that is not there is 1" {
	moe-ckpt pack -q -o a.pack "$ROOT/tests/golden/mixtral"
	for name in model.embed_tokens.weight model.layers.1.block_sparse_moe.experts.3.w2.weight lm_head.weight; do
		moe-ckpt unpack -t $name a.pack > got
		moe-ckpt cat -r "$ROOT/tests/golden/mixtral" $name | cmp - got
	done
	fails_with 1 moe-ckpt unpack -t nothing a.pack
	fails_with 2 moe-ckpt unpack -t lm_head.weight a.pack out
	fails_with 2 moe-ckpt unpack a.pack
}

# weights: big.safetensors, of 3 MiB: Gaussian-like BF16 made from sums of bytes.
weights() {
	local head='{"w":{"dtype":"BF16","shape":[1536,1024],"data_offsets":[0,3145728]}}   '
	printf '\110\0\0\0\0\0\0\0%s' "${head:0:72}"
	LC_ALL=C awk 'BEGIN {
		srand(7)
		for (i = 0; i < 4096; i++) {
			e = 60 + int(-log(rand() + 1e-9) * 1.44)	# exponents fall off by halves
			line = line sprintf("%c%c", 1 + int(rand() * 255), 128 - (e > 127 ? 127 : e))
		}
		for (i = 0; i < 384; i++)
			printf "%s", line
	}'
}

@test "a difference needs its base, is smaller, and comes back byte for byte" {
	"$TOY" save run 1 0
	"$TOY" save run 2 0
	a=run/ckpt/step-00000001 b=run/ckpt/step-00000002
	passes moe-ckpt pack -o b.pack --delta $a $b
	passes moe-ckpt unpack -b $a b.pack out
	diff -r $b out
	moe-ckpt unpack -b $a -t lm_head.weight b.pack | cmp - <(moe-ckpt cat -r $b lm_head.weight)
	fails_with 2 moe-ckpt unpack b.pack no
	says "--base CKPT"
	fails_with 2 moe-ckpt unpack -b $b b.pack no
	says "packed against another checkpoint than"
	fails_with 2 moe-ckpt pack -o c.pack --delta "$ROOT/tests/golden/mixtral" $b
	[ ! -e no ] && [ ! -e c.pack ]
	moe-ckpt pack -q -o same.pack --delta $b $b
	[ "$(stat -c %s same.pack)" -lt "$(stat -c %s b.pack)" ]
	# A base that is damaged is not used.
	printf X | dd of=$a/model-00001-of-00003.safetensors bs=1 seek=$(($(stat -c %s $a/model-00001-of-00003.safetensors) - 9)) conv=notrunc status=none
	fails_with 65 moe-ckpt unpack -b $a b.pack no
	says "checksum differs"
}

@test "chunks of weights shrink by a third, in several chunks and a plane that is stored" {
	weights > w.safetensors
	passes moe-ckpt verify -s w.safetensors
	passes moe-ckpt pack -o w.pack w.safetensors
	awk -v a="$(stat -c %s w.safetensors)" -v b="$(stat -c %s w.pack)" 'BEGIN { exit !(a / b > 1.3) }'
	passes moe-ckpt unpack w.pack w
	same w.safetensors w/w.safetensors
}

@test "any byte changed, any end missing, anything behind it: one line, 65, nothing left" {
	mkdir in
	moe-ckpt convert -q "$ROOT/tests/golden/olmoe" c
	cp c/config.json in
	head -c 20 "$ROOT/tests/golden/olmoe/config.json" > in/tokenizer.json
	printf '\100\0\0\0\0\0\0\0%-64s' '{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' > in/model.safetensors
	printf 'abcdefghijklmnop' >> in/model.safetensors
	moe-ckpt pack -q -o a.pack in
	size=$(stat -c %s a.pack)
	for ((byte = 0; byte < size; byte += 11)); do
		cp a.pack b.pack
		old=$(tail -c +$((byte + 1)) a.pack | head -c 1 | od -An -tu1)
		# shellcheck disable=SC2059
		printf "\\$(printf %o $(((old + 1) & 255)))" | dd of=b.pack bs=1 seek=$byte conv=notrunc status=none
		run --separate-stderr moe-ckpt unpack b.pack out
		if [ "$status" -ne 65 ] || [ "${#stderr_lines[@]}" -ne 1 ]; then
			echo "byte $byte of $size: status $status: $stderr"
			return 1
		fi
		rm -rf out
	done
	for ((byte = 0; byte < size; byte += 97)); do
		head -c $byte a.pack > b.pack
		fails_with 65 moe-ckpt unpack b.pack out
	done
	{ cat a.pack; printf x; } > b.pack
	fails_with 65 moe-ckpt unpack b.pack out
	says "bytes after the end of the stream"
	[ -z "$(find . -name '*out*')" ]
	fails_with 65 moe-ckpt unpack "$ROOT/README.md" out
	fails_with 66 moe-ckpt unpack nowhere out
	fails_with 73 moe-ckpt unpack a.pack in
	fails_with 73 moe-ckpt pack -o a.pack in
	passes moe-ckpt pack -f -o a.pack in
}

@test "damage in a checkpoint is found while it is packed" {
	"$TOY" save run 1 0
	printf X | dd of=run/ckpt/step-00000001/optim/optim-00001-of-00002.safetensors bs=1 seek=200 conv=notrunc status=none
	fails_with 65 moe-ckpt pack -o a.pack run
	says "checksum differs"
	[ ! -e a.pack ]
}

@test "the N-th write, fsync, rename or directory of pack and unpack fails, for every N: nothing is left" {
	need_preload fault
	exec 2> /dev/null		# the shell tells of every process killed
	"$TOY" save run 1 0
	moe-ckpt pack -q -o good.pack run
	for what in pack unpack; do
		if [ $what = pack ]; then cmd=(pack -q -o out run); else cmd=(unpack -q good.pack out); fi
		for kind in pwrite:EIO fsync:EIO rename:EIO mkdir:ENOSPC fallocate:ENOSPC any:KILL; do
			rm -rf out
			MOE_FAULT_DIR=$(pwd -P) MOE_FAULT_LOG=count LD_PRELOAD=$FAULT moe-ckpt "${cmd[@]}"
			total=$(awk -v kind="${kind%:*}" '$1 == kind { print $2 }' count)
			for ((n = 1; n <= ${total:-0}; n++)); do
				rm -rf out
				status=0
				MOE_FAULT_DIR=$(pwd -P) MOE_FAULT=${kind%:*}:$n:${kind#*:} LD_PRELOAD=$FAULT moe-ckpt "${cmd[@]}" 2> err || status=$?
				case $kind:$status in
				*KILL:137) [ $what = unpack ] || rm -f .out.* ;;	# the temporary file of a killed writer
				*:7[34]) [ -z "$(find . -name '.out*')" ] ;;
				*)
					echo "$what $kind:$n: status $status: $(cat err)"
					return 1
					;;
				esac
				[ ! -e out ] || [ $what = pack ] || diff -r run/ckpt/step-00000001 out
				[ ! -e out ] || [ $what = unpack ] || same good.pack out
				if [ $what = unpack ] && [ ! -e out ]; then
					moe-ckpt "${cmd[@]}"
					[ ! -e .out.moe-tmp ]
				fi
			done
		done
	done
}
