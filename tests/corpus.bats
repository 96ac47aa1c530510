#!/usr/bin/env bats
# corpus.bats -- moe-tokenize encode: texts of every kind in, whole token files out.

load lib

setup_file() {
	cd "$BATS_FILE_TMPDIR" || exit
	local i
	for i in $(seq 1 60); do
		printf 'It was the best of times, it was the worst of times (%d).\n' "$i"
		printf 'Es war die beste Zeit, es war die schlimmste Zeit; Übungen für alle.\n'
		printf 'Ήταν η καλύτερη εποχή, ήταν η χειρότερη εποχή. Беше най-доброто време.\n\n'
	done > text
	moe-tokenize train -q --vocab-size 380 -o tok.json text
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit
	ln -s "$BATS_FILE_TMPDIR/tok.json" "$BATS_FILE_TMPDIR/text" .
}

encode() { moe-tokenize encode -q -t tok.json "$@"; }

# le WIDTH OFFSET COUNT FILE: little-endian numbers, one a line.
le() { od -An -v -t "u$1" -j "$2" -N $(($1 * $3)) -w"$1" "$4" | tr -d ' '; }

# documents PREFIX: the text of each document, a line each, by a reader made from
# the description of Megatron's format: lengths, offsets, document index.
documents() {
	local n i length offset
	[ "$(head -c 7 "$1.idx")" = MMIDIDX ]
	[ "$(le 8 9 1 "$1.idx")" = 1 ]
	[ "$(le 1 17 1 "$1.idx")" = 8 ]
	n=$(le 8 18 1 "$1.idx")
	[ "$(le 8 26 1 "$1.idx")" = $((n + 1)) ]
	[ "$(stat -c %s "$1.idx")" = $((42 + 20 * n)) ]
	[ "$(le 8 $((34 + 12 * n)) $((n + 1)) "$1.idx" | tr '\n' ' ')" = "$(seq 0 "$n" | tr '\n' ' ')" ]
	for ((i = 0; i < n; i++)); do
		length=$(le 4 $((34 + 4 * i)) 1 "$1.idx")
		offset=$(le 8 $((34 + 4 * n + 8 * i)) 1 "$1.idx")
		[ "$(le 2 $((offset + 2 * length - 2)) 1 "$1.bin")" = 256 ]
		# A stream has ids of four bytes.
		printf '%b' "$(le 2 "$offset" $((length - 1)) "$1.bin" |
			awk '{ printf "\\0%03o\\0%03o\\0000\\0000", $1 % 256, $1 / 256 }')" | moe-tokenize decode -t tok.json
		echo
	done
}

# counter NAME PREFIX
counter() { grep -o "\"$1\":[0-9]*" "$2.json" | head -n 1 | sed 's/.*://'; }

# lines N: N lines of JSON with texts of several lengths.
lines() {
	awk -v n="$1" 'BEGIN {
		for (i = 0; i < n; i++) {
			s = ""
			for (k = 0; k < (i * 7919) % 97; k++)
				s = s "Es war die beste Zeit \\u00fc\\n" k " "
			printf "{\"id\":%d,\"text\":\"%s\",\"title\":\"Title %d\"}\n", i, s, i
		}
	}'
}

@test "strings of JSON become documents, with every escape undone" {
	printf '%s\n' '{"text":"a\"b\\c\/d \u0041\u00e9 \ud83d\ude00"}' '' '{"id":[1,{"text":"no"}],"\u0074ext":"two\tthree"}' '{"text":""}' > a.jsonl
	encode -o set a.jsonl
	documents set > got
	printf 'a"b\\c/d Aé 😀\ntwo\tthree\n\n' > want
	same got want
	[ "$(counter blank_lines set)" = 1 ]
	[ "$(counter empty set)" = 1 ]
	[ "$(counter documents set)" = 3 ]
	# The name decides, and the option over it.
	cp a.jsonl other
	encode -o other1 --docs jsonl other
	same set.bin other1.bin
	encode -o other2 --docs line a.jsonl
	[ "$(counter documents other2)" = 4 ]
}

@test "NUL, halves of pairs and bytes that are no UTF-8 have policies and counters" {
	printf '%s\n' '{"text":"a\u0000b"}' '{"text":"c\ud800d\udc00"}' > a.jsonl
	printf '{"text":"e\377f"}\n' >> a.jsonl
	moe-tokenize encode -t tok.json -o set a.jsonl 2> log
	grep -q '1 U+0000' log
	grep -q '2 halves of surrogate pairs (replaced)' log
	grep -q 'bytes that are no valid UTF-8: 1;' log
	[ "$(counter nul set)$(counter lone_surrogates set)$(counter invalid_utf8 set)" = 121 ]
	moe-tokenize decode -t tok.json set > got
	printf 'a\0bc\357\277\275d\357\277\275e\377f' > want
	same got want
	encode -f -o set --on nul=drop --on surrogate=skip --on utf8=replace a.jsonl
	moe-tokenize decode -t tok.json set > got
	printf 'abe\357\277\275f' > want
	same got want
	[ "$(counter nul set)$(counter lone_surrogates set)$(counter invalid_utf8 set)" = 121 ]
	fails_with 65 moe-tokenize encode -t tok.json -f -o set --on nul=stop a.jsonl
	says 'a.jsonl:1: U+0000'
	fails_with 65 moe-tokenize encode -t tok.json -f -o set --on surrogate=stop a.jsonl
	says 'a.jsonl:2: "text" has half of a surrogate pair'
	fails_with 65 moe-tokenize encode -t tok.json -f -o set --on utf8=stop a.jsonl
	says 'a.jsonl:3: no valid UTF-8'
	fails_with 65 moe-tokenize encode -t tok.json -f -o set --on utf8=stop --docs file a.jsonl
	says 'a.jsonl: byte '
	# A set that is there stays when making another fails.
	passes moe-tokenize info set
	[ ! -e set.part ]
}

@test "a line that is no object, a missing key and a value that is no string stop, or are left out and counted" {
	printf '%s\n' '{"text":"one"}' '{"text":"two"' '{"other":1}' '{"text":null}' '{"text":3}' '{"text":"six"}' > a.jsonl
	fails_with 65 moe-tokenize encode -t tok.json -o set a.jsonl
	says 'a.jsonl:2: column 14: expected "," or "}"'
	fails_with 65 moe-tokenize encode -t tok.json -o set --on json=skip a.jsonl
	says 'a.jsonl:3: "text" is absent'
	fails_with 65 moe-tokenize encode -t tok.json -o set --on json=skip --on key=skip a.jsonl
	says 'a.jsonl:5: "text" is a number, not a string'
	[ -z "$(find . -name 'set*')" ]
	encode -o set --on json=skip --on key=skip --on type=empty a.jsonl
	documents set > got
	printf 'one\n\nsix\n' > want
	same got want
	[ "$(counter bad_json set) $(counter no_key set) $(counter no_string set)" = '1 2 1' ]
	encode -f -o set --on json=skip --on key=skip --on type=empty --on empty=skip a.jsonl
	[ "$(counter documents set) $(counter empty_left_out set)" = '2 1' ]
	# A stream tells what was counted too.
	moe-tokenize encode -t tok.json --on json=skip --on key=skip --on type=empty a.jsonl 2> log > stream
	grep -q '1 line that is no JSON object (left out), 2 values that are missing (left out), 1 value that is no string (taken as empty), 1 document' log
	fails_with 2 moe-tokenize encode -t tok.json -o set --on json=keep a.jsonl
	says 'skip, stop'
	fails_with 2 moe-tokenize encode -t tok.json -o set --on blah=skip a.jsonl
	fails_with 2 moe-tokenize encode -t tok.json -o set --key text text
}

@test "of several keys each gets a whole set, in one pass, and a line counts for all or none" {
	printf '%s\n' '{"title":"A","text":"a a"}' '{"text":"only"}' '{"text":"b b","title":""}' > a.jsonl
	fails_with 65 moe-tokenize encode -t tok.json -o set --key title --key text a.jsonl
	says 'a.jsonl:2: "title" is absent'
	encode -o set --key title --key text --on key=skip a.jsonl
	documents set_title > got
	printf 'A\n\n' > want
	same got want
	documents set_text > got
	printf 'a a\nb b\n' > want
	same got want
	grep -q '"key":"title"' set_title.json
	passes moe-tokenize info set_title set_text
	passes moe-tokenize encode -t tok.json -o set --key title --key text --on key=skip a.jsonl
	says 'up to date'
	fails_with 73 moe-tokenize encode -t tok.json -o set --key title --key text --on key=empty a.jsonl
	encode -o one --key text a.jsonl
	[ -e one.bin ]
	[ ! -e one_text.bin ]
	fails_with 2 moe-tokenize encode -t tok.json -o x --key a --key a a.jsonl
	fails_with 2 moe-tokenize encode -t tok.json -o x --key a/b --key a a.jsonl
	fails_with 2 moe-tokenize encode -t tok.json -o x --key a --key b a.jsonl text
	fails_with 2 moe-tokenize encode -t tok.json --key a --key b a.jsonl
}

@test "gzip and zstd are unpacked by their first bytes: members, frames, from a pipe" {
	need zstd
	lines 300 > a.jsonl
	encode -o plain a.jsonl
	{ head -n 100 a.jsonl | gzip; tail -n +101 a.jsonl | gzip -1; } > no-name
	encode -o gz --docs jsonl no-name
	{ head -n 100 a.jsonl | zstd -q; printf '\123\052\115\030\003\0\0\0abc'; tail -n +101 a.jsonl | zstd -q -19; } > b.jsonl.zst
	encode -o zst b.jsonl.zst
	encode -o pipe --docs jsonl < b.jsonl.zst
	for f in gz zst pipe; do
		same plain.bin $f.bin
		same plain.idx $f.idx
	done
	# The sidecar speaks of the file as it lies there.
	[ "$(counter bytes zst)" = "$(stat -c %s b.jsonl.zst)" ]
	for f in no-name b.jsonl.zst; do
		for n in 30 1000 $(($(stat -c %s $f) - 1)); do
			head -c "$n" $f > torn
			fails_with 65 moe-tokenize encode -t tok.json -o x --docs jsonl torn
			says torn:
			says "$n"
		done
		{ cat $f; echo more; } > longer
		fails_with 65 moe-tokenize encode -t tok.json -o x --docs jsonl longer
		says 'byte '
		[ -z "$(find . -name 'x*')" ]
	done
	gzip -c text | moe-tokenize encode -t tok.json | moe-tokenize decode -t tok.json > back
	same text back
}

@test "what is packed otherwise is refused by name, and only that" {
	printf '\3757zXZ\0\0\4' > a.xz
	printf 'BZh91AY&SYabc' > a.bz2
	printf 'BZh9\27\162\105\70\120\220\0\0\0\0' > empty.bz2
	printf '\4"M\30abc' > a.lz4
	printf 'PK\3\4abc' > a.zip
	for f in a.xz a.bz2 empty.bz2 a.lz4 a.zip; do
		fails_with 65 moe-tokenize encode -t tok.json -o x $f
		says "$f: is packed with "
		fails_with 65 moe-tokenize encode -t tok.json < $f
		fails_with 65 moe-tokenize train --vocab-size 260 -o x.json $f
		fails_with 65 moe-tokenize stats -t tok.json $f
	done
	[ -z "$(find . -name 'x*')" ]
	for s in 'BZh9 is a word' 'PK' '7zXZ' 'BZh91AY'; do
		printf '%s' "$s" > plain
		[ "$(encode plain | moe-tokenize decode -t tok.json)" = "$s" ]
	done
}

@test "a text is never replaced by its own token file" {
	lines 2 > web.json
	cp web.json kept
	for f in '' -f; do
		fails_with 73 moe-tokenize encode -t tok.json --docs jsonl -o web $f web.json
		says 'web.json is one of the texts'
	done
	same web.json kept
	cp text a.bin
	fails_with 73 moe-tokenize encode -t tok.json -f -o a a.bin
	same a.bin text
	cp text t.json
	fails_with 2 moe-tokenize train --vocab-size 260 -f -o t.json text t.json
	says 't.json is one of the texts'
	same t.json text
}

@test "1 and 8 threads give the same bytes, whatever the documents are" {
	lines 4000 > a.jsonl
	for i in $(seq 1 40); do cat text; done > long
	tr -d ' \n' < long > stretch
	for j in 1 8; do
		encode -j $j -o j$j a.jsonl long stretch text
		encode -j $j -o l$j --docs line long
		encode -j $j -o b$j --docs blank long
		encode -j $j -o s$j --shards 3 a.jsonl long
		encode -j $j -o k$j --key text --key title a.jsonl
		encode -j $j --eod a.jsonl long > e$j
	done
	same e1 e8
	for f in j l b k; do
		for e in bin idx; do
			case $f in
			k) same k1_text.$e k8_text.$e && same k1_title.$e k8_title.$e ;;
			*) same ${f}1.$e ${f}8.$e ;;
			esac
		done
	done
	for i in 0 1 2; do
		same s1-0000$i-of-00003.bin s8-0000$i-of-00003.bin
		same s1-0000$i-of-00003.idx s8-0000$i-of-00003.idx
	done
	# The first failure in the text is the one that is told.
	{ cat a.jsonl; echo '{"x":1}'; cat a.jsonl; echo '{'; } > bad.jsonl
	for _ in 1 2 3; do
		fails_with 65 moe-tokenize encode -j 8 -t tok.json -o x bad.jsonl
		says 'bad.jsonl:4001: "text" is absent'
	done
}

@test "shards hold all documents once, about equally, and of several keys the same lines" {
	lines 1000 > a.jsonl
	encode -o all a.jsonl
	encode -o set --shards 4 --key title --key text a.jsonl
	total=0 docs=0
	for i in 0 1 2 3; do
		n=$(counter tokens set_text-0000$i-of-00004)
		total=$((total + n))
		docs=$((docs + $(counter documents set_text-0000$i-of-00004)))
		[ "$(counter documents set_text-0000$i-of-00004)" = "$(counter documents set_title-0000$i-of-00004)" ]
		[ "$n" -gt $(($(counter tokens all) / 5)) ]
		passes moe-tokenize info set_text-0000$i-of-00004
	done
	[ "$total" = "$(counter tokens all)" ]
	[ "$docs" = 1000 ]
	moe-tokenize decode -t tok.json --special set_text-0000{0,1,2,3}-of-00004 | sed 's/<|endoftext|>/\n/g' | sort > a
	moe-tokenize decode -t tok.json --special all | sed 's/<|endoftext|>/\n/g' | sort > b
	same a b
	grep -q 'invalid bytes *0' <(moe-tokenize info set_text-00000-of-00004)
	grep -q 'invalid bytes *told by the first shard' <(moe-tokenize info set_text-00001-of-00004)
	fails_with 2 moe-tokenize encode -t tok.json --shards 2 a.jsonl
	passes moe-tokenize encode -t tok.json -o set --shards 4 --key title --key text a.jsonl
	says 'up to date'
	rm set_text-00002-of-00004.*
	fails_with 73 moe-tokenize encode -t tok.json -o set --shards 4 --key title --key text a.jsonl
}

@test "jobs of an array take every N-th text" {
	for i in 0 1 2 3 4; do lines $((10 + i)) > $i.jsonl; done
	for s in 0 1 2; do encode -o set --shard $s/3 ?.jsonl & done
	wait
	encode -o want 1.jsonl 4.jsonl
	same want.bin set-00001-of-00003.bin
	same want.idx set-00001-of-00003.idx
	[ "$(counter documents set-00002-of-00003)" = 12 ]
	# More jobs than texts: a set without documents.
	passes moe-tokenize encode -t tok.json -o few --shard 2/3 0.jsonl 1.jsonl
	says 'no documents'
	[ "$(counter documents few-00002-of-00003)" = 0 ]
	passes moe-tokenize info few-00002-of-00003
	for s in 3/3 -1/3 1 1/ a/b 0/0 1/2x; do
		fails_with 2 moe-tokenize encode -t tok.json -o x --shard=$s 0.jsonl
	done
	fails_with 2 moe-tokenize encode -t tok.json -o x --shard 0/2 --shards 2 0.jsonl
}

@test "a text that is not there, or is a folder, is found before anything is made" {
	mkdir folder
	fails_with 66 moe-tokenize encode -t tok.json -o set text absent
	says absent
	fails_with 66 moe-tokenize encode -t tok.json -o set text folder
	says 'folder: is a directory'
	fails_with 2 moe-tokenize encode -t tok.json -o set - -
	fails_with 2 moe-tokenize encode -t tok.json -o folder/ text
	fails_with 2 moe-tokenize merge -o folder/ text
	[ -z "$(ls -A folder)" ]
	for f in absent folder; do
		fails_with 66 moe-tokenize train --vocab-size 260 -o set.json text $f
		fails_with 66 moe-tokenize stats -t tok.json text $f
	done
	if [ "$(id -u)" -ne 0 ]; then
		cp text closed
		chmod 0 closed
		fails_with 66 moe-tokenize encode -t tok.json -o set text closed
		says 'closed: Permission denied'
	fi
	[ -z "$(find . -name 'set*')" ]
}

@test "standard input is compared with what is there, and not written again" {
	encode -o set < text
	passes moe-tokenize encode -t tok.json -o set < text
	says 'up to date'
	fails_with 73 moe-tokenize encode -t tok.json -o set < <(cat text text)
	fails_with 73 moe-tokenize encode -t tok.json -o set --template text
}

# many N: N small texts, some packed, in in/.
many() {
	local i
	mkdir -p in
	for i in $(seq -w 1 "$1"); do
		lines $((10#$i % 7)) > "in/$i.jsonl"
		[ $((10#$i % 3)) -ne 0 ] || gzip "in/$i.jsonl"
	done
}

@test "killed at random moments and started again, encode ends with the same bytes and says where it goes on" {
	need_preload fault
	many 40
	encode -o want --shards 2 in/*
	mkdir out
	kills=0 said=0
	while :; do
		n=$((14 + 7 * kills))
		status=0
		MOE_FAULT_DIR=$(pwd -P)/out MOE_FAULT=any:$n:KILL LD_PRELOAD=$FAULT \
			moe-tokenize encode -t tok.json -j 2 -o out/set --shards 2 in/* 2> log || status=$?
		! grep -q 'continuing after [0-9]* of 40 inputs' log || said=$((said + 1))
		[ "$status" -ne 0 ] || break
		[ "$status" -eq 137 ]
		kills=$((kills + 1))
		[ ! -e out/set-00000-of-00002.json ] || [ ! -e out/set.part/set-00000-of-00002.json ]
		[ "$kills" -lt 30 ]
	done
	[ "$kills" -ge 2 ]
	[ "$said" -ge 1 ]
	for i in 0 1; do
		same want-0000$i-of-00002.bin out/set-0000$i-of-00002.bin
		same want-0000$i-of-00002.idx out/set-0000$i-of-00002.idx
		# But for the command line the sidecars are the same too.
		for f in want-0000$i-of-00002 out/set-0000$i-of-00002; do sed 's/"argv":\[[^]]*\]//' $f.json; done | sort -u > once
		[ "$(wc -l < once)" = 1 ]
	done
	[ ! -e out/set.part ]
}

@test "killed between any two calls of the end, the next run only moves what is left" {
	need_preload fault
	many 3
	encode -o want --key text --key title in/*
	for n in $(seq 20 80); do
		rm -rf out
		mkdir out
		status=0
		MOE_FAULT_DIR=$(pwd -P)/out MOE_FAULT=any:$n:KILL LD_PRELOAD=$FAULT \
			moe-tokenize encode -q -t tok.json -o out/set --key text --key title in/* || status=$?
		[ "$status" -ne 0 ] || break
		passes moe-tokenize encode -t tok.json -o out/set --key text --key title in/*
		for k in text title; do
			same want_$k.bin out/set_$k.bin
			same want_$k.idx out/set_$k.idx
			moe-tokenize info out/set_$k > /dev/null
		done
		[ ! -e out/set.part ]
	done
	[ "$n" -gt 30 ]
	[ "$n" -lt 80 ]
}

# stopped: three texts, the last of which is bad, so that two are kept.
stopped() {
	lines 5 > a.jsonl
	lines 6 > b.jsonl
	echo '{' > c.jsonl
	fails_with 65 moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'c.jsonl:1: column 2: expected a key; '
	says 'inputs are done and kept in set.part for the same command'
	[ -e set.part/journal.jsonl ]
	lines 2 > c.jsonl
}

@test "a run that failed goes on after the texts that were done, when one that was not is mended" {
	stopped
	passes moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'set: continuing after '
	[ ! -e set.part ]
	encode -o want a.jsonl b.jsonl c.jsonl
	same want.bin set.bin
	same want.idx set.idx
}

@test "other options, another vocabulary, other texts begin anew and say why" {
	stopped
	cp -r set.part kept
	again() {
		rm -rf set.part set.json set.bin set.idx
		cp -r kept set.part
		passes moe-tokenize encode "$@"
		says 'set.part: begun anew: '
		[ ! -e set.part ]
	}
	again -t tok.json -o set --on blank=stop a.jsonl b.jsonl c.jsonl
	says 'the options are others'
	again -t tok.json -o set --docs line a.jsonl b.jsonl c.jsonl
	says 'the options are others'
	again -t tok.json -o set b.jsonl a.jsonl c.jsonl
	says 'the list of inputs is another one'
	moe-tokenize train -q --vocab-size 370 -o other.json text
	again -t other.json -o set a.jsonl b.jsonl c.jsonl
	says 'the vocabulary is another one'
	head -c 9 kept/journal.jsonl > short
	cp short kept/journal.jsonl
	again -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'its journal cannot be read'
}

@test "a text that changed behind a journal begins anew, one with another date does not" {
	stopped
	cp -r set.part kept
	touch -d yesterday a.jsonl
	passes moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'continuing after'
	rm set.*
	cp -r kept set.part
	sed -i 's/beste/letzte/; s/Zeit/Zei/' a.jsonl
	passes moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'begun anew: a.jsonl has changed'
	encode -o want a.jsonl b.jsonl c.jsonl
	same want.bin set.bin
	# What was written is looked at too.
	rm set.*
	stopped
	printf x | dd of=set.part/set.bin bs=1 seek=5 conv=notrunc status=none
	passes moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'begun anew: set.part/set.bin: is not what was written'
	encode -f -o want a.jsonl b.jsonl c.jsonl
	same want.bin set.bin
}

@test "a second run into the same prefix is refused while the first is alive" {
	mkfifo pipe
	moe-tokenize encode -q -t tok.json -o set pipe &
	exec 8> pipe
	for _ in $(seq 1 100); do
		[ -s set.part/lock ] && break
		sleep 0.05
	done
	fails_with 77 moe-tokenize encode -t tok.json -o set text
	says 'set.part is in use by process'
	cat text >&8
	exec 8>&-
	wait
	encode -o want text
	same want.bin set.bin
	[ ! -e set.part ]
}

@test "a full disk ends with one line, and what is done is kept for the time when there is room" {
	need_preload fault
	many 12
	encode -o want in/*
	mkdir out
	status=0
	MOE_FAULT_DIR=$(pwd -P)/out MOE_FAULT=pwrite:6+:ENOSPC LD_PRELOAD=$FAULT \
		moe-tokenize encode -q -t tok.json -o out/set in/* 2> log || status=$?
	[ "$status" -eq 74 ]
	[ "$(wc -l < log)" -eq 1 ]
	grep -q 'No space left on device; [0-9]* of 12 inputs are done and kept' log
	passes moe-tokenize encode -t tok.json -o out/set in/*
	says 'continuing after'
	same want.bin out/set.bin
	same want.idx out/set.idx
}

@test "memory does not depend on the size of the texts" {
	for i in $(seq 1 40); do cat text; done > long
	for i in $(seq 1 80); do cat long; done > huge
	peak() { # of a run, in KiB
		{ command time -f %M moe-tokenize encode -q -j 2 -t tok.json -o "$@"; } 2>&1 | tail -n 1
	}
	command -v time > /dev/null && [ -x "$(type -P time)" ] || skip 'time is not installed'
	small=$(peak s long)
	[ "$(stat -c %s huge)" -gt 40000000 ]
	large=$(peak h huge)
	[ "$large" -lt $((small + 40000)) ]
	[ "$(peak h2 --docs line huge)" -lt $((small + 40000)) ]
}

@test "one long document, of one letter too, is encoded whole" {
	head -c 3000000 /dev/zero | tr '\0' a > letters
	{ cat letters; printf ' '; cat letters; } > two
	{ printf '{"text":"'; cat letters; printf '"}\n'; } > one.jsonl
	encode -o set letters two one.jsonl
	[ "$(counter documents set)" = 3 ]
	moe-tokenize decode -t tok.json set > back
	cat letters two letters > want
	same want back
}

@test "a first document without text, and a vocabulary without an end, are defined" {
	printf '%s\n' '{"text":""}' '{"text":""}' '{"text":"x"}' > a.jsonl
	encode -o set a.jsonl
	[ "$(le 4 34 3 set.idx | tr '\n' ' ')" = '1 1 2 ' ]
	[ "$(le 8 46 3 set.idx | tr '\n' ' ')" = '0 2 4 ' ]
	: > nothing.jsonl
	passes moe-tokenize encode -t tok.json -o none nothing.jsonl
	says 'the texts have no documents'
	[ "$(stat -c %s none.idx)" = 42 ]
	sed 's/"special": true/"special": false/' tok.json > plain.json
	fails_with 65 moe-tokenize encode -t plain.json -o x a.jsonl
	says 'no special token to end documents with'
}

@test "a journal whose last line is torn is continued from the line before, again and again" {
	stopped
	n=$(wc -l < set.part/journal.jsonl)
	for _ in 1 2; do
		printf '{"inputs":[[1' >> set.part/journal.jsonl
		echo '{' > c.jsonl
		run --separate-stderr moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
		[ "$status" -eq 65 ]
		says 'continuing after'
		[ "$(wc -l < set.part/journal.jsonl)" -ge "$n" ]
	done
	lines 2 > c.jsonl
	passes moe-tokenize encode -t tok.json -o set a.jsonl b.jsonl c.jsonl
	says 'continuing after'
	encode -o want a.jsonl b.jsonl c.jsonl
	same want.bin set.bin
}
