# text.awk -- text for tests: awk -v kib=N [-v seed=N] [-v mallard=1] -f text.awk
#
# Sentences of invented words, some far more frequent than others, in pages of
# a few paragraphs; the same seed gives the same bytes everywhere.  With
# mallard=1 the paragraphs are marked up as in GNOME's help.
function rnd(n) { state = (state * 16807) % 2147483647; return state % n }
function word(    w, k) {
	for (k = 1 + rnd(3); k > 0; k--) w = w c[1 + rnd(n_c)] v[1 + rnd(n_v)]
	return w
}
function sentence(    s, k) {
	for (k = 4 + rnd(9); k > 0; k--) s = s " " words[int(rnd(4000) * rnd(4000) / 4000)]
	return toupper(substr(s, 2, 1)) substr(s, 3) "."
}
BEGIN {
	state = 1 + seed
	n_c = split("b d f g h k l m n p r s t v z", c, " ")
	n_v = split("a e i o u ä é", v, " ")
	for (i = 0; i < 4000; i++) words[i] = word()
	while (n < kib * 1024) {
		p = sentence() " " sentence()
		n += length(p) + 1
		print mallard ? "<p>" p "</p>" : p
		if (!mallard && rnd(4) == 0) print ""
	}
}
