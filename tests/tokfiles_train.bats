#!/usr/bin/env bats
# tokfiles_train.bats -- what merge and --shards make is what training takes.

load train_lib

setup() {
	cd "$BATS_TEST_TMPDIR" || exit
	tiny_setup
}

short() { train "$1" train.steps=3 checkpoint.every=0 eval.every=0 "${@:2}" > /dev/null; }

@test "training on a merged file is training on the file of all texts" {
	head -n 40 text > first
	tail -n +41 text > second
	for x in first second; do moe-tokenize encode -q -t tok.json --docs blank -o set.$x $x; done
	moe-tokenize merge -q -o merged set.first set.second
	moe-tokenize encode -q -t tok.json --docs blank -o once first second
	short a merged
	short b once
	losses a > la
	losses b > lb
	[ "$(wc -l < la)" -ge 3 ]
	same la lb
}

@test "shards are sets of a mixture, and merged from Megatron's own they train too" {
	moe-tokenize encode -q -t tok.json --docs blank --shards 2 -o part text
	short a part-00000-of-00002 part-00001-of-00002
	[ "$(losses a | wc -l)" -ge 3 ]
	rm part-0000?-of-00002.json
	run moe-train run -q -j 1 --peak 100 -c tiny.yaml -o b part-00000-of-00002
	[ "$status" -eq 65 ]
	says 'no sidecar'
	moe-tokenize merge -q --foreign -t tok.json -o mine part-00000-of-00002 part-00001-of-00002
	short c mine
	[ "$(losses c | wc -l)" -ge 3 ]
}
