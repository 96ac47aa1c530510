# code.awk -- C without comments and without the text of strings; the lines
# keep their numbers.  Continued lines and trigraphs are not joined.
FNR == 1 { inside = 0 }
{
	out = ""
	n = length($0)
	for (i = 1; i <= n; i++) {
		two = substr($0, i, 2)
		c = substr($0, i, 1)
		if (inside) {
			if (two == "*/") {
				inside = 0
				i++
			}
		} else if (two == "/*") {
			inside = 1
			i++
			out = out " "
		} else if (two == "//") {
			break
		} else if (c == "\"" || c == "'") {
			out = out c
			for (i++; i <= n && substr($0, i, 1) != c; i++)
				if (substr($0, i, 1) == "\\")
					i++
			out = out c
		} else
			out = out c
	}
	print FILENAME ":" FNR ": " out
}
