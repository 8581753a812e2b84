"""The ground floor of compiled code: how it is compiled and kept, keyed draws, words, exp, log, threads."""
