#!/usr/bin/env bats
# tokfiles.bats -- token files after they are made: verified, merged, read back.

load lib

make_text() {
	local i
	for i in $(seq 1 60); do
		printf 'It was the best of times, it was the worst of times (%d).\n' "$i"
		printf 'Es war die beste Zeit, es war die schlimmste Zeit; Übungen für alle.\n'
		printf "C'était le meilleur des temps, le siècle de la sagesse, et l'époque de la folie.\n\n"
	done
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit
	make_text > text
	moe-tokenize train -q --vocab-size 350 -o tok.json text
}

# le WIDTH OFFSET COUNT FILE: little-endian numbers, one a line.
le() { od -An -v -t "u$1" -j "$2" -N $(($1 * $3)) -w"$1" "$4" | tr -d ' '; }

# bytes N WIDTH: N as WIDTH little-endian bytes.
bytes() {
	local v=$1 i
	for i in $(seq "$2"); do
		# shellcheck disable=SC2059
		printf "\\$(printf %03o $((v & 255)))"
		v=$((v >> 8))
	done
}

# poke FILE BYTE VALUE WIDTH: a number in the middle of a file.
poke() { bytes "$3" "$4" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# pair PREFIX CODE WIDTH 'LENGTHS' 'DOCUMENTS' 'IDS': an indexed data set as Megatron's own tools write it.
pair() {
	local s d at=0 n
	s=$(wc -w <<< "$4") d=$(wc -w <<< "$5")
	{
		printf 'MMIDIDX\0\0'
		bytes 1 8
		bytes "$2" 1
		bytes "$s" 8
		bytes "$d" 8
		for n in $4; do bytes "$n" 4; done
		for n in $4; do
			bytes $at 8
			at=$((at + n * $3))
		done
		for n in $5; do bytes "$n" 8; done
	} > "$1.idx"
	for n in $6; do bytes "$n" "$3"; done > "$1.bin"
}

# says_all TEXT...: each of them was read.
says_all() {
	local t
	for t; do says "$t" || return; done
}

@test "verify says yes to what encode wrote, with the vocabulary too" {
	moe-tokenize encode -q -t tok.json --docs line -o set text
	passes moe-tokenize verify set
	says 'set: ok: 240 documents'
	passes moe-tokenize verify -t tok.json --json set
	says '"ok":true,"checksums":true,"problems":0,"documents":240,"sequences":240'
	says "\"text_bytes\":$(($(stat -c %s text) - 240)),\"without_eod\":0,\"eod_inside\":0"
	for j in 1 4; do moe-tokenize verify -t tok.json -j $j --tsv set | cut -f 1-11 > tsv.$j; done
	same tsv.1 tsv.4
}

@test "verify names the first bad byte, document and id of every kind of damage" {
	moe-tokenize encode -q -t tok.json --docs line -o whole text
	fresh() { for e in bin idx json; do cp whole.$e set.$e; done; }
	fresh
	at=$(le 8 $((34 + 4 * 240 + 8 * 5)) 1 set.idx)
	poke set.bin "$at" 65535 2
	run --separate-stderr moe-tokenize verify set
	[ "$status" -eq 1 ]
	says_all "set.bin: bytes 0 to $(stat -c %s set.bin): checksum differs from set.json; they hold documents 0 to 239" \
		"set.bin: document 5, token $((at / 2)) (byte $at): id 65535 is beyond the vocabulary of 350 tokens" 'set: damaged: 2 problems'
	fresh
	poke set.bin $((at - 2)) 65 2
	run --separate-stderr moe-tokenize verify set
	[ "$status" -eq 1 ]
	says '1 of 240 documents do not end with the end-of-document token 256; the first is document 4'
	fresh
	truncate -s -2 set.bin
	run --separate-stderr moe-tokenize verify set
	says_all 'set.bin: truncated' 'checksum differs'
	fresh
	poke set.idx $((34 + 4 * 6)) 1 4
	run --separate-stderr moe-tokenize verify set
	[ "$status" -eq 1 ]
	says_all 'set.idx: sequence 7 begins at byte' 'set.idx: bytes 0 to'
	fresh
	poke set.idx $((34 + 12 * 240 + 8 * 3)) 2 8
	run --separate-stderr moe-tokenize verify set
	says 'set.idx: document 3 is not sequence 3'
	fresh
	sed -i 's/"text_bytes":[0-9]*/"text_bytes":7/' set.json
	passes moe-tokenize verify set
	fails_with 1 moe-tokenize verify -t tok.json set
	says 'set.json: 7 bytes of text, but the tokens hold'
	fresh
	sed -i 's/"documents":240/"documents":241/' set.json
	fails_with 1 moe-tokenize verify set
	says '240 sequences in 240 documents, but set.json says 241'
	rm set.idx
	fails_with 1 moe-tokenize verify set
	says 'set.idx: No such file'
	fails_with 66 moe-tokenize verify nothing
	fails_with 66 moe-tokenize verify whole.bin
	says 'a token file is named without .bin: whole'
}

@test "every byte that changes in a token file is seen" {
	printf 'one\ntwo\n\nthree' > lines
	moe-tokenize encode -q -t tok.json --docs line -o whole lines
	for e in bin idx; do
		size=$(stat -c %s whole.$e)
		for at in $(seq 0 $((size - 1))); do
			for x in bin idx json; do cp whole.$x set.$x; done
			poke set.$e "$at" $(($(le 1 "$at" 1 whole.$e) ^ 4)) 1
			run moe-tokenize verify -q set
			[ "$status" -eq 1 ] || {
				echo "byte $at of .$e: status $status"
				return 1
			}
		done
	done
}

@test "verify tells another vocabulary from the right one" {
	moe-tokenize train -q --vocab-size 349 -o other.json text
	moe-tokenize encode -q -t tok.json -o set text
	fails_with 1 moe-tokenize verify -t other.json set
	says 'set.json: encoded with another tokenizer'
	passes moe-tokenize verify -t tok.json set
}

@test "an end-of-document token inside a document is counted, not refused" {
	printf 'a<|endoftext|>b\nc\n' > lines
	moe-tokenize encode -q -t tok.json --specials --docs line -o set lines
	passes moe-tokenize verify -t tok.json set
	says '1 end-of-document token inside documents'
	passes moe-tokenize verify --json set
	says '"eod_inside":1'
}

@test "a pair without a sidecar is sound at best, and says so" {
	pair megatron 4 4 '3 1 2' '0 1 2 3' '10 11 256 256 12 256'
	fails_with 1 moe-tokenize verify megatron
	says 'no checksums (no megatron.json); --structure accepts that'
	passes moe-tokenize verify --structure megatron
	says '3 documents, 6 tokens; no checksums were compared'
	passes moe-tokenize verify --structure -t tok.json --json megatron
	says_all '"ok":true,"checksums":false' '"without_eod":0'
	# sentences: several sequences a document
	pair sentences 8 2 '2 1 2' '0 2 3' '1 2 3 4 256'
	passes moe-tokenize verify --structure -t tok.json --json sentences
	says '"documents":2,"sequences":3,"tokens":5'
	says '"without_eod":1'
	pair beyond 5 8 '2 1' '0 1 2' '1 256 350'
	fails_with 1 moe-tokenize verify --structure -t tok.json beyond
	says 'document 1, token 2 (byte 16): id 350 is beyond the vocabulary of 350 tokens'
	pair gap 4 4 '2 1' '0 1 1' '1 2 3'
	fails_with 1 moe-tokenize verify --structure gap
	says 'the document index ends with 1, not with 2'
	pair floats 7 4 '1' '0 1' '1'
	fails_with 1 moe-tokenize verify --structure floats
	says 'dtype f32 holds no ids'
	# A first document without anything, which some tools write (and index twice).
	pair empty 4 4 '0 1' '0 1 2' '9'
	passes moe-tokenize verify --structure -t tok.json --json empty
	says '"without_eod":2'
}

@test "counts and offsets beyond four gigabytes are 64 bits wide" {
	need truncate
	n=$((5 << 30)) seq=$(((5 << 30) / 4 / 2))
	{
		printf 'MMIDIDX\0\0'
		bytes 1 8
		bytes 4 1
		bytes 2 8
		bytes 3 8
		bytes $seq 4
		bytes $seq 4
		bytes 0 8
		bytes $((n / 2)) 8
		bytes 0 8
		bytes 1 8
		bytes 2 8
	} > big.idx
	truncate -s $n big.bin
	passes moe-tokenize verify --structure --json big
	says "\"tokens\":$((n / 4))"
	poke big.bin $((n - 4)) 350 4
	fails_with 1 moe-tokenize verify --structure -t tok.json big
	says "big.bin: document 1, token $((n / 4 - 1)) (byte $((n - 4))): id 350 is beyond"
}

@test "decode tells documents apart as it is asked to, and takes only those asked for" {
	printf 'one\ntwo words\n\nthree "x"\\\n' > lines
	moe-tokenize encode -q -t tok.json --docs line -o set lines
	moe-tokenize decode -t tok.json --docs line -o back set
	same lines back
	passes moe-tokenize decode -t tok.json set
	[ "$output" = 'onetwo wordsthree "x"\' ]
	passes moe-tokenize decode -t tok.json --docs jsonl set
	[ "${lines[0]}|${lines[2]}|${lines[3]}" = '{"text":"one"}|{"text":""}|{"text":"three \"x\"\\"}' ]
	passes moe-tokenize decode -t tok.json --range 1 set
	[ "$output" = 'two words' ]
	passes moe-tokenize decode -t tok.json --range 1-3 --special set
	[ "$output" = 'two words<|endoftext|><|endoftext|>three "x"\<|endoftext|>' ]
	passes moe-tokenize decode -t tok.json --range 3- set
	[ "$output" = 'three "x"\' ]
	moe-tokenize encode -q -t tok.json --docs blank -o para text
	moe-tokenize decode -t tok.json --docs blank -f -o back para
	same text back
	fails_with 65 moe-tokenize decode -t tok.json --range 4 set
	says 'set: no document 4: it has 4, numbered from 0'
	fails_with 65 moe-tokenize decode -t tok.json --range 2-9 set
	for r in 3-2 x -1 1-2-3 1,2 99999999999999999999; do fails_with 2 moe-tokenize decode -t tok.json --range=$r set; done
	fails_with 2 moe-tokenize decode -t tok.json --range 1 set para
	fails_with 2 moe-tokenize decode -t tok.json --docs line -
	fails_with 73 moe-tokenize decode -t tok.json -o back set
	says 'back exists'
	moe-tokenize decode -f -t tok.json -o back --docs line set
	same lines back
	# What is read is not written over.
	for e in bin idx json; do
		fails_with 2 moe-tokenize decode -t tok.json -f -o set.$e set
		says "set.$e is of the token file set"
	done
	fails_with 2 moe-tokenize decode -t tok.json -f -o tok.json set
	passes moe-tokenize verify -t tok.json set
}

@test "random bytes and long tokens come back from a token file" {
	head -c 300000 /dev/urandom > random
	moe-tokenize encode -q -t tok.json -o set random 2> log
	moe-tokenize decode -t tok.json set > back
	same random back
	passes moe-tokenize decode -t tok.json --docs jsonl -o j set
	says 'documents with bytes that are no valid UTF-8: 1'
	# Tokens of more than 15 bytes.
	for _ in 1 2 3 4 5 6 7 8; do printf 'Donaudampfschifffahrtsgesellschaft donaudampfschifffahrt\n'; done > long
	moe-tokenize train -q --vocab-size 285 -o long.json long
	moe-tokenize encode -q -t long.json -o set -f long
	moe-tokenize decode -t long.json set > back
	same long back
}

@test "a foreign pair is read when asked, and an id that is no token is bad data with its place" {
	printf 'the times' | moe-tokenize encode -t tok.json > stream
	n=$(($(stat -c %s stream) / 4))
	ids=$(le 4 0 $n stream | tr '\n' ' ')
	pair foreign 4 4 "$n 1 $n" '0 2 3' "$ids 256 $ids"
	fails_with 65 moe-tokenize decode -t tok.json foreign
	says 'no sidecar'
	passes moe-tokenize decode -t tok.json --foreign --docs line foreign
	[ "$output" = 'the times
the times' ]
	pair bad 4 4 "$n 1" '0 1 2' "$ids 350"
	run --separate-stderr moe-tokenize decode -t tok.json --foreign bad
	[ "$status" -eq 65 ]
	[ "$output" = 'the times' ]
	says "bad.bin: document 1, token $n: id 350 is beyond the vocabulary of 350 tokens"
	fails_with 65 moe-tokenize decode -t tok.json --foreign -o out bad
	[ ! -e out ]
	pair floats 7 4 '1' '0 1' '1'
	fails_with 65 moe-tokenize decode -t tok.json --foreign floats
}

# three texts of several documents, one of them with an empty first one
three_sets() {
	printf 'one\n\ntwo words' > a
	printf '\nthree' > b
	cp text c
	for x in a b c; do moe-tokenize encode -q -t tok.json --docs line -o set.$x $x; done
}

@test "a merged file is the bytes that encoding all texts at once gives" {
	three_sets
	moe-tokenize merge -q -o all set.a set.b set.c
	moe-tokenize encode -q -t tok.json --docs line -o once a b c
	same all.bin once.bin
	same all.idx once.idx
	passes moe-tokenize verify -t tok.json all
	# The index by hand: 3 + 2 + 240 documents, numbered through, offsets that go on.
	[ "$(le 8 18 2 all.idx | tr '\n' ' ')" = '245 246 ' ]
	le 8 $((34 + 4 * 245)) 245 all.idx > offsets
	{
		le 8 $((34 + 4 * 3)) 3 set.a.idx
		le 8 $((34 + 4 * 2)) 2 set.b.idx | awk -v n="$(stat -c %s set.a.bin)" '{ print $1 + n }'
		le 8 $((34 + 4 * 240)) 240 set.c.idx | awk -v n="$(cat set.a.bin set.b.bin | wc -c)" '{ print $1 + n }'
	} > want
	same offsets want
	[ "$(le 8 $((34 + 12 * 245)) 246 all.idx | md5sum)" = "$(seq 0 245 | md5sum)" ]
	# The sidecar: every input, every count, and the parts.
	for key in documents tokens text_bytes invalid_utf8 empty; do
		[ "$(sed 's/[,{]/\n/g' all.json | grep -m 1 "^\"$key\"")" = "$(sed 's/[,{]/\n/g' once.json | grep -m 1 "^\"$key\"")" ]
	done
	[ "$(grep -o '"inputs":\[[^]]*\]' all.json)" = "$(grep -o '"inputs":\[[^]]*\]' once.json)" ]
	[ "$(grep -o '"parts":.*' all.json | grep -o '"path":"[^"]*","documents":[0-9]*' | tr '\n' ' ')" = '"path":"set.a","documents":3 "path":"set.b","documents":2 "path":"set.c","documents":240 ' ]
	# How many are without text is told, not guessed from their lengths: a template has tokens of its own.
	printf 'x\n\n' > nearly
	sed 's|"post_processor": null|"post_processor": {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<\|endoftext\|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<\|endoftext\|>":{"id":"<\|endoftext\|>","ids":[256],"tokens":["<\|endoftext\|>"]}}}|' tok.json > template.json
	moe-tokenize encode -q -t template.json --docs line --template -o begun nearly
	grep -q '"documents":2,"tokens":5,.*"empty":1' begun.json
	moe-tokenize encode -q -t template.json --docs line -o bare nearly
	run --separate-stderr moe-tokenize merge -o mix begun bare
	[ "$status" -eq 0 ]
	says 'bare was encoded with other options than what is before it: "", not "--template"'
	grep -q '"how":"mixed".*"empty":2' mix.json
	# Merging what was merged goes on.
	moe-tokenize merge -q -o two all set.a
	passes moe-tokenize verify -t tok.json two
	says '248 documents'
}

@test "shards merge to the documents that one file has" {
	printf 'one\ntwo\nthree\nfour\nfive\n' > lines
	moe-tokenize encode -q -t tok.json --docs line --shards 3 -o part lines
	moe-tokenize merge -q -o once part-0000{0,1,2}-of-00003
	[ "$(grep -o '"how":"[^"]*"' once.json)$(grep -o '"path":"lines"' once.json | wc -l)" = '"how":""1' ]
	printf 'six\n' > more
	for s in 0 1; do moe-tokenize encode -q -t tok.json --docs line --shard $s/2 -o job lines more; done
	passes moe-tokenize merge -o jobs job-0000{0,1}-of-00002
	run ! grep -q 'other options' <<< "$stderr"
	[ "$(grep -o '"how":"[^"]*"' jobs.json)" = '"how":""' ]
	moe-tokenize merge -q -o all part-0000?-of-00003.bin 2> err || status=$?
	[ "$status" -eq 66 ]
	grep -q 'a token file is named without .bin: part-00000-of-00003' err
	moe-tokenize merge -q -o all part-00000-of-00003 part-00001-of-00003 part-00002-of-00003
	passes moe-tokenize verify -t tok.json all
	says '5 documents'
	[ "$(moe-tokenize decode -t tok.json --docs line all | sort)" = "$(sort lines)" ]
}

@test "the same inputs merge once, others do not replace them without -f" {
	three_sets
	moe-tokenize merge -q -o all set.a set.b
	passes moe-tokenize merge -o all set.a set.b
	says 'all: up to date'
	fails_with 73 moe-tokenize merge -o all set.b set.a
	says 'all.json exists and was not made from these inputs; -f replaces it'
	fails_with 73 moe-tokenize merge -o all set.a
	moe-tokenize merge -qf -o all set.b set.a
	passes moe-tokenize verify all
	fails_with 2 moe-tokenize merge -f -o set.a set.a set.b
	says 'set.a is one of the inputs'
	fails_with 2 moe-tokenize merge set.a set.b
	fails_with 66 moe-tokenize merge -o new set.a none
	[ ! -e new.bin ]
}

@test "what does not fit together, or is damaged, is refused by name and leaves nothing" {
	three_sets
	moe-tokenize train -q --vocab-size 349 -o other.json text
	moe-tokenize encode -q -t other.json -o set.o a
	fails_with 65 moe-tokenize merge -o all set.a set.o
	says 'set.o: encoded with another tokenizer than set.a'
	fails_with 65 moe-tokenize merge -t other.json -o all set.a set.b
	says 'set.a: encoded with another tokenizer than the vocabulary'
	poke set.c.bin 100 3 2
	fails_with 65 moe-tokenize merge -o all set.a set.c
	says 'set.c.bin: bytes 0 to'
	says 'checksum differs from set.c.json'
	rm set.b.json
	fails_with 65 moe-tokenize merge -o all set.a set.b
	says 'set.b: no sidecar set.b.json'
	says '--foreign takes'
	sed -i 's/"eod":{"id":256/"eod":{"id":255/' set.a.json
	moe-tokenize encode -q -t tok.json -o good a
	fails_with 65 moe-tokenize merge -o all good set.a
	says 'documents end with token 255, those of good with 256'
	[ -z "$(find . -name 'all*' -o -name '.*moe-tmp')" ]
}

@test "foreign pairs merge as they are, and the index moves on" {
	pair a 4 4 '2 1 2' '0 2 3' '1 2 3 4 256'
	pair b 4 4 '1 3' '0 1 2' '70000 5 6 7'
	passes moe-tokenize merge --foreign -o ab a b
	says 'no sidecar is written: which vocabulary the ids are of'
	[ ! -e ab.json ]
	pair want 4 4 '2 1 2 1 3' '0 2 3 4 5' '1 2 3 4 256 70000 5 6 7'
	same ab.bin want.bin
	same ab.idx want.idx
	passes moe-tokenize verify --structure ab
	fails_with 73 moe-tokenize merge --foreign -o ab a b
	says 'ab.bin exists without a sidecar'
	# One mode a sequence, as multimodal sets have, stays with it.
	printf '\001\002\003' >> a.idx
	fails_with 65 moe-tokenize merge --foreign -f -o ab a b
	says 'a has modes and b has none'
	printf '\004\005' >> b.idx
	moe-tokenize merge -q --foreign -f -o ab a b
	printf '\001\002\003\004\005' >> want.idx
	same ab.idx want.idx
	pair c 8 2 '1' '0 1' '9'
	fails_with 65 moe-tokenize merge --foreign -o bad c b
	says 'b: i32, but c is u16; without a vocabulary (-t) neither can become the other'
	pair d 4 4 '1' '0 2' '9'
	fails_with 65 moe-tokenize merge --foreign -o bad d
	says 'd.idx: the document index ends with 2, not with 1'
}

@test "foreign pairs of any width become a token file with the vocabulary" {
	printf 'the times' | moe-tokenize encode -t tok.json > stream
	n=$(($(stat -c %s stream) / 4))
	ids=$(le 4 0 $n stream | tr '\n' ' ')
	pair a 5 8 "$n 1" '0 2' "$ids 256"
	pair b 4 4 "$((n + 1))" '0 1' "$ids 256"
	printf 'the times\n' > line
	moe-tokenize encode -q -t tok.json --docs line -o own line
	moe-tokenize merge -q --foreign -t tok.json -o all a own b
	printf 'the times\n%.0s' 1 2 3 > lines
	moe-tokenize encode -q -t tok.json --docs line -o once lines
	same all.bin once.bin
	same all.idx once.idx
	passes moe-tokenize verify -t tok.json all
	passes moe-tokenize info --json all
	says '"text_bytes":27'
	says '"inputs":5'
	passes moe-tokenize merge --foreign -t tok.json -o all a own b
	says 'up to date'
	# Ids that the vocabulary has not.
	pair bad 4 4 '2' '0 1' '350 256'
	fails_with 65 moe-tokenize merge --foreign -t tok.json -o new bad
	says 'bad.bin: token 0: id 350 is beyond the vocabulary of 350 tokens'
	pair bad 5 8 '2' '0 1' '4294967296 256'
	fails_with 65 moe-tokenize merge --foreign -t tok.json -o new bad
	# Documents without an end, among them empty ones in all places.
	pair open 4 4 "0 $n 0 $((n + 1)) 0 0 $n" '0 1 2 3 4 5 6 7' "$ids $ids 256 $ids"
	fails_with 65 moe-tokenize merge --foreign -t tok.json -o new open
	says 'open.bin: document 0 does not end with the end-of-document token 256; --eod adds it'
	passes moe-tokenize merge --foreign --eod -t tok.json -o new open
	says 'new: 6 documents got an end-of-document token'
	printf '\nthe times\n\nthe times\n\n\nthe times\n' > lines
	moe-tokenize encode -qf -t tok.json --docs line -o once lines
	same new.bin once.bin
	same new.idx once.idx
	fails_with 2 moe-tokenize merge --eod -o new2 own
}

@test "a merge whose disk fails at any call says so in one line and leaves what was there" {
	need_preload fault
	three_sets
	mkdir out
	moe-tokenize merge -q -o out/all set.a set.b
	merge_to() { MOE_FAULT_DIR=$PWD/out LD_PRELOAD=$FAULT moe-tokenize merge -q -f -o out/all set.a set.b set.c; }
	for kind in pwrite fsync rename open pread; do
		for n in 1 2 3 4 5 6 7 8; do
			status=0
			MOE_FAULT=$kind:$n:EIO merge_to 2> err || status=$?
			if [ "$status" -eq 0 ]; then
				moe-tokenize verify -q out/all > /dev/null
				moe-tokenize merge -qf -o out/all set.a set.b
				continue
			fi
			[ "$status" -ge 66 ] && [ "$(wc -l < err)" -eq 1 ] || {
				echo "$kind:$n: status $status: $(cat err)"
				return 1
			}
			[ -z "$(find out -name '*moe-tmp')" ]
			# A sidecar vouches for what is there, or there is none.
			[ ! -e out/all.json ] || moe-tokenize verify -q out/all > /dev/null
			moe-tokenize merge -qf -o out/all set.a set.b
		done
	done
}

@test "info tells the lengths of documents exactly, and what a pair without a sidecar has" {
	# Lengths 1..200 and one of 70001: more than the 65536 of the first table.
	printf 'b\n%.0s' $(seq 400) > lines
	moe-tokenize encode -q -t tok.json --docs line -o set lines
	pair lengths 4 4 '1 2 3 4 5 6 7 8 9 10' '0 1 2 3 4 5 6 7 8 9 10' "$(seq 55 | tr '\n' ' ')"
	passes moe-tokenize info --json lengths
	says '"documents":10,"sequences":10,"tokens":55'
	says '"shortest":1,"p10":1,"median":5,"p90":9,"p99":10,"p999":10,"longest":10'
	says '"lengths":[{"below":2,"documents":1,"tokens":1},{"below":4,"documents":2,"tokens":5},{"below":8,"documents":4,"tokens":22},{"below":16,"documents":3,"tokens":27}]'
	head -c 70000 /dev/zero | tr '\0' 'b' > long
	pair two 1 1 '70001 2' '0 1 2' ''
	head -c 70003 /dev/zero > two.bin
	passes moe-tokenize info --json two
	says '"p10":2,"median":2,"p90":70001,"p99":70001'
	passes moe-tokenize info two
	says '2 to 70,001 tokens; 10 % up to 2'
	says 'without a sidecar'
	passes moe-tokenize info -v set
	says '3 or fewer:'
	says 'moe-tokenize encode -q -t tok.json --docs line -o set lines'
	pair torn 4 4 '2' '0 1' '1'
	fails_with 65 moe-tokenize info torn
	says 'torn.bin: truncated'
	passes moe-tokenize info --json tok.json
	says '"format":"tokenizer.json","merging":"list","unused":0,"unreachable":0,"dtype":"u16","compiled":true,"keeps_text":true'
}

@test "a merge beyond four gigabytes has offsets of 64 bits" {
	[ -n "${MOE_LONG-}" ] || skip 'five gigabytes are written with MOE_LONG only'
	n=$((5 << 29))
	for x in a b; do
		pair $x 8 2 $((n / 2)) '0 1' ''
		truncate -s $n $x.bin
		poke $x.bin $((n - 2)) 256 2
	done
	moe-tokenize merge -q --foreign -t tok.json -o big a b
	[ "$(le 8 $((34 + 8)) 2 big.idx | tr '\n' ' ')" = "0 $n " ]
	passes moe-tokenize verify -t tok.json --json big
	says "\"documents\":2,\"sequences\":2,\"tokens\":$n"
	passes moe-tokenize info --json big
	says '"checksums":false'
}

@test "what merge, verify, info and decode hold does not grow with the files" {
	command -v time > /dev/null && [ -x "$(type -P time)" ] || skip 'time is not installed'
	peak() { { command time -f %M moe-tokenize "$@" > /dev/null; } 2>&1 | tail -n 1; } # of a run, in KiB
	printf '\n' > small
	head -c 3000000 /dev/zero | tr '\0' '\n' > large
	for s in small large; do moe-tokenize encode -q -t tok.json --docs line -o $s $s; done
	# An index of 240 MB, of parts of 60 MB.
	[ "$(peak merge -q -o all large large large large)" -lt $(($(peak merge -q -o one small small) + 32000)) ]
	[ "$(stat -c %s all.idx)" -gt 240000000 ]
	[ "$(peak info all)" -lt $(($(peak info one) + 48000)) ]
	[ "$(peak decode -t tok.json all)" -lt $(($(peak decode -t tok.json one) + 48000)) ]
	# A chunk of 64 MiB for each thread.
	[ "$(peak verify -j 1 -t tok.json all)" -lt $(($(peak verify -j 1 -t tok.json one) + 96000)) ]
	for s in one all; do mv $s.json $s.sidecar; done
	[ "$(peak merge -q --foreign -t tok.json -o mine all all)" -lt $(($(peak merge -q --foreign -t tok.json -o my1 one one) + 32000)) ]
	[ "$(peak merge -q --foreign -o pair all all)" -lt $(($(peak merge -q --foreign -o pair1 one one) + 48000)) ]
	[ "$(stat -c %s pair.idx)" -gt 480000000 ]
	rm -f all.* mine.* pair.*
}

@test "token files are held against the texts they are of, and the first that differs is named" {
	make_text > b
	printf '%s\n' '{"text":"one two","title":"a"}' '{"text":"","title":"b"}' '{"title":"c","text":"drei vier"}' > c.jsonl
	moe-tokenize encode -q -t tok.json -o set text b
	passes moe-tokenize encode -t tok.json --against set text b
	says 'set: the same ids: 2 documents'
	passes moe-tokenize encode -t tok.json --slow --against set text b
	[ -z "$output" ]
	# As dealt out, by whoever works; and by keys.
	moe-tokenize encode -q -t tok.json --docs line --shards 3 -o part text b
	for j in 1 8; do passes moe-tokenize encode -t tok.json -j $j --docs line --shards 3 --against part text b; done
	moe-tokenize encode -q -t tok.json --key text --key title -o web c.jsonl
	passes moe-tokenize encode -t tok.json --key text --key title --against web c.jsonl
	says 'web: the same ids: 6 documents'
	moe-tokenize encode -q -t tok.json --docs line --shard 1/2 -o job text b
	passes moe-tokenize encode -t tok.json --docs line --shard 1/2 --against job text b
	# Another text, and more or less of it.
	sed 's/vier/vir/' c.jsonl > other.jsonl
	fails_with 1 moe-tokenize encode -t tok.json --key text --key title --against web other.jsonl
	says 'other.jsonl: web_text.bin: document 2, token '
	head -n 2 c.jsonl > fewer.jsonl
	fails_with 1 moe-tokenize encode -t tok.json --key text --key title --against web fewer.jsonl
	says 'web_text.bin: has 3 documents, the texts give 2'
	fails_with 1 moe-tokenize encode -t tok.json --key text --key title --against web c.jsonl c.jsonl
	says 'c.jsonl: web_text.bin: has 3 documents, the texts give more'
	printf 'It' > a
	moe-tokenize encode -q -t tok.json -o a a
	printf 'It was' > a
	fails_with 1 moe-tokenize encode -t tok.json --against a a
	says 'a: a.bin: document 0, token 1: the file has 256, the text gives '
	printf 'I' > a
	fails_with 1 moe-tokenize encode -t tok.json --against a a
	# A pair of Megatron's, of any width.
	moe-tokenize encode -q -f -t tok.json --docs line -o a a
	n=$(($(stat -c %s a.bin) / 2))
	pair foreign 4 4 "$n" '0 1' "$(le 2 0 $n a.bin | tr '\n' ' ')"
	passes moe-tokenize encode -t tok.json --docs line --against foreign a
	fails_with 66 moe-tokenize encode -t tok.json --against none a
	fails_with 2 moe-tokenize encode -t tok.json --against a -o x a
	fails_with 2 moe-tokenize encode -t tok.json --against a --check a
	[ ! -e x.json ]
}
