#!/usr/bin/env bats
# rewrite.bats -- moe-ckpt gc, reshard and average.

load lib

setup() {
	TOY=$MOE_BUILD/unit/test_ckpt_save
	cd "$BATS_TEST_TMPDIR" || return 1
}

steps() { (cd "$1/ckpt" && echo step-*) | sed 's/step-0*//g'; }

# toys N: a run with N checkpoints and an evaluation of each; the loss of step s is (s-3)^2.
toys() {
	for ((s = 1; s <= $1; s++)); do
		"$TOY" save run "$s" 0
		echo '{"schema":"moe.metrics/1","step":'$s',"loss":1,"nonfinite":[]}'
		echo '{"schema":"moe.eval/1","step":'$s',"set":"de","tokens":10,"loss":'$(((s - 3) * (s - 3)))',"ppl":'$((100 - s))',"bits_per_byte":null,"nonfinite":["bits_per_byte"]}'
		echo '{"schema":"moe.eval/1","step":'$s',"set":"fr","tokens":10,"loss":'$(((s - 5) * (s - 5)))',"ppl":'$((100 - s))',"bits_per_byte":2,"nonfinite":[]}'
	done > metrics
	printf '{"schema":"moe.eval/1","step":9,"torn' >> metrics
	mv metrics run/metrics.jsonl
}

@test "gc keeps the newest, every M-th and the best, shows it first and removes the rest" {
	toys 6
	passes moe-ckpt gc --dry-run --keep 1 --every 2 --best 1 --set de run
	says "run: 2 of 6 checkpoints would go"
	[ "$(steps run)" = "1 2 3 4 5 6" ]
	passes moe-ckpt gc --tsv --keep 1 --every 2 --best 1 --set de run
	[ "$(awk -F'\t' 'NR > 1 { printf "%s:%s:%s ", $1, $4, $5 }' <<< "$output")" = \
		"1:false:- 2:true:every 3:true:best 4:true:every 5:false:- 6:true:newest " ]
	[ "$(steps run)" = "2 3 4 6" ]
	passes moe-ckpt verify run run/ckpt/step-*
	passes moe-ckpt gc --keep 1 --best 1 --set fr --metric ppl run
	[ "$(steps run)" = 6 ]
}

@test "gc --best averages the sets, a tie goes to the newer, and what has no number is never best" {
	toys 6
	passes moe-ckpt gc -n --json --keep 1 --best 1 run
	grep '"step":4,' <<< "$output" | grep -q '"metric":1,"keep":true,"why":"best"'
	fails_with 65 moe-ckpt gc -n --keep 1 --best 1 --metric bits_per_byte --set de run
	says "no bits_per_byte of an evaluation of de"
	fails_with 65 moe-ckpt gc -n --keep 1 --best 1 --set xx run
	rm run/metrics.jsonl
	fails_with 66 moe-ckpt gc --keep 1 --best 1 run
	[ "$(steps run)" = "1 2 3 4 5 6" ]
}

@test "gc never removes what latest names, nor anything when the newest is damaged" {
	toys 4
	ln -sfn ckpt/step-00000002 run/latest
	passes moe-ckpt gc --keep 1 run
	[ "$(steps run)" = "2 4" ]
	toys 4
	printf X | dd of=run/ckpt/step-00000004/optim/optim-00001-of-00002.safetensors bs=1 seek=200 conv=notrunc status=none
	fails_with 65 moe-ckpt gc --keep 1 run
	says "checksum differs; nothing was removed, since the newest checkpoint that would stay is damaged"
	[ "$(steps run)" = "1 2 3 4" ]
	fails_with 2 moe-ckpt gc run
	fails_with 66 moe-ckpt gc --keep 1 nowhere
	mkdir empty
	fails_with 66 moe-ckpt gc --keep 1 empty
}

@test "gc leaves a live run alone: 77; leftovers of killed saves go" {
	# shellcheck disable=SC1091
	. "$ROOT/tests/examples/tiny"
	moe-train run -q -c my.yaml -o run train.steps=1000000 checkpoint.every=1000 > /dev/null 2>&1 3>&- &
	pid=$!
	for _ in $(seq 200); do
		[ "$(wc -l < run/metrics.jsonl 2> /dev/null || echo 0)" -gt 2 ] && break
		sleep 0.05
	done
	touch run/save
	for _ in $(seq 200); do
		[ -L run/latest ] && break
		sleep 0.05
	done
	fails_with 77 moe-ckpt gc --keep 1 run
	passes moe-ckpt gc -n --keep 1 run
	kill "$pid"
	wait "$pid" || true
	mkdir run/ckpt/step-99999999.tmp
	passes moe-ckpt gc --keep 1 run
	[ "$(find run/ckpt -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
}

@test "gc killed or failing at the N-th call, for every N: what stays verifies, and the next one finishes" {
	need_preload fault
	toys 3
	exec 2> /dev/null		# the shell tells of every process killed
	cp -a run whole
	MOE_FAULT_DIR=$(pwd -P) MOE_FAULT_LOG=count LD_PRELOAD=$FAULT moe-ckpt gc -q --keep 1 run > /dev/null
	total=$(awk '$1 == "any" { print $2 }' count)
	[ "$total" -gt 5 ]
	for action in KILL EIO; do
		for ((n = 1; n <= total; n++)); do
			rm -rf run
			cp -a whole run
			status=0
			MOE_FAULT_DIR=$(pwd -P) MOE_FAULT=any:$n:$action LD_PRELOAD=$FAULT moe-ckpt gc -q --keep 1 run > /dev/null 2>&1 || status=$?
			# The last calls give the lock back, which is no failure of the work.
			[ $status -ne 0 ] || [ "$(echo run/ckpt/*)" = run/ckpt/step-00000003 ]
			moe-ckpt verify -q run run/ckpt/step-????????/ > /dev/null
			moe-ckpt gc -q --keep 1 run > /dev/null
			[ "$(echo run/ckpt/*)" = run/ckpt/step-00000003 ]
		done
	done
}

# trained: runs/a with steps 1 to 3.
trained() {
	# shellcheck disable=SC1091
	. "$ROOT/tests/examples/tiny"
	moe-train run -q -c my.yaml -o runs/a train.steps=3 checkpoint.every=1 checkpoint.keep=0 > /dev/null
}

@test "a resharded checkpoint is the same, optimizer and all, and training goes on from it" {
	trained
	passes moe-ckpt reshard --files 5 runs/a/ckpt/step-00000002 five
	[ "$(find five -name 'model-0000?-of-00005.safetensors' | wc -l)" -eq 5 ]
	passes moe-ckpt verify five
	passes moe-ckpt diff five runs/a/ckpt/step-00000002
	says "identical"
	run ! grep -q "only the model" <<< "$stderr"
	passes moe-ckpt reshard --shard-size 1G five one
	same one/model-00001-of-00001.safetensors runs/a/ckpt/step-00000002/model-00001-of-00001.safetensors
	same one/optim/optim-00001-of-00001.safetensors runs/a/ckpt/step-00000002/optim/optim-00001-of-00001.safetensors
	fails_with 73 moe-ckpt reshard five one
	cp -a runs/a runs/b
	rm -r runs/b/ckpt/step-0000000[23] runs/b/latest
	mv five runs/b/ckpt/step-00000002
	ln -s ckpt/step-00000002 runs/b/latest
	moe-train run -q -c my.yaml -o runs/b train.steps=3 checkpoint.every=1 checkpoint.keep=0 > /dev/null
	passes moe-ckpt diff runs/a runs/b
	says "identical"
}

@test "reshard takes any model, and refuses what it could only guess" {
	mkdir any
	cp "$ROOT/tests/golden/mixtral/model.safetensors" any
	echo '{"model_type": "gpt_oss"}' > any/config.json
	passes moe-ckpt reshard -n 3 any out
	passes moe-ckpt verify out
	passes moe-ckpt diff any out
	same any/config.json out/config.json
	passes moe-ckpt reshard -n 3 any out
	says "up to date"
	fails_with 2 moe-ckpt reshard any any
}

@test "the mean of one model is the model; weights and a running mean are what they say" {
	trained
	a=runs/a/ckpt/step-00000001 b=runs/a/ckpt/step-00000002 c=runs/a/ckpt/step-00000003
	passes moe-ckpt average $a $a $a same
	passes moe-ckpt diff -m same $a
	says identical
	passes moe-ckpt average -w 2,0 $a $b first
	passes moe-ckpt diff -m first $a
	passes moe-ckpt average --ema 0.5 $a $b $c running
	passes moe-ckpt average -w 0.25,0.25,0.5 $a $b $c listed
	passes moe-ckpt diff running listed
	passes moe-ckpt verify running
	passes moe-ckpt average $a $b mean
	name=model.layers.1.input_layernorm.weight
	values() { moe-ckpt cat -r "$1" $name | od -An -v -w4 -t fF; }
	paste <(values $a) <(values $b) <(values mean) |
		awk '{ d = $3 - ($1 + $2) / 2; if (d < -1e-6 || d > 1e-6) bad = 1; n += $1 != $2 } END { exit bad || !n || NR != 32 }'
	passes moe-ckpt average $a $b mean
	says "up to date"
	fails_with 2 moe-ckpt average -w 1 $a $b no
	fails_with 2 moe-ckpt average -w 1,-1 $a $b no
	fails_with 2 moe-ckpt average -w 1,1 --ema 0.5 $a $b no
	fails_with 65 moe-ckpt average "$ROOT/tests/golden/mixtral" "$ROOT/tests/golden/olmoe" no
	mkdir other
	cp "$ROOT/tests/golden/mixtral/model.safetensors" other
	sed 's/"rope_theta": 1000000.0/"rope_theta": 10000.0/' "$ROOT/tests/golden/mixtral/config.json" > other/config.json
	fails_with 65 moe-ckpt average "$ROOT/tests/golden/mixtral" other no
	says "other/config.json: another model than"
	[ ! -e no ]
}
