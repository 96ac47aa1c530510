#!/usr/bin/env bats
# card.bats -- moe-ckpt card: every number against the program or file it comes from.

load lib

# One run for all tests; each works on a copy, since tests may run at once.
setup_file() {
	cd "$BATS_FILE_TMPDIR" || return 1
	# shellcheck disable=SC1091
	. "$ROOT/tests/examples/tiny"
	moe-train run -q -j 1 -c my.yaml -o run > /dev/null
}

setup() {
	cp -a "$BATS_FILE_TMPDIR/." "$BATS_TEST_TMPDIR"
	cd "$BATS_TEST_TMPDIR" || return 1
}

# value KEY: of the first such key of the JSON object in $output.
value() { grep -o "\"$1\":[^,}]*" <<< "$output" | head -n 1 | cut -d: -f2- | tr -d '"]'; }

# total KEY [FILE]: over the rows of steps.
total() { sed -n 's/^{"schema":"moe.metrics.*"'"$1"'":\([^,]*\),.*/\1/p' "${2-run/metrics.jsonl}" | awk '{ s += $1 } END { printf "%.17g\n", s }'; }

# near A B: but for rounding.
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d <= 1e-9 * (a < 0 ? -a : a) && -d <= 1e-9 * (a < 0 ? -a : a)) }' || { echo "$1 is not $2"; return 1; }; }

manifest() { grep -o "\"$1\":[^,}]*" run/latest/MANIFEST.json | head -n 1 | cut -d: -f2- | tr -d '"'; }

# row STEP RESTART FLOPS STEP_S
row() { echo '{"schema":"moe.metrics/1","step":'"$1"',"time":"2026-12-01T10:00:00Z","restart":'"$2"',"tokens":0,"step_s":'"$4"',"ckpt_s":0.5,"eval_s":0.25,"flops":'"$3"',"nonfinite":[]}'; }

@test "the numbers of a card are those of moe-shard count, MANIFEST, the rows and the sidecar" {
	passes moe-shard count --tsv -c my.yaml
	counts=$(awk '$1 == "all" { print $3, $4 }' <<< "$output")
	passes moe-ckpt card --json run
	[ "$(value total) $(value active)" = "$counts" ]
	[ "$(value in_files)" = "$(value total)" ]
	[ "$(value step)" = "$(manifest step)" ]
	[ "$(value tokens)" = "$(manifest tokens)" ]
	[ "$(value run_id)" = "$(manifest run_id)" ]
	[ "$(value config)" = "$(manifest config)" ]
	[ "$(value plan)" = "$(manifest plan)" ]
	[ "$(value manifest)" = "$(manifest self)" ]
	[ "$(value kernels)" = "$(manifest kernels)" ]
	near "$(value flops)" "$(total flops)"
	near "$(value step_s)" "$(total step_s)"
	near "$(value hours)" "$(awk -v a="$(total step_s)" -v b="$(total ckpt_s)" -v c="$(total eval_s)" 'BEGIN { printf "%.17g", (a + b + c) / 3600 }')"
	grep -q '"data":\[{"path":"data/train","hash":"'"$(grep -o '"sets":.*' run/latest/MANIFEST.json | grep -o '"hash":"[^"]*' | head -n 1 | cut -d'"' -f4)" <<< "$output"
	grep -q '"documents":'"$(grep -o '"documents":[0-9]*' data/train.json | cut -d: -f2)"',"tokens":'"$(grep -o '"tokens":[0-9]*' data/train.json | cut -d: -f2)" <<< "$output"
	grep -q '"tokens_trained":'"$(manifest tokens)" <<< "$output"
	loss=$(grep '"moe.eval/1","step":20' run/metrics.jsonl | grep -o '"loss":[^,]*')
	grep -q '"evaluation":\[{"set":"de","step":20,"tokens":256,'"$loss" <<< "$output"
	json=$output
	passes moe-ckpt card run
	output="$(sed -n 's/^| \*\*all\*\* | \*\*\([^*]*\)\*\* | \*\*\([^*]*\).*/\1 \2/p' <<< "$output" | tr -d ,)"
	[ "$output" = "$counts" ]
	output=$json
	[ "$(value hash)" = "$(grep -o '"tokenizer.json":{[^}]*' run/latest/MANIFEST.json | cut -d'"' -f8)" ]
}

@test "energy is power x ranks x hours x PUE, and is not stated without a power" {
	passes moe-ckpt card --json run
	[ "$(value energy_kwh)" = null ]
	hours=$(value hours)
	passes moe-ckpt card run
	says "Not stated: the power of a rank was not given."
	says "2(e)). **TO FILL IN BY A HUMAN: energy of the training"
	passes moe-ckpt card --json --power 700 --pue 1.25 run
	near "$(value energy_kwh)" "$(awk -v h="$hours" 'BEGIN { printf "%.17g", 700 * h * 1.25 / 1000 }')"
	passes moe-ckpt card --power 700 --hardware '1 GPU' run
	says "no PUE"
	says "Hardware: 1 GPU"
	[[ "$output" != *"FILL IN BY A HUMAN: energy"* ]]
	[[ "$output" != *"FILL IN BY A HUMAN: the hardware"* ]]
	fails_with 2 moe-ckpt card --pue 1.2 run
	says "--pue goes with --power"
	fails_with 2 moe-ckpt card --power -5 run
}

@test "steps that came again count twice as time and once as tokens; rows after the checkpoint not at all" {
	{
		for s in {1..15}; do row "$s" 0 1e10 2; done
		for s in {11..20}; do row "$s" 1 1e10 3; done
		row 20 1 1e10 3			# an update that was skipped, and done in the next
		for s in 21 22; do row "$s" 1 1e10 3; done
		printf '{"schema":"moe.metrics/1","step":23,"torn'
	} > run/metrics.jsonl
	passes moe-ckpt card --json run
	[ "$(value rows_steps) $(value rows_redone) $(value rows_skipped) $(value rows_later)" = "20 5 1 2" ]
	[ "$(value flops_once)" = 200000000000 ]
	[ "$(value flops)" = 260000000000 ]
	[ "$(value step_s)" = 63 ]
	[ "$(value ckpt_s)" = 13 ]
	[ "$(value eval_s)" = 6.5 ]
	passes moe-ckpt card run
	says "Each step once: 2e+11; the rest are rows of steps that came again after a restart (5) or were skipped (1)."
	says "2 rows after step 20 are not counted."
	passes moe-ckpt card --json run/ckpt/step-00000010
	[ "$(value rows_steps) $(value rows_redone) $(value rows_later)" = "10 0 18" ]
	[ "$(value flops)" = 100000000000 ]
}

@test "without rows the operations are those of the formula, an upper bound; without windows attention is left out" {
	rm run/metrics.jsonl
	passes moe-ckpt card --json run
	[ "$(value flops_by)" = "formula" ]
	n=$(value matmul)
	t=$(value tokens)
	near "$(value flops)" "$((6 * n * t + 12 * 2 * 4 * 8 * (t * 33 / 2)))"
	cp -r run/latest/ alone
	passes moe-ckpt card --json alone
	near "$(value flops)" "$((6 * n * t))"
	[ "$(value hours)" = null ]
	passes moe-ckpt card alone
	says "so P is left out"
	says "**TO FILL IN BY A HUMAN: hours of training; there are no rows of a run**"
	says "**TO FILL IN BY A HUMAN: optimizer, schedule"
}

@test "fewer rows than steps are told of, and the formula counts instead" {
	sed -i 5,9d run/metrics.jsonl
	passes moe-ckpt card run
	says "rows of 15 of 20 steps only"
	says "Only 15 of 20 steps have a row."
	says "by formula, an upper bound"
}

@test "languages come from names of files, with bytes, shares and tokens" {
	mkdir -p txt/fr
	head -c 3000 held > train.de.txt
	head -c 1000 held > txt/fr/0001.txt
	head -c 1000 held > notes.txt
	moe-tokenize encode -q -t tok.json -o data/mix train.de.txt txt/fr/0001.txt notes.txt
	moe-tokenize encode -q -t tok.json -o data/el held
	moe-train run -q -j 1 -c my.yaml -o two train.steps=4 'data.train=[{path: data/mix, weight: 3}, {path: data/el, weight: 1}]' > /dev/null
	passes moe-ckpt card --json two
	held=$(wc -c < held)
	grep -q '"languages":\[{"code":"el","bytes":'"$held"',"share":[0-9.]*,"tokens":'"$(grep -o '"tokens":[0-9]*' data/el.json | cut -d: -f2)"',"estimated":false},{"code":"de","bytes":3000,' <<< "$output"
	grep -q '{"code":"fr","bytes":1000,[^}]*"estimated":true}' <<< "$output"
	grep -q '"path":"data/mix",.*"share":0.75,"tokens_trained":768}' <<< "$output"
	grep -q '"path":"data/el",.*"share":0.25,"tokens_trained":256}' <<< "$output"
	passes moe-ckpt card -l nds two
	grep -q '^- "nds"$' <<< "$output"
	grep -q '^- "el"$' <<< "$output"
	says "| el | Greek |"
	says "| - | not told by a name of a file | 1,000 |"
	fails_with 2 moe-ckpt card -l german two
	says '"german" is no language code'
}

@test "a card is never overwritten unless asked; the same one is up to date" {
	passes moe-ckpt card -o README.md run
	says "README.md: 17 fields for a human to fill in"
	passes moe-ckpt card -o README.md run
	says "README.md: up to date"
	echo more >> README.md
	fails_with 73 moe-ckpt card -o README.md run
	says "README.md: is there already, and people may have worked on it; -f replaces it"
	passes moe-ckpt card -f -o README.md run
	passes moe-ckpt card -q run
	same README.md <(echo "$output")
	passes moe-ckpt card -q --json run
	[ "$(wc -l <<< "$output")" -eq 1 ]
	run bash -c 'moe-ckpt card -q run > /dev/full'
	[ "$status" -eq 74 ]
	moe-ckpt card -q run | head -n 1
	fails_with 66 moe-ckpt card -o no/such/README.md nowhere
	passes moe-ckpt card -o run/latest/README.md run
	passes moe-ckpt verify run		# a card beside the weights is no damage
	moe-ckpt pack -q run | moe-ckpt unpack -q - again
	diff -r run/latest/ again
	fails_with 2 moe-ckpt card
}

@test "--check lists what is left and says no; a filled in card is done" {
	passes moe-ckpt card -q --json run
	left=$(grep -o '"to_fill":\[.*' <<< "$output" | grep -o '"heading":' | wc -l)
	moe-ckpt card -q -o README.md run
	[ "$(grep -c 'TO FILL IN BY A HUMAN' README.md)" = "$left" ]
	run --separate-stderr moe-ckpt card --check README.md
	[ "$status" -eq 1 ]
	says "README.md: $left fields for a human to fill in"
	run --separate-stderr moe-ckpt card --json --check README.md
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq "$left" ]
	grep -q '^{"schema":"moe.ckpt-card-mark/1","line":2,"heading":"front matter","what":"the licence' <<< "${lines[0]}"
	grep -q '"heading":"Copyright policy","what":"how Union' <<< "$output"
	sed -i 's/TO FILL IN BY A HUMAN: //' README.md
	passes moe-ckpt card --check README.md
	says "README.md: 0 fields"
	fails_with 2 moe-ckpt card --check README.md run
	fails_with 66 moe-ckpt card --check nowhere.md
}

@test "no name breaks the page: borders, tags, links, fences and lines in it are escaped" {
	passes moe-ckpt card -t 'a|b <script> [x](y) `c`' --hardware $'one\n## two' run
	says '# a\|b \<script\> \[x\]\(y\) \`c\`'
	says $'Hardware: one\xef\xbf\xbd\\#\\# two'
	[ "$(grep -c '^## ' <<< "$output")" -eq 9 ]
	cp data/train.bin 'data/a`|b.bin'
	cp data/train.idx 'data/a`|b.idx'
	cp data/train.json 'data/a`|b.json'
	moe-train run -q -j 1 -c my.yaml -o odd train.steps=2 'data/a`|b' > /dev/null
	passes moe-ckpt card odd
	says '| data/a\`\|b | 119 |'
	says "moe-train run -q -j 1 -c my.yaml -o odd train.steps=2 'data/a\`|b'"
}

@test "the threshold of 10^25: below it section 2 is not asked, above it a human must fill it in" {
	passes moe-ckpt card run
	says "are **below** 10^25"
	[ "$(grep -c 'Asked only of models with systemic risk' <<< "$output")" -eq 3 ]
	for s in {1..20}; do row "$s" 0 1e24 2; done > run/metrics.jsonl
	passes moe-ckpt card run
	says "2e+25 operations are **above** 10^25"
	says "**TO FILL IN BY A HUMAN: internal and external tests"
	[[ "$output" != *"Asked only of models"* ]]
}

@test "a run that began from another model says so, and leaves the threshold to a human" {
	moe-train run -q -j 1 -c my.yaml -o next train.steps=2 --init run > /dev/null
	passes moe-ckpt card next
	says "| Began from | run, whose own training is in none of the numbers here |"
	says "**TO FILL IN BY A HUMAN: cumulative operations"
}

@test "a directory made by convert keeps the numbers of the training and not its layout" {
	moe-ckpt convert -q --dtype bf16 run out
	passes moe-ckpt card --json out
	[ "$(value tokens)" = "$(manifest tokens)" ]
	[ "$(value ranks)" = null ]
	says '"dtypes":"F32, BF16"'
	passes moe-ckpt card out
	says "made by moe-ckpt from a checkpoint"
}

@test "a bare Hugging Face directory, a family that is not known, and one file have fewer facts" {
	cp -r "$ROOT/tests/golden/mixtral" hf
	passes moe-ckpt card --json hf
	[ "$(value model_type)" = mixtral ]
	[ "$(value total)" = "$(value in_files)" ]
	[ "$(value provenance)" = null ]
	[ "$(value flops)" = null ]
	passes moe-ckpt card hf
	says "There is no MANIFEST.json"
	says "**TO FILL IN BY A HUMAN: the data that the model was trained on"
	sed -i 's/"mixtral"/"deepseek_v3"/' hf/config.json
	passes moe-ckpt card hf
	says "Those active for a token are not counted: "
	says "deepseek\\_v3"
	passes moe-ckpt card hf/model.safetensors
	says "there is no config.json"
}

@test "damage is one line and 65; a sidecar of other tokens is left out" {
	sed -i '3s/.*/{"schema":"moe.metrics\/1","step":x}/' run/metrics.jsonl
	fails_with 65 moe-ckpt card run
	says "run/metrics.jsonl:3:"
	rm run/metrics.jsonl
	cp data/valid.de.json data/train.json
	passes moe-ckpt card run
	says "data/train.json: tells of other tokens than the checkpoint was trained on; left out"
	rm data/train.json
	passes moe-ckpt card run
	says "data/train.json: No such file"
	sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' run/latest/config.json
	fails_with 65 moe-ckpt card run
	says "config.json: checksum differs"
}
