# tap.awk -- judge the TAP of one test file: one line, then what went wrong.
#
# In: name status took limit need (comma-separated words), sum (file for
# "passed failed skipped"), err (file with what the test wrote to stderr).
# A plan may stand before or after its tests, and a file may hold several
# (cmocka prints one per group).  cmocka's skip() gives no reason, so the line
# "skip: REASON" printed before it is taken.
#
# A program with very many cases may instead print only what went wrong, as
# lines "FAIL NAME: WHY" and "SKIP NAME: WHY", and last "N passed, N failed, N
# skipped" (the conformance list does).

function flush_block() {
	if (bad) {
		details = details block
	}
	bad = 0
	block = ""
	lines = 0
}
function keep(s) {
	if (++lines <= 40)
		block = block "      " s "\n"
}
# The word of NEED that a reason holds, or "".
function needed(reason, n, words, i) {
	n = split(need, words, ",")
	for (i = 1; i <= n; i++)
		if (words[i] != "" && index(tolower(reason), tolower(words[i])))
			return words[i]
	return ""
}
function fail(s) {
	n_fail++
	bad = 1
	keep(s)
}

# A test that printed without a final newline has the verdict glued behind.
# Only our own words are looked for, so that text like "look" cannot match.
/.not ok [0-9]+ - / && !/^not ok/ { sub(/not ok [0-9]+ - /, "\n&"); split($0, half, "\n"); keep(half[1]); $0 = half[2] }
/.ok [0-9]+ - / && !/^(not )?ok/ { sub(/ok [0-9]+ - /, "\n&"); split($0, half, "\n"); keep(half[1]); $0 = half[2] }

/^1\.\.[0-9]+/ { split($1, half, "[.][.]"); plan += half[2]; next }

/^(not )?ok [0-9]+/ {
	# What was printed before the verdict belongs to it; bats and cmocka
	# explain a failure after it.
	seen++
	if (match(tolower($0), /# *skip/)) {
		reason = substr($0, RSTART + RLENGTH)
		sub(/^[: \t]+/, "", reason)
		title = $0
		if (said != "") {
			title = $0
			reason = said
		}
		sub(/^(not )?ok [0-9]+ *-? */, "", title)
		sub(/ *# *[Ss][Kk][Ii][Pp].*/, "", title)
		if (said != "" && title == "") {
			title = $0
			sub(/.*# *SKIP */, "", title)
		}
		pre = block
		flush_block()
		word = needed(reason)
		if (said == "" && $0 ~ /^not ok/)
			fail("skipped without saying why: " $0)
		else if (reason == "")
			fail("skipped without saying why: " title)
		else if (word != "")
			fail("skipped although NEED names " word ": " title ": " reason)
		else {
			n_skip++
			skips = skips "      skipped: " title ": " reason "\n"
		}
	} else if ($0 ~ /^not/) {
		pre = block
		flush_block()
		bad = 1
		n_fail++
		keep($0)
		if (pre != "")
			block = block pre
	} else {
		flush_block()
		n_pass++
	}
	said = ""
	next
}

/^SKIP [^:]+: / {
	n_reasons++
	word = needed($0)
	if (word != "")
		fail("skipped although NEED names " word ": " substr($0, 6))
	else
		skips = skips "      skipped: " substr($0, 6) "\n"
	next
}
/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
	tallied = 1
	n_pass += $1
	n_fail += $3
	n_skip += $5
	bad = bad || $3 > 0
	next
}

/^skip: / { said = substr($0, 7); next }
{ keep($0) }

END {
	flush_block()
	if (status == 124 || status == 137)
		fail("ran past its time of " limit " s")
	else if (tallied) {
		if (n_skip > 0 && !n_reasons)
			fail("skipped without saying why")
		if (status != 0 && n_fail == 0)
			fail("all tests passed, but the status is " status)
	} else if (seen == 0 && plan == 0) {
		# No TAP at all: the status is the verdict.
		if (status == 0)
			n_pass++
		else
			fail("ended with status " status)
	} else if (seen < plan)
		fail(sprintf("stopped after %d of %d tests with status %d", seen, plan, status))
	else if (status != 0 && n_fail == 0)
		fail("all tests passed, but the status is " status)
	flush_block()
	if (n_fail) {
		while ((getline l < err) > 0 && ++lines <= 30)
			block = block "      stderr: " l "\n"
		details = details block
	}
	printf "%-6s %-44s %4d passed%s%s  %d s\n%s%s", n_fail ? "FAIL" : "ok", name, n_pass, \
		n_fail ? ", " n_fail " failed" : "", n_skip ? ", " n_skip " skipped" : "", took, skips, details
	print n_pass + 0, n_fail + 0, n_skip + 0 > sum
}
