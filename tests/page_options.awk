# page_options.awk -- the options a manual page lists, one per line:
# subcommand, letter, long name, argument.
#
# usage: awk -v cmds='run eval' -f tests/page_options.awk man/moe-X.1
# An option is an item  .It Fl o Ar FILE , Fl -output Ns = Ns Ar FILE .  Those
# below  .Ss run  belong to the subcommand run, all others to every subcommand.
# The words of a choice stand as  Cm cpu | ref .

BEGIN {
	n = split(cmds, cmd, " ")
	for (i = 1; i <= n; i++)
		known[cmd[i]] = 1
}
/^\.S[hs]/ {
	word = $NF
	gsub(/"/, "", word)
	at = $1 == ".Ss" && word in known ? word : ""
}
/^\.It Fl/ {
	letter = name = arg = mode = ""
	for (i = 2; i <= NF; i++) {
		w = $i
		gsub(/\\-/, "-", w)
		gsub(/"/, "", w)
		if (w == "Ns" || w == "=" || w == ",")
			continue
		if (w == "Fl") {
			mode = "flag"
			arg = ""
		} else if (w == "Ar" || w == "Cm")
			mode = "arg"
		else if (mode == "flag") {
			if (substr(w, 1, 1) == "-")
				name = substr(w, 2)
			else
				letter = w
			mode = ""
		} else if (mode == "arg")
			arg = arg w
	}
	for (i = 1; i <= n; i++)
		if (at == "" || at == cmd[i])
			print cmd[i] "\t" letter "\t" name "\t" arg
}
