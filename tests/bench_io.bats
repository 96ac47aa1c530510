#!/usr/bin/env bats
# bench_io.bats -- moe-bench io: the disk and the packer beside plain files and zstd.

load lib

setup() { cd "$BATS_TEST_TMPDIR" || return 1; }

@test "io prints a row for each test, with shares of the plain ones, and leaves nothing behind" {
	run --separate-stderr moe-bench io -n 2 --size 32Mi --tsv
	[ "$status" -eq 0 ]
	[ "$(head -n 1 <<< "$output" | cut -f 1-4)" = $'#test\tdata\tcache\tbytes' ]
	[ "$(awk -F'\t' 'NR > 1 { print $1 "," $2 "," $3 }' <<< "$output" | tr '\n' ';')" = "write plain,f32,-;write,f32,-;read plain,f32,cold;read,f32,cold;verify,f32,cold;read plain,f32,warm;read,f32,warm;verify,f32,warm;pack,bf16,warm;zstd -1,bf16,warm;zstd -3,bf16,warm;pack,f32,warm;zstd -1,f32,warm;zstd -3,f32,warm;" ]
	awk -F'\t' 'NR > 1 && ($1 == "write" || $1 == "read" || $1 == "verify") { n++; if (!($4 == 33554432 && $7 > 0 && $8 > 0)) exit 1 } END { exit n != 5 }' <<< "$output"
	# Planes of bf16 with a scale for each row: 8 bits of noise in 16, and an exponent of about 2.6.
	awk -F'\t' '$1 == "pack" && $2 == "bf16" { n++; if (!($10 > 1.4 && $10 < 1.6)) exit 1 } END { exit n != 1 }' <<< "$output"
	[ -z "$(ls -d moe-bench-io-* 2> /dev/null)" ]
}

@test "io packs a checkpoint that is given, and takes a directory" {
	mkdir there
	run --separate-stderr moe-bench io -n 1 --size 16Mi -C there --json "$ROOT/tests/golden/mixtral/model.safetensors"
	[ "$status" -eq 0 ]
	[ "$(grep -c '"data":"given"' <<< "$output")" -eq 3 ]
	[ "$(grep -c '"data":"bf16"' <<< "$output")" -eq 0 ]
	[ -z "$(ls there)" ]
}

@test "io refuses what it cannot do in one line and removes what it made" {
	fails_with 66 moe-bench io -C nowhere
	fails_with 66 moe-bench io -n 1 --size 16Mi nowhere
	fails_with 2 moe-bench io --size 1
	fails_with 2 moe-bench io --json --tsv
	fails_with 73 moe-bench io --size 900T
	echo none > bad.safetensors
	fails_with 65 moe-bench io -n 1 --size 16Mi bad.safetensors
	[ -z "$(ls -d moe-bench-io-* 2> /dev/null)" ]
}
