#!/usr/bin/env bats
# provenance.bats -- what files say of how they came about: the command line as
# it was typed, and the plan they were made under.

load train_lib

setup_file() {
	mkdir -p "$BATS_FILE_TMPDIR/data"
	cd "$BATS_FILE_TMPDIR/data"
	tiny_setup
	moe-train -q -j 1 --peak 100 -c tiny.yaml -o 'run one' train train.steps=2 eval.every=0
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp -r "$BATS_FILE_TMPDIR"/data/{tok.json,tiny.yaml,train.*,valid.*,'run one'} .
}

# records FILE TEXT: the file holds it.
records() {
	grep -qF -- "$2" "$1" || {
		echo "$1 does not record: $2"
		grep -o '"argv":[^]]*]' "$1"
		return 1
	}
}

@test "a checkpoint records the command line as it was typed" {
	records 'run one/latest/MANIFEST.json' \
		'"argv":["moe-train","-q","-j","1","--peak","100","-c","tiny.yaml","-o","run one","train","train.steps=2","eval.every=0"]'
	passes moe-train run -q --json -c tiny.yaml --peak=100 train.steps=2 -o "r\"2" eval.every=0 -- train
	records 'r"2/latest/MANIFEST.json' \
		'"argv":["moe-train","run","-q","--json","-c","tiny.yaml","--peak=100","train.steps=2","-o","r\"2","eval.every=0","--","train"]'
	passes moe-ckpt verify 'r"2'
}

@test "so does one that moe-optstep made" {
	moe-train grad -q -j 1 --from 'run one' -o g.safetensors train
	passes moe-optstep -q -j 1 -o new --from 'run one' --grads g.safetensors
	records new/latest/MANIFEST.json '"argv":["moe-optstep","-q","-j","1","-o","new","--from","run one","--grads","g.safetensors"]'
}

@test "so does a token file, and a name that is no UTF-8 does not spoil the record" {
	printf 'one two three\n' > $'a\xff'
	moe-tokenize encode -q $'a\xff' -t tok.json -o set
	records set.json '"argv":["moe-tokenize","encode","-q","a'
	records set.json '"-t","tok.json","-o","set"]'
	passes moe-tokenize info set
	passes moe-train run -q -j 1 --peak 100 -c tiny.yaml -o $'r\xff' train.steps=2 eval.every=0
	passes moe-ckpt verify $'r\xff'
}

@test "a run obeys a plan made before anything was known of its data and schedule" {
	moe-shard plan -c tiny.yaml > plan.tsv
	passes moe-train run -q -j 1 --peak 100 -c tiny.yaml --plan plan.tsv -o run train train.steps=2 checkpoint.every=1 eval.every=0 optim.muon.lr=1e-3
	# The plan it records is that plan.
	hash=$(sed -n 's/^# config .* plan \([0-9a-f]*\)$/\1/p' plan.tsv)
	[ -n "$hash" ]
	records run/latest/MANIFEST.json "\"plan\":\"$hash\""
	# ... also from standard input, and without one the run makes the same.
	moe-train run -q -j 1 --peak 100 -c tiny.yaml --plan - -o run2 train.steps=2 < plan.tsv
	records run2/latest/MANIFEST.json "\"plan\":\"$hash\""
	moe-train run -q -j 1 --peak 100 -c tiny.yaml -o run3 train.steps=2
	records run3/latest/MANIFEST.json "\"plan\":\"$hash\""
}

@test "a plan for another model, mesh or optimizer work is refused, and nothing is left" {
	for other in model.hidden_size=64 model.num_experts=8 model.tie_word_embeddings=true optim.muon.ns=you optim.muon.split=head; do
		moe-shard plan -c tiny.yaml $other > other.tsv || {
			echo "no plan with $other"
			return 1
		}
		fails_with 2 moe-train run -q -j 1 -c tiny.yaml --plan other.tsv -o run
		says 'other.tsv'
		[ ! -e run ]
	done
	moe-shard plan -c tiny.yaml > plan.tsv
	sed 's/mesh 1x1x1 world 1/mesh 1x2x1 world 2/' plan.tsv > mesh.tsv
	fails_with 2 moe-train run -q -j 1 -c tiny.yaml --plan mesh.tsv -o run
	says 'ranks'
	sed '4s/\t0\t/\t1\t/' plan.tsv > torn.tsv
	fails_with 65 moe-train run -q -j 1 -c tiny.yaml --plan torn.tsv -o run
	fails_with 66 moe-train run -q -j 1 -c tiny.yaml --plan none.tsv -o run
	[ ! -e run ]
}
