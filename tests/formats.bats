#!/usr/bin/env bats
# formats.bats -- moe-formats(5) says what the programs write: every key of the
# configuration with its limits, every field of a row in its order.

load train_lib

PAGE=$ROOT/man/moe-formats.5

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	train run checkpoint.major_every=3
}

setup() {
	cd "$BATS_FILE_TMPDIR/data"
	TABLES=$MOE_BUILD/unit/test_run_config
}

# section NAME [PAGE]: the lines of a .Sh or .Ss, without those of its own .Ss.
section() {
	awk -v want="$1" '/^\.S[hs] / { on = substr($0, 5) == want; next } on' "${2:-$PAGE}"
}

# fields NAME: the words of the items of a section, in order.
fields() {
	section "$1" | awk '/^\.It Li / { for (i = 3; i <= NF; i++) if ($i != ",") print $i }'
}

# keys: the keys of the JSON object on standard input, of the outermost level.
keys() {
	awk '{ s = s $0 "\n" } END {
		for (i = 1; i <= length(s); i++) {
			c = substr(s, i, 1)
			if (c == "\"") {
				for (word = ""; (c = substr(s, ++i, 1)) != "\""; word = word c)
					if (c == "\\") i++
				if (depth == 1 && key) print word
				key = 0
			} else if (c == "{" || c == "[") { depth++; key = depth == 1 }
			else if (c == "}" || c == "]") depth--
			else if (c == "," && depth == 1) key = 1
		}
	}'
}

# agree SECTION: the object on standard input has the fields of the section.
agree() {
	keys > "$BATS_TEST_TMPDIR/written"
	fields "$1" > "$BATS_TEST_TMPDIR/described"
	[ -s "$BATS_TEST_TMPDIR/described" ]
	diff "$BATS_TEST_TMPDIR/described" "$BATS_TEST_TMPDIR/written"
}

# config_rows PAGE: path, type and limits, and the sentence of each key.
config_rows() {
	section Keys "$1" | awk '/^\.It Li / { path = $3; n = 0; next } ++n == 1 { facts = $0 } n == 2 { print path "\t" facts "\t" $0 }'
}

# config_differences PAGE: between the page and the table of the programs.
config_differences() {
	"$TABLES" keys > "$BATS_TEST_TMPDIR/table"
	config_rows "$1" > "$BATS_TEST_TMPDIR/page"
	diff <(cut -f 1,2 "$BATS_TEST_TMPDIR/table") <(cut -f 1,2 "$BATS_TEST_TMPDIR/page") | grep '^[<>]'
	# The page may say more, behind a comma or a semicolon.
	awk -F'\t' 'NR == FNR { said[$1] = $3; next }
		$1 in said { rest = substr($3, length(said[$1]) + 1)
			if (index($3, said[$1]) != 1 || rest !~ /^([;,].*)?$/) print $1 ": " $3 }' \
		"$BATS_TEST_TMPDIR/table" "$BATS_TEST_TMPDIR/page"
}

@test "every key of the configuration is in the page with type, limits, default and sentence" {
	run config_differences "$PAGE"
	[ -z "$output" ] || { echo "$output"; false; }
	[ "$(wc -l < "$BATS_TEST_TMPDIR/page")" -gt 60 ]
}

@test "a key, a limit, a default or a sentence that differs is seen" {
	sed 's/^\.It Li init.std$/.It Li init.sdt/' "$PAGE" > "$BATS_TEST_TMPDIR/p1"
	sed 's/^(number, 0 to 10; default 0.02)/(number, 0 to 11; default 0.02)/' "$PAGE" > "$BATS_TEST_TMPDIR/p2"
	sed 's/^(number, 0 to 10; default 0.02)/(number, 0 to 10; default 0.03)/' "$PAGE" > "$BATS_TEST_TMPDIR/p3"
	sed 's/^seed of the initial weights$/seed of the initial weight/' "$PAGE" > "$BATS_TEST_TMPDIR/p4"
	sed '/^\.It Li init.std$/,+2d' "$PAGE" > "$BATS_TEST_TMPDIR/p5"
	sed 's/^\.It Li init.std$/.It Li init.more\n(text; default none)\nnothing\n&/' "$PAGE" > "$BATS_TEST_TMPDIR/p6"
	for i in 1 2 3 4 5 6; do
		! cmp -s "$PAGE" "$BATS_TEST_TMPDIR/p$i"
		run config_differences "$BATS_TEST_TMPDIR/p$i"
		[ -n "$output" ] || { echo "p$i passes"; false; }
	done
}

@test "the configuration in the page is one" {
	section CONFIGURATION | awk '/^\.Bd/ { on = 1; next } /^\.Ed/ { exit } on' > "$BATS_TEST_TMPDIR/example.yaml"
	passes moe-train --print-config -c "$BATS_TEST_TMPDIR/example.yaml"
	says 'steps: 2000'
}

@test "the keys of each family's config.json are sorted as the page says" {
	section 'Keys of a config.json' | awk '/^\.It / { f = $2; c = $3; next } /^\.El/ { exit } f { for (i = 1; i <= NF; i++) print f "\t" c "\t" $i }' | sort > "$BATS_TEST_TMPDIR/page"
	"$TABLES" families | sort > "$BATS_TEST_TMPDIR/table"
	[ -s "$BATS_TEST_TMPDIR/page" ]
	diff "$BATS_TEST_TMPDIR/table" "$BATS_TEST_TMPDIR/page"
}

@test "each family's defaults are those of the page" {
	section 'Defaults of the families' | sed -n 's/^\.It //p' | sed 's/ Ta /\t/g' > "$BATS_TEST_TMPDIR/page"
	column=1
	for family in glm4_moe qwen3_moe mixtral olmoe qwen2_moe; do
		column=$((column + 1))
		[ "$(head -n 1 "$BATS_TEST_TMPDIR/page" | cut -f $column)" = $family ]
		width=
		case $family in
		glm4_moe) width=model.intermediate_size=8 ;;
		qwen2_moe) width=model.shared_expert_intermediate_size=8 ;;
		esac
		moe-train --print-config -c /dev/null model.model_type=$family model.hidden_size=64 model.num_hidden_layers=2 \
			model.num_attention_heads=2 model.vocab_size=300 model.num_experts=4 model.num_experts_per_tok=2 \
			model.moe_intermediate_size=8 $width data.seq_len=32 > "$BATS_TEST_TMPDIR/config"
		tail -n +2 "$BATS_TEST_TMPDIR/page" | cut -f 1,$column | while IFS=$'\t' read -r key value; do
			grep -q "^  $key: $value  # default of $family$" "$BATS_TEST_TMPDIR/config" || {
				echo "$family: $key is not $value"
				exit 1
			}
		done
	done
	# ... and no key that says so is missing there.
	config_rows "$PAGE" | sed -n 's/^model\.\([a-z_]*\)\t.*default of the family.*/\1/p' | sort > "$BATS_TEST_TMPDIR/said"
	tail -n +2 "$BATS_TEST_TMPDIR/page" | cut -f 1 | sort | diff "$BATS_TEST_TMPDIR/said" -
}

@test "rows of steps and evaluations, heartbeat, status and lock have the fields of the page, in its order" {
	for step in 1 9; do
		grep "\"moe.metrics/1\",\"step\":$step," run/metrics.jsonl | agree 'Step rows'
	done
	grep moe.eval run/metrics.jsonl | tail -n 1 | agree 'Evaluation rows'
	moe-train eval -q --from run --json | agree 'Evaluation rows'
	agree Heartbeat < run/heartbeat.json
	moe-train status --json run | agree Status
}

@test "the lock of a live run has the fields of the page, in its order" {
	live=$BATS_TEST_TMPDIR/live
	moe-train run -q -j 1 --peak 100 -c tiny.yaml -o "$live" train.steps=1000000 checkpoint.every=0 eval.every=0 3>&- &
	pid=$!
	wait_for 20 test -e "$live/heartbeat.json"
	cp "$live/lock" "$BATS_TEST_TMPDIR/lock"
	kill $pid
	wait $pid || true
	agree Lock < "$BATS_TEST_TMPDIR/lock"
	grep -q "\"pid\":$pid," "$BATS_TEST_TMPDIR/lock"
}

@test "sidecar, manifest, plan and gradients have the fields of the page, in its order" {
	agree Sidecar < train.json
	agree MANIFEST < run/latest/MANIFEST.json
	moe-shard plan -c tiny.yaml | sed -n '3s/^#//p' | tr '\t' '\n' > "$BATS_TEST_TMPDIR/columns"
	fields PLAN | diff - "$BATS_TEST_TMPDIR/columns"
	moe-train grad -q --from run -o "$BATS_TEST_TMPDIR/g"
	n=$(od -An -tu4 -N4 "$BATS_TEST_TMPDIR/g")
	tail -c +9 "$BATS_TEST_TMPDIR/g" | head -c "$n" > "$BATS_TEST_TMPDIR/header"
	sed 's/.*"__metadata__":\({[^}]*}\).*/\1/' "$BATS_TEST_TMPDIR/header" | agree 'GRADIENT STREAM'
	grep -q '"model.layers.1.mlp.gate.weight.expert_counts":{"dtype":"I64","shape":\[6\]' "$BATS_TEST_TMPDIR/header"
}

@test "a checkpoint has the files of the page and the counts of the last update" {
	section CHECKPOINTS > "$BATS_TEST_TMPDIR/text"
	(cd run/latest && find . -type f) | while read -r file; do
		grep -q -F "${file#./}" "$BATS_TEST_TMPDIR/text" || { echo "$file is not in the page"; exit 1; }
	done
	passes moe-ckpt ls -a --tsv run '*.expert_counts'
	says 'I64'
}

@test "a manifest holds the whole command line" {
	sed -n 's/.*"argv":\(\[[^]]*\]\).*/\1/p' run/latest/MANIFEST.json > "$BATS_TEST_TMPDIR/argv"
	grep -q -x '\["moe-train","run","-q","-j","1","--peak","100","-c","tiny.yaml","-o","run","checkpoint.major_every=3"\]' "$BATS_TEST_TMPDIR/argv"
}

@test "flops and mfu are what the page's formulas give" {
	# One document: a token attends to every one before it in its window.
	moe-tokenize encode -q -t tok.json -o "$BATS_TEST_TMPDIR/one" text
	moe-train run -q -j 1 --peak 100 -c tiny.yaml -o "$BATS_TEST_TMPDIR/run" train.steps=1 optim.schedule.warmup=0 \
		"$BATS_TEST_TMPDIR/one" eval.every=0
	# 2 of 6 experts; not the embedding, which is looked up.
	elements=$(moe-ckpt ls --tsv "$BATS_TEST_TMPDIR/run" | awk -F'\t' '/^#/ || $1 ~ /embed_tokens/ || $3 !~ /x/ { next }
		{ n += $4 * ($1 ~ /experts\.[0-9]/ ? 2 / 6 : 1) } END { print n }')
	sed -n 's/.*"step_s":\([^,]*\),.*"flops":\([^,]*\),"mfu":\([^,]*\),.*/\1 \2 \3/p' "$BATS_TEST_TMPDIR/run/metrics.jsonl" > "$BATS_TEST_TMPDIR/row"
	awk -v p="$elements" '{
		want = 6 * p * 256 + 12 * 3 * 4 * 8 * 256 * 33 / 2
		mfu = $2 / ($1 * 100e9)
		print "flops " $2 ", expected " want "; mfu " $3 ", expected " mfu
		exit !(p > 0 && $2 == want && $3 > 0.99 * mfu - 1e-6 && $3 < 1.01 * mfu + 1e-6)
	}' "$BATS_TEST_TMPDIR/row"
}
