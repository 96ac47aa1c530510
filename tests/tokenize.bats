#!/usr/bin/env bats
# tokenize.bats -- moe-tokenize: text to vocabularies, token files and back.

load lib

# Real words in several scripts, so that a vocabulary of some hundred tokens
# can be learned.
make_text() {
	local i
	for i in $(seq 1 "${1:-60}"); do
		printf 'It was the best of times, it was the worst of times (%d).\n' "$i"
		printf 'Es war die beste Zeit, es war die schlimmste Zeit; Übungen für alle.\n'
		printf 'Był to najlepszy z czasów, był to najgorszy z czasów; epoka mądrości i epoka głupoty.\n'
		printf "C'était le meilleur des temps, le siècle de la sagesse, et l'époque de la folie.\n"
		printf 'Ήταν η καλύτερη εποχή, ήταν η χειρότερη εποχή. Беше най-доброто време.\n\n'
	done
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit
	make_text > text
	moe-tokenize train -q --vocab-size 400 -o tok.json text
}

# le WIDTH OFFSET COUNT FILE: little-endian numbers, one a line.
le() { od -An -v -t "u$1" -j "$2" -N $(($1 * $3)) -w"$1" "$4" | tr -d ' '; }

field() { printf '%s' "$output" | sed 's/[,{]/\n/g' | sed -n "s/^\"$1\"://p" | head -n 1; }

@test "decoding what was encoded gives random bytes back" {
	head -c 300000 /dev/urandom > random
	moe-tokenize encode -q -t tok.json < random 2> log | moe-tokenize decode -t tok.json > back
	same random back
	grep -q 'no valid UTF-8' log
	: > empty
	moe-tokenize encode -t tok.json < empty | moe-tokenize decode -t tok.json > back
	same empty back
}

@test "one thread and four give the same bytes" {
	make_text 6000 > long
	for j in 1 4; do
		moe-tokenize train -q -j $j --vocab-size 500 -o tok.$j long
		moe-tokenize encode -q -j $j -t tok.$j -o $j long text
		moe-tokenize encode -q -j $j -t tok.$j --docs line -o line.$j long
		moe-tokenize encode -q -j $j -t tok.$j < long > $j.stream
	done
	same tok.1 tok.4
	for e in bin idx; do
		same 1.$e 4.$e
		same line.1.$e line.4.$e
	done
	same 1.stream 4.stream
}

@test "an index read by od is the Megatron format, and documents end with the end-of-document token" {
	printf 'one\ntwo words\n\nthree' > lines
	moe-tokenize encode -q -t tok.json --docs line -o set lines
	[ "$(head -c 7 set.idx)" = MMIDIDX ]
	[ "$(le 1 7 2 set.idx | tr '\n' ' ')" = '0 0 ' ]
	[ "$(le 8 9 1 set.idx)" = 1 ]
	[ "$(le 1 17 1 set.idx)" = 8 ]
	[ "$(le 8 18 2 set.idx | tr '\n' ' ')" = '4 5 ' ]
	lengths=$(le 4 34 4 set.idx)
	offsets=$(le 8 $((34 + 16)) 4 set.idx)
	[ "$(le 8 $((34 + 48)) 5 set.idx | tr '\n' ' ')" = '0 1 2 3 4 ' ]
	[ "$(stat -c %s set.idx)" = $((42 + 20 * 4)) ]
	at=0 sums=
	for n in $lengths; do
		sums="$sums$at "
		at=$((at + 2 * n))
		[ "$(le 2 $((at - 2)) 1 set.bin)" = 256 ]
	done
	[ "$sums" = "$(echo "$offsets" | tr '\n' ' ')" ]
	[ "$(stat -c %s set.bin)" = $at ]
	# The third line is empty: a document of the end-of-document token alone.
	[ "$(echo "$lengths" | sed -n 3p)" = 1 ]
	# A token file and a stream hold the same ids.
	le 2 0 $(($(stat -c %s set.bin) / 2)) set.bin > a
	moe-tokenize encode -t tok.json --docs line --eod lines > stream
	le 4 0 $(($(stat -c %s stream) / 4)) stream > b
	same a b
}

@test "documents are files, lines or runs of lines" {
	printf 'a\nb\n\n \nc\n' > one
	printf 'd' > two
	docs() {
		moe-tokenize encode -q -f -t tok.json -o set --docs "$1" one two
		passes moe-tokenize info --json set
		echo "$(field documents) $(field empty) $(field text_bytes)"
	}
	[ "$(docs file)" = '2 0 10' ]
	[ "$(docs line)" = '6 1 5' ]
	[ "$(docs blank)" = '3 0 5' ]
	: > empty
	moe-tokenize encode -q -f -t tok.json -o set empty
	passes moe-tokenize info --json set
	[ "$(field documents) $(field tokens) $(field empty)" = '1 1 1' ]
}

@test "a stream gets the end-of-document token only when asked" {
	printf 'the times' | moe-tokenize encode -t tok.json > plain
	printf 'the times' | moe-tokenize encode -t tok.json --eod > eod
	[ $(($(stat -c %s eod) - $(stat -c %s plain))) = 4 ]
	passes moe-tokenize decode -t tok.json < eod
	[ "$output" = 'the times' ]
	passes moe-tokenize decode -t tok.json --special < eod
	[ "$output" = 'the times<|endoftext|>' ]
}

@test "the name of a special token in a text is plain text" {
	printf 'a<|endoftext|>b' > named
	moe-tokenize encode -t tok.json named > stream
	[ "$(le 4 0 $(($(stat -c %s stream) / 4)) stream | grep -cx 256)" = 0 ]
	moe-tokenize decode -t tok.json < stream > back
	same named back
}

@test "the same inputs are up to date, others are not replaced without -f" {
	passes moe-tokenize encode -t tok.json -o set text
	before=$(cat set.bin set.idx set.json | cksum)
	passes moe-tokenize encode -t tok.json -o set text
	says 'up to date'
	cp text other-name
	passes moe-tokenize encode -t tok.json -o set other-name
	says 'up to date'
	fails_with 73 moe-tokenize encode -t tok.json -o set --docs line text
	echo more >> text
	fails_with 73 moe-tokenize encode -t tok.json -o set text
	[ "$(cat set.bin set.idx set.json | cksum)" = "$before" ]
	passes moe-tokenize encode -f -t tok.json -o set text
	passes moe-tokenize encode -t tok.json -o set text
	says 'up to date'
	passes moe-tokenize train --vocab-size 400 -o tok.json other-name
	says 'up to date'
	fails_with 73 moe-tokenize train --vocab-size 390 -o tok.json text
}

@test "a token file with damage is not up to date and not information" {
	moe-tokenize encode -q -t tok.json -o set text
	cp set.bin good.bin
	printf x | dd of=set.bin bs=1 seek=9 conv=notrunc status=none
	fails_with 65 moe-tokenize info set
	says 'checksum differs'
	fails_with 73 moe-tokenize encode -t tok.json -o set text
	head -c 100 good.bin > set.bin
	fails_with 65 moe-tokenize info set
	says 'set.bin: truncated'
	fails_with 65 moe-tokenize decode -t tok.json set
	cp good.bin set.bin
	passes moe-tokenize info set
	head -c 50 set.idx > short
	mv short set.idx
	fails_with 65 moe-tokenize info set
	says 'set.idx: truncated'
	rm set.json
	fails_with 65 moe-tokenize decode -t tok.json set
	says 'no sidecar'
}

@test "text that cannot be learned from is bad data, with the size it reaches" {
	fails_with 65 moe-tokenize train --vocab-size 1000000 -o x.json text
	[[ "$stderr" =~ 'supports a vocabulary of '[0-9]+' tokens, not 1000000' ]]
	: > empty
	fails_with 65 moe-tokenize train --vocab-size 300 -o x.json empty
	says empty
	fails_with 66 moe-tokenize train --vocab-size 300 -o x.json absent
	fails_with 2 moe-tokenize train -o x.json text
	fails_with 2 moe-tokenize train --vocab-size 300 text
	fails_with 2 moe-tokenize train --vocab-size 300 --special a --special a -o x.json text
	[ ! -e x.json ]
}

@test "the size a text supports can be had" {
	run moe-tokenize train --vocab-size 1000000 -o x.json text
	n=$(echo "$output" | sed 's/.*vocabulary of \([0-9]*\) tokens.*/\1/')
	passes moe-tokenize train --vocab-size "$n" -o x.json text
	fails_with 65 moe-tokenize train --vocab-size $((n + 1)) -o y.json text
	passes moe-tokenize encode -t x.json -o set text
	passes moe-tokenize info x.json set
}

@test "ids beyond the vocabulary and torn streams are bad data, after the text before them" {
	moe-tokenize encode -t tok.json text > stream
	printf '\220\001\0\0' > beyond # 400
	run --separate-stderr moe-tokenize decode -t tok.json < <(cat stream beyond)
	[ "$status" -eq 65 ]
	says "standard input: token $(($(stat -c %s stream) / 4)): id 400 is beyond the vocabulary of 400 tokens"
	[ "$output" = "$(cat text)" ]
	fails_with 65 moe-tokenize decode -t tok.json < <(printf '\377\377\377\377')
	says 'id -1'
	fails_with 65 moe-tokenize decode -t tok.json < <(printf '\0\0\0')
	says 'ends inside a token'
}

@test "what is not a vocabulary of this kind is refused by name" {
	fails_with 66 moe-tokenize encode -t absent.json text
	fails_with 2 moe-tokenize encode text
	sed 's/"BPE"/"Unigram"/' tok.json > uni.json
	fails_with 65 moe-tokenize encode -t uni.json text
	says 'model.type: "Unigram" is not supported'
	sed 's/"normalizer": null/"normalizer": {"type": "Precompiled"}/' tok.json > nfkc.json
	fails_with 65 moe-tokenize encode -t nfkc.json text
	says Precompiled
	head -c 1000 tok.json > cut.json
	fails_with 65 moe-tokenize info cut.json
}

@test "both ways of encoding give the same ids, and --check says so" {
	head -c 200000 /dev/urandom > random
	moe-tokenize encode --check -t tok.json text random 2> log
	grep -q 'both ways give the same ids' log
	moe-tokenize encode -q -t tok.json text > fast
	moe-tokenize encode -q --slow -t tok.json text > slow
	same fast slow
	fails_with 2 moe-tokenize encode --check -t tok.json -o set text
	fails_with 2 moe-tokenize encode --check --slow -t tok.json text
	[ ! -e set.json ]
}

@test "special tokens in a text are found when asked for" {
	printf 'a<|endoftext|>b' > named
	moe-tokenize encode --specials -t tok.json named > stream
	[ "$(le 4 0 $(($(stat -c %s stream) / 4)) stream | tr '\n' ' ')" = '64 256 65 ' ]
	moe-tokenize encode --specials --slow -t tok.json named > slow
	same stream slow
}

@test "a rank file is read with the name of its scheme" {
	i=0
	while [ $i -lt 256 ]; do
		printf '%s %d\n' "$(printf "\\$(printf %03o $i)" | base64)" $i
		i=$((i + 1))
	done > ranks
	printf 'dGhl 256\n' >> ranks
	fails_with 2 moe-tokenize encode -t ranks text
	says '--scheme'
	fails_with 2 moe-tokenize encode -t ranks --scheme none text
	says 'cl100k'
	printf 'the the' | moe-tokenize encode -t ranks --scheme gpt2 > stream
	[ "$(le 4 0 $(($(stat -c %s stream) / 4)) stream | tr '\n' ' ')" = '256 32 116 104 101 ' ]
	printf '{"<e>": 300}' > ids
	printf 'x<e>' | moe-tokenize encode -t ranks --scheme gpt2 --special-ids ids --specials > stream
	[ "$(le 4 0 $(($(stat -c %s stream) / 4)) stream | tr '\n' ' ')" = '120 300 ' ]
	printf '{"<e>": 5}' > ids
	fails_with 65 moe-tokenize encode -t ranks --scheme gpt2 --special-ids ids text
	says "ids: \"<e>\" has id 5, which is another token's already"
	fails_with 2 moe-tokenize encode -t tok.json --scheme gpt2 text
	sed '$d' ranks | tail -n +2 > less
	fails_with 65 moe-tokenize encode -t less --scheme gpt2 text
	says 'byte 0x00 has no token'
	gzip < tok.json > packed
	fails_with 65 moe-tokenize encode -t packed text
	says 'packed: packed with gzip; unpack it first'
}

# ranks_file: 256 bytes, then merges that reach " the" in two ways, runs of "=" and spaces.
ranks_file() {
	local i=0 t
	while [ $i -lt 256 ]; do
		printf '%s %d\n' "$(printf "\\$(printf %03o $i)" | base64)" $i
		i=$((i + 1))
	done
	for t in th the ' t' ' th' ' the' '==' '===' '====' '  ' '    ' 12 123 Ü; do
		printf '%s %d\n' "$(printf %s "$t" | base64)" $i
		i=$((i + 1))
	done
}

@test "ranks imported as tokenizer.json give the same ids, and exported ranks the same file" {
	ranks_file > ranks
	printf '{"<e>": 400}' > ids
	{ cat text; printf 'the =====  ========= \n  x\n   \n the12345 isn'"'"'t  '; } > more
	for s in gpt2 cl100k o200k llama3 qwen2 tekken kimi; do
		passes moe-tokenize import -o $s.json --scheme $s --special-ids ids ranks
		says '401 ids, 131 of them unused'
		moe-tokenize encode -q --specials -t $s.json more > a
		moe-tokenize encode -q --specials -t ranks --scheme $s --special-ids ids more > b
		same a b
		moe-tokenize decode -t $s.json < a > back
		same more back
	done
	passes moe-tokenize export -o again --scheme gpt2 --special-ids ids ranks
	same ranks again
	passes moe-tokenize encode -q -t again --scheme gpt2 --special-ids again.json more
	fails_with 73 moe-tokenize export -o again --scheme gpt2 ranks
	fails_with 73 moe-tokenize import -o gpt2.json --scheme gpt2 ranks
	fails_with 65 moe-tokenize export -o no tok.json
	says 'list of merges'
	[ ! -e no ]
}

@test "import says which entries their own text does not give" {
	passes moe-tokenize import tok.json
	says '0 that their own text does not give'
	{ ranks_file; printf '%s 300\n' "$(printf zzz | base64)"; } > ranks
	passes moe-tokenize import -o copy.json --scheme gpt2 ranks
	# No merge reaches "zzz", but a whole piece is looked up first.
	printf 'zzz' | moe-tokenize encode -t copy.json > stream
	[ "$(le 4 0 1 stream)" = 300 ]
	sed 's/"ignore_merges": true/"ignore_merges": false/' copy.json > lists.json
	passes moe-tokenize import lists.json
	says '1 that their own text does not give'
	says 'id 300'
	printf 'zzz' | moe-tokenize encode -t lists.json > stream
	[ "$(stat -c %s stream)" = 12 ]
}

@test "another vocabulary does not decode a token file" {
	moe-tokenize encode -q -t tok.json -o set text
	moe-tokenize train -q --vocab-size 390 -o other.json text
	fails_with 65 moe-tokenize decode -t other.json set
	says 'another tokenizer'
	passes moe-tokenize decode -t tok.json set
	[ "$output" = "$(cat text)" ]
}

@test "special tokens follow the end-of-document token and are no text" {
	moe-tokenize train -q --vocab-size 400 --eod '<end>' --special '<user>' --special '<bot>' -o s.json text
	passes moe-tokenize info --json s.json
	says '"special":[{"id":256,"token":"<end>"},{"id":257,"token":"<user>"},{"id":258,"token":"<bot>"}]'
	says '"vocab_size":400,"merges":141'
}

@test "a failed encode leaves nothing behind" {
	printf 'x' > set.idx
	fails_with 73 moe-tokenize encode -t tok.json -o set text
	rm set.idx
	fails_with 66 moe-tokenize encode -t tok.json -o set text absent
	[ -z "$(find . -name '*set*')" ]
	fails_with 73 moe-tokenize encode -t tok.json -o text/set text
	fails_with 2 moe-tokenize encode -t tok.json -o set --eod text
	fails_with 73 moe-tokenize encode -f -t tok.json -o tok text
	says 'tok.json is the vocabulary'
	passes moe-tokenize info tok.json
}

@test "an output that cannot be written is an error" {
	[ -e /dev/full ] || skip 'no /dev/full'
	run --separate-stderr bash -c 'moe-tokenize encode -t tok.json text > /dev/full'
	[ "$status" -eq 74 ]
}

@test "a reader that has seen enough ends decode in silence" {
	make_text 3000 > long
	moe-tokenize encode -t tok.json long > stream
	run --separate-stderr bash -c 'set -o pipefail; moe-tokenize decode -t tok.json < stream | head -c 10'
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
}

@test "a file that does not end at a piece border is decoded as it comes" {
	# Ids arrive one by one; what is whole is shown at once.
	moe-tokenize encode -t tok.json text > stream
	mkfifo pipe
	moe-tokenize decode -t tok.json < pipe > shown &
	exec 8> pipe
	head -c 400 stream >&8
	for _ in $(seq 1 50); do
		[ -s shown ] && break
		sleep 0.1
	done
	n=$(stat -c %s shown)
	[ "$n" -gt 100 ]
	cmp -n "$n" shown text
	tail -c +401 stream >&8
	exec 8>&-
	wait
	same shown text
}

@test "every example of the manual page runs" {
	mkdir -p text.d
	mv text text.d/one.txt
	rm tok.json
	{ make_text 20; seq 100 999; seq 100 999; } > text.d/two.txt
	mv text.d text
	awk '/^\.Sh/ { on = /EXAMPLES/ } on && /^\.Ed/ { code = 0 } on && code; on && /^\.Bd -literal/ { code = 1 }' \
		"$ROOT/man/moe-tokenize.1" > examples
	[ "$(wc -l < examples)" -ge 8 ]
	passes bash -euo pipefail examples
	says 'Es war einmal'
	says '<|endoftext|>'
}

# with_fault N ACTION: encode into here/ while the N-th file call there goes wrong.
with_fault() {
	MOE_FAULT_DIR=$(pwd -P)/here MOE_FAULT=any:$1:$2 LD_PRELOAD=$FAULT \
		moe-tokenize encode -q -f -t tok.json -o here/set text 2> err
}

@test "whichever call fails, encode says one line and leaves no part of a token file" {
	need_preload fault
	mkdir here
	# The first call asks for a directory that is there, which is no failure.
	for n in $(seq 2 60); do
		status=0
		with_fault "$n" ENOSPC || status=$?
		[ "$status" -eq 0 ] && break
		[ "$status" -eq 73 ] || [ "$status" -eq 74 ]
		[ "$(wc -l < err)" -eq 1 ]
		[ -z "$(ls -A here)" ]
	done
	[ "$n" -gt 8 ]
	[ "$n" -lt 60 ]
	passes moe-tokenize info here/set
}

@test "killed at any call while replacing, encode leaves a whole token file or none" {
	need_preload fault
	moe-tokenize encode -q -t tok.json -o old --docs line text
	moe-tokenize encode -q -t tok.json -o new text
	for n in $(seq 1 60); do
		rm -rf here
		mkdir here
		cp old.bin here/set.bin
		cp old.idx here/set.idx
		cp old.json here/set.json
		status=0
		with_fault "$n" KILL || status=$?
		[ "$status" -ne 0 ] || break
		[ "$status" -eq 137 ]
		# info may be refused, but what it accepts is all old or all new.
		status=0
		moe-tokenize info here/set > /dev/null 2>&1 || status=$?
		[ "$status" -eq 0 ] || [ "$status" -eq 65 ] || [ "$status" -eq 66 ]
		if [ "$status" -eq 0 ]; then
			cmp -s here/set.bin old.bin && cmp -s here/set.idx old.idx || {
				same here/set.bin new.bin
				same here/set.idx new.idx
			}
		fi
		passes moe-tokenize encode -f -t tok.json -o here/set text
		same here/set.bin new.bin
		same here/set.idx new.idx
	done
	[ "$n" -gt 8 ]
	[ "$n" -lt 60 ]
}
