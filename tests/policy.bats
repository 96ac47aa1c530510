#!/usr/bin/env bats
# policy.bats -- which checkpoints a run makes and keeps: ordinary ones in turn,
# major ones for good, light ones of the model alone.

load train_lib

# kinds ASYNC RUN [ARG...]: 24 steps, with all kinds.
kinds() {
	local async=$1 run=$2
	shift 2
	moe-train run -j 1 --peak 100 -c kinds.yaml -o "$run" checkpoint.async="$async" "$@" > /dev/null
}

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	sed -e 's/steps: 9/steps: 24/; s/kind: cosine/kind: constant/; s/^eval:.*/eval: {every: 0}/' \
		-e 's/^checkpoint:.*/checkpoint: {every: 4, keep: 2, light_every: 3, light_keep: 2, major_every: 10}/' tiny.yaml > kinds.yaml
	train each train.steps=24 optim.schedule.kind=constant checkpoint.every=1 eval.every=0
	kinds false kinds 2> said
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,kinds.yaml,train.*,valid.*} .
	EACH=$BATS_FILE_TMPDIR/data/each
	DATA=$BATS_FILE_TMPDIR/data
}

steps() { for d in "$1"/ckpt/step-????????; do expr "${d##*-}" + 0; done | xargs; }
step() { printf '%s/ckpt/step-%08d' "$1" "$2"; }

@test "each kind in its time, and of each what is to be kept: the newest, all major ones, the newest light ones" {
	[ "$(sed -n 's/.*saved step //p' "$DATA/said" | tr '\n' ';')" = \
		'3, light;4;6, light;8;9, light;10, major;12;15, light;16;18, light;20, major;21, light;24;' ]
	[ "$(steps "$DATA/kinds")" = '10 18 20 21 24' ]
	[ "$(readlink "$DATA/kinds/latest")" = ckpt/step-00000024 ]
	for kind in 10:major 18:light 20:major 21:light; do
		head -c 60 "$(step "$DATA/kinds" "${kind%:*}")/MANIFEST.json" | grep -q '^{"format":"moe.checkpoint/1","kind":"'"${kind#*:}"'","tool":'
		passes moe-ckpt verify "$(step "$DATA/kinds" "${kind%:*}")"
		says "ok: ${kind#*:}, "
		passes moe-ckpt info "$(step "$DATA/kinds" "${kind%:*}")"
		says "${kind#*:} checkpoint"
	done
	# Others say nothing, so that programs that do not know kinds are right.
	head -c 60 "$(step "$DATA/kinds" 24)/MANIFEST.json" | grep -q '^{"format":"moe.checkpoint/1","tool":'
	passes moe-ckpt verify "$DATA/kinds"
	says 'ok: 7 files'
}

@test "beside the steps the same ones are made, byte for byte" {
	kinds true run 2> said
	[ "$(sed -n 's/.*saved step \([^:]*\):.*/\1/p' said | tr '\n' ';')" = \
		'3, light;4;6, light;8;9, light;10, major;12;15, light;16;18, light;20, major;21, light;24;' ]
	[ "$(steps run)" = '10 18 20 21 24' ]
	for s in 10 18 20 21 24; do
		passes same_tensors "$(step "$DATA/kinds" $s)" "$(step run $s)"
	done
	grep -q '"mem_planned":\([0-9]*\),"mem_used":\1,' run/metrics.jsonl
}

@test "a light checkpoint holds the model of its step and nothing else" {
	light=$(step "$DATA/kinds" 21)
	[ "$(ls "$light")" = "$(printf '%s\n' MANIFEST.json config.json generation_config.json model-00001-of-00001.safetensors \
		model.safetensors.index.json tokenizer.json)" ]
	for f in config.json tokenizer.json generation_config.json model-00001-of-00001.safetensors; do
		same "$light/$f" "$(step "$EACH" 21)/$f"
	done
	# What needs the model takes it.
	passes moe-train eval -j 1 --json --from "$light"
	same <(echo "$output") <(moe-train eval -j 1 --json --from "$(step "$EACH" 21)")
	printf '\1\0\0\0' | moe-train sample -j 1 --from "$light" -n 3 --temperature 0 > sampled
	passes moe-ckpt convert "$light" hf
	passes moe-ckpt ls "$light"
	passes moe-train run -q -j 1 --peak 100 -c tiny.yaml -o new --init "$light" train.steps=3
}

@test "what needs optimizer state refuses a light checkpoint and says why" {
	light=$(step "$DATA/kinds" 21)
	for command in 'moe-train grad -j 1 -o g' 'moe-optstep -j 1 -o out --grads g'; do
		# shellcheck disable=SC2086
		fails_with 65 $command --from "$light"
		says "$light: a light checkpoint: it holds the model without optimizer state"
		[ ! -e g ] && [ ! -e out ]
	done
}

@test "a run whose newest checkpoint is light goes on from the newest one with state, says so, and ends the same" {
	for latest in there broken; do
		rm -rf run
		cp -r "$DATA/kinds" run
		rm -r "$(step run 24)"
		if [ $latest = there ]; then ln -sfn ckpt/step-00000020 run/latest; else rm run/latest; fi
		kinds false run 2> said
		grep -q 'step 21 is a light checkpoint, which holds no optimizer state: a run cannot go on from it' said
		grep -q 'going on from run/ckpt/step-00000020: step 20 of 24' said
		passes same_tensors "$(step run 24)" "$(step "$EACH" 24)"
		[ "$(steps run)" = '10 18 20 21 24' ]
	done
}

@test "a run with light checkpoints alone begins again with a warning, and is not taken for done" {
	cp -r "$DATA/kinds" run
	rm -r run/latest "$(step run 10)" "$(step run 20)" "$(step run 24)"
	passes moe-train status run
	says 'no checkpoint to go on from yet'
	says '2 light ones, newest step 21'
	kinds false run train.steps=21 2> said
	grep -q 'warn: run has light checkpoints alone, which hold no optimizer state: the run begins again' said
	# The last step is never light, also where it was.
	[ -d "$(step run 21)/optim" ]
	[ "$(readlink run/latest)" = ckpt/step-00000021 ]
	passes same_tensors "$(step run 21)" "$(step "$EACH" 21)"
}

@test "a step that has state is not replaced by a light one when a run comes by again" {
	cp -r "$EACH" run
	rm -r "$(step run 24)"
	ln -sfn ckpt/step-00000005 run/latest
	kinds false run checkpoint.every=0 checkpoint.major_every=0 checkpoint.keep=0 2> said
	grep -q 'saved step 6$' said
	run -1 grep ', light' said
	[ "$(steps run)" = "$(seq -s ' ' 1 24)" ]
	for s in 6 9 21 24; do
		passes moe-ckpt verify -q "$(step run $s)"
		passes same_tensors "$(step run $s)" "$(step "$EACH" $s)"
	done
}

@test "major checkpoints outlive a change of the configuration" {
	cp -r "$DATA/kinds" run
	moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run train.steps=30 optim.schedule.kind=constant checkpoint.every=2 checkpoint.keep=1 \
		checkpoint.light_keep=1 eval.every=0 > /dev/null
	[ "$(steps run)" = '10 20 21 30' ]
}

@test "gc: major ones stay, light ones are counted apart, and what must verify is one that a run can go on from" {
	cp -r "$DATA/kinds" run
	passes moe-ckpt gc -n --tsv --keep 2 run
	[ "$(awk -F'\t' 'NR > 1 { printf "%s:%s:%s:%s ", $1, $4, $5, $7 }' <<< "$output")" = \
		'10:true:major:major 18:true:newest:light 20:true:newest:major 21:true:newest:light 24:true:newest:full ' ]
	passes moe-ckpt gc -n --json --keep 1 --light 0 --every 9 run
	says '"kind":"light"'
	passes moe-ckpt gc --keep 1 --light 0 --every 9 run
	[ "$(steps run)" = '10 18 20 24' ]
	# The newest with state is damaged: the light one that follows does not vouch for it.
	rm -rf run
	cp -r "$DATA/kinds" run
	cp -r "$(step run 21)" "$(step run 25)"
	printf x | dd of="$(step run 24)/optim/optim-00001-of-00001.safetensors" bs=1 seek=9000 conv=notrunc status=none
	fails_with 65 moe-ckpt gc --keep 1 run
	says 'nothing was removed'
	[ "$(steps run)" = '10 18 20 21 24 25' ]
}

@test "a kind that is none is refused, and so is a light one among the keys of another place" {
	cp -r "$(step "$DATA/kinds" 21)" light
	sed -i 's/"kind":"light"/"kind":"heavy"/' light/MANIFEST.json
	run -1 moe-ckpt verify light
	cp -r "$DATA/kinds" run
	ln -sfn ckpt/step-00000021 run/latest
	fails_with 65 train run train.steps=30
	says 'a light checkpoint'
}

@test "the configuration: unknown keys are refused with the nearest one, values are shown with their origin" {
	fails_with 2 moe-train run -c tiny.yaml --print-config checkpoint.light_evry=3
	says 'did you mean "light_every"?'
	fails_with 2 moe-train run -c tiny.yaml --print-config checkpoint.major_every=-1
	passes moe-train run -c tiny.yaml --print-config checkpoint.light_every=3
	[[ $output == *'light_every: 3  # '* ]]
	[[ $output == *'major_every: 0  # default'* ]]
	[[ $output == *'light_keep: 3  # default'* ]]
}

@test "two ranks: all kinds, beside the steps and standing still" {
	need_ranks
	kinds false still --ranks 2 mesh.ep=2 < /dev/null 2> /dev/null
	kinds true run --ranks 2 mesh.ep=2 < /dev/null 2> said
	[ "$(steps still)" = '10 18 20 21 24' ]
	[ "$(steps run)" = '10 18 20 21 24' ]
	for s in 10 18 20 21 24; do
		passes same_tensors "$(step still $s)" "$(step run $s)"
		passes moe-ckpt verify -q "$(step run $s)"
	done
	[ ! -e "$(step run 21)/optim" ]
	[ "$(readlink run/latest)" = ckpt/step-00000024 ]
	rm -r "$(step run 24)"
	ln -sfn ckpt/step-00000020 run/latest
	kinds true run --ranks 2 mesh.ep=2 < /dev/null 2> said
	grep -q 'step 21 is a light checkpoint' said
	passes same_tensors "$(step still 24)" "$(step run 24)"
}
