# mallard.awk -- GNOME's help pages (Mallard XML) to text: a paragraph a line, a blank line after each page.
#
# A record is what stands between two "<": the tag, ">", and the text after it.
# Elements inside a sentence stay on its line; credits, comments of the
# translators, listings, screens and lists of links go with all they hold.
# Entities become UTF-8.  Meant for LC_ALL=C: bytes, not characters.  It
# refuses to be an XML parser: it knows the pages of one project, which are
# well-formed.
BEGIN {
	RS = "<"
	words("gui guiseq key keyseq app em link file code sys cmd input output var span cite media its:span sub sup hi", inside)
	words("credit revision comment screen listing links e:mark", dropped)
	words("lt:< gt:> quot:\" apos:' nbsp:\302\240", entity)
	for (i = 0; i < 256; i++) byte[i] = sprintf("%c", i)
}
function words(list, set,    w, n, i, at) {
	n = split(list, w, " ")
	for (i = 1; i <= n; i++) {
		at = w[i] ~ /^its:|^e:/ ? 0 : index(w[i], ":")
		if (at) set[substr(w[i], 1, at - 1)] = substr(w[i], at + 1); else set[w[i]] = 1
	}
}
function utf8(c) {
	if (c < 128) return byte[c]
	if (c < 2048) return byte[192 + int(c / 64)] byte[128 + c % 64]
	if (c < 65536) return byte[224 + int(c / 4096)] byte[128 + int(c / 64) % 64] byte[128 + c % 64]
	return byte[240 + int(c / 262144)] byte[128 + int(c / 4096) % 64] byte[128 + int(c / 64) % 64] byte[128 + c % 64]
}
function code_point(s,    i, v) {
	if (s !~ /^x/) return s + 0
	for (i = 2; i <= length(s); i++) v = v * 16 + index("123456789abcdef", tolower(substr(s, i, 1)))
	return v
}
function decode(s,    out, at, name) {
	while (match(s, /&#?[A-Za-z0-9]+;/)) {
		name = substr(s, RSTART + 1, RLENGTH - 2)
		out = out substr(s, 1, RSTART - 1)
		if (name ~ /^#/) out = out utf8(code_point(substr(name, 2)))
		else if (name == "amp") out = out "&"
		else if (name in entity) out = out entity[name]
		else out = out substr(s, RSTART, RLENGTH)
		s = substr(s, RSTART + RLENGTH)
	}
	return out s
}
function end_line() {
	gsub(/[ \t\r\n]+/, " ", line)
	sub(/^ /, "", line)
	sub(/ $/, "", line)
	if (line != "") print decode(line)
	line = ""
}
# Text is collected as it is in the file, so that entities are decoded once.
function add(s) { if (!hidden) line = line s }
function glue(s) { if (!hidden) { sub(/[ \t\r\n]+$/, "", line); line = line s } }

FNR == 1 { depth = hidden = 0; until = ""; next }       # before the first tag of a page

# Inside a comment or a CDATA section a "<" is no tag.
until != "" {
	at = index($0, until)
	if (until == "]]>") add("&lt;" plain(at ? substr($0, 1, at - 1) : $0))
	if (at) { until = ""; add(substr($0, at + 3)) }
	next
}
function plain(s) { gsub(/&/, "\\&amp;", s); return s }
/^!--/ { if (at = index($0, "-->")) add(substr($0, at + 3)); else until = "-->"; next }
/^!\[CDATA\[/ {
	$0 = substr($0, 9)
	at = index($0, "]]>")
	add(plain(at ? substr($0, 1, at - 1) : $0))
	if (at) add(substr($0, at + 3)); else until = "]]>"
	next
}
/^[?!]/ { next }
{
	at = index($0, ">")
	tag = substr($0, 1, at - 1)
	text = substr($0, at + 1)
	closing = tag ~ /^\//
	empty = tag ~ /\/$/
	name = tag
	sub(/^\//, "", name)
	sub(/[ \t\r\n\/].*/, "", name)
	sub(/^mal:/, "", name)
	if (!(name in inside)) end_line()
	if (closing) {
		if (depth > 0 && hides[depth]) hidden--
		if (depth > 0) depth--
		if (name == "page") print ""
	} else {
		# Menu > Item, Ctrl+C
		if (name == "gui" && open[depth] == "guiseq" && children[depth]++) glue(" > ")
		if (name == "key" && open[depth] == "keyseq" && children[depth]++) glue("+")
		if (!empty) {
			open[++depth] = name
			children[depth] = 0
			hides[depth] = (name in dropped) || (name == "title" && open[depth - 1] == "info")
			hidden += hides[depth]
		}
	}
	add(text)
}
END { end_line() }
